//! Hands the linker script to the linker; nothing else happens here.
fn main() {
    println!("cargo::rustc-link-arg-bins=-T{}/kernel.ld", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=kernel.ld");
}
