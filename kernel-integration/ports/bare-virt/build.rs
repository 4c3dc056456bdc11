//! Passes the linker script of the processor to the linker and does nothing else.
fn main() {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    println!("cargo::rustc-link-arg-bins=-T{}/src/{arch}/kernel.ld", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=src/{arch}/kernel.ld");
}
