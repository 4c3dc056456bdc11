//! Passes the linker script of the processor, or that in `GUESTS_SCRIPT`, to the linker and does nothing else.
fn main() {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let own = || format!("{}/src/{arch}.ld", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rustc-link-arg-bins=-T{}", std::env::var("GUESTS_SCRIPT").unwrap_or_else(|_| own()));
    println!("cargo::rerun-if-env-changed=GUESTS_SCRIPT");
    println!("cargo::rerun-if-changed=src");
}
