//! Builds the QEMU plugin, which is a shared library, and puts it where `src/record.rs` includes it. So the tool is one
//! file, and `cargo install` needs no second step.
//!
//! In: `plugin/`, which uses the standard library only. Out: `$OUT_DIR/plugin.so`.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=plugin");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("plugin.so");
    let rustc = env::var_os("RUSTC").expect("cargo sets it");
    let target = env::var("TARGET").expect("cargo sets it");
    let mut command = Command::new(rustc);
    command.args(["--crate-name=kprof_qemu_plugin", "--crate-type=cdylib", "--edition=2024", "--target", &target]);
    command.args(["-Copt-level=3", "-Cpanic=abort", "-Cstrip=symbols", "plugin/lib.rs", "-o"]).arg(&out);
    let status = command.status().expect("rustc runs");
    assert!(status.success(), "the plugin does not compile: {status}");
}
