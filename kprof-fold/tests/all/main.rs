//! The tests of kprof-fold, in one program. As a program for each file they took three times as long to compile,
//! because each of them was linked with the whole library.
//!
//! In: nothing. Out: the results of all files in this folder. Other programs are `bad_input`, which measures the memory
//! of the processes that it starts, `plausible`, which takes its own small executable for a kernel, `event_tables`,
//! which needs cargo features, and the two simulations, which take long. Must never change what all tests share: the
//! working directory, environment variables, signal handlers.
#![deny(unsafe_code)]

mod aliasing;
mod annotate;
mod arguments;
mod boots;
mod bursts;
mod compressed;
mod control;
mod damage;
mod debug_file;
mod deep;
mod doctor;
mod doubts;
mod elf;
mod event_cpus;
mod export_times;
mod exports;
mod forms;
mod golden;
mod holes;
mod images;
mod limits;
mod lower_half;
mod model;
mod outputs;
mod page;
mod perf_data;
mod pictures;
mod pprof;
mod probes;
mod rates;
mod scripting;
mod sealed;
mod self_cost;
mod slow;
mod spent;
mod stub;
mod tables;
mod unwind;

#[test]
fn every_file_of_tests_is_part_of_this_program() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = format!("\nmod {};\n", name.trim_end_matches(".rs"));
        assert!(name == "main.rs" || include_str!("main.rs").contains(&module), "{name}");
    }
}
