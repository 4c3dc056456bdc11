//! The tests of `kprof-qemu` and of its plugin, in one program, which compiles the plugin's parts once.
//!
//! In: nothing. Out: the results of all files in this folder. Must never change what all tests share: the working
//! directory, environment variables, signal handlers.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

mod attach;
mod cross;
mod decode;
mod describe;
mod exit;
mod place;
mod plugin;
mod records;
mod reset;
mod roots;
mod shadow;
mod unwound;
mod walk;

#[test]
fn every_file_of_tests_is_part_of_this_program() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/qemu");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = format!("\nmod {};\n", name.trim_end_matches(".rs"));
        assert!(name == "main.rs" || include_str!("main.rs").contains(&module), "{name} is not in main.rs");
    }
}
