//! Passes the linker script to the linker and does nothing else.
fn main() {
    println!("cargo::rustc-link-arg-bins=-T{}/kernel.ld", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=kernel.ld");
}
