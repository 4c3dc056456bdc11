//! The tests of the wire language, in one program.
#![allow(missing_docs)]

mod lines;
mod page;

#[test]
fn every_file_of_tests_is_part_of_this_program() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = format!("\nmod {};\n", name.trim_end_matches(".rs"));
        assert!(name == "main.rs" || include_str!("main.rs").contains(&module), "{name} is not in main.rs");
    }
}
