//! The tests of the daemon, in one program. As a program for each file they took five times as long to compile, because
//! each of them compiled the simulated system again.
//!
//! In: nothing. Out: the results of all files in this folder. `kill` is another program, because it kills itself. Must
//! never change what all tests share: the working directory, environment variables, signal handlers.

mod copies;
mod counted;
mod crash_points;
mod damaged;
mod device;
mod events;
mod files;
mod foreign_files;
mod found_files;
mod gaps;
mod host;
mod kept;
mod lost;
mod nasty;
mod pauses;
mod probes;
mod profiled;
mod programs;
mod record;
mod redox;
mod rounds;
mod signals;
mod stat;
mod support;
mod two_crashes;
mod waits;

#[test]
fn every_file_of_tests_is_part_of_this_program() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/daemon");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = format!("\nmod {};\n", name.trim_end_matches(".rs"));
        assert!(name == "main.rs" || include_str!("main.rs").contains(&module), "{name} is not in main.rs");
    }
}
