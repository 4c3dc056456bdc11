//! Builds the QEMU plugin, which is a shared library, and puts it where `src/run.rs` includes it. So the tool is one
//! file, and `cargo install` needs no second step.
//!
//! In: `plugin/`, which uses the standard library only. Out: `$OUT_DIR/plugin-N.so` for each version N of the plugin
//! interface, of which each QEMU takes one.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Versions of the interface: for QEMU 7.2 to 8.2, 9.2 to 11.0, and 11.1.
const INTERFACES: [&str; 3] = ["1", "4", "7"];

fn main() {
    println!("cargo::rerun-if-changed=plugin");
    // The tests compile parts of the plugin.
    println!("cargo::rustc-check-cfg=cfg(interface, values(\"1\", \"4\", \"7\"))");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let rustc = env::var_os("RUSTC").expect("cargo sets it");
    let target = env::var("TARGET").expect("cargo sets it");
    for interface in INTERFACES {
        let mut command = Command::new(&rustc);
        command.args(["--crate-name=kprof_qemu_plugin", "--crate-type=cdylib", "--edition=2024", "--target", &target]);
        command.args(["--cfg", &format!("interface=\"{interface}\"")]);
        command.args(["-Copt-level=3", "-Cpanic=abort", "-Cstrip=symbols", "plugin/lib.rs", "-o"]);
        let status = command.arg(out.join(format!("plugin-{interface}.so"))).status().expect("rustc runs");
        assert!(status.success(), "the plugin does not compile: {status}");
    }
}
