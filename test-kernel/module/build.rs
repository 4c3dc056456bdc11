//! Passes the linker script to the linker, and does nothing else.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo::rustc-link-arg-bins=-T{folder}/module.ld");
    println!("cargo::rustc-link-arg-bins=--build-id=sha1");
    println!("cargo::rerun-if-changed=module.ld");
}
