//! Passes the linker script to the linker and does nothing else. A test may name another script.
fn main() {
    let script = option_env!("BARE_SCRIPT").unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/kernel.ld"));
    println!("cargo::rustc-link-arg-bins=-T{script}\ncargo::rerun-if-changed=kernel.ld");
}
