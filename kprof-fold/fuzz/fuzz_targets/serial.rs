//! Fuzz: any log folds without a panic, and so does a log whose lines have right checksums.
//!
//! `cargo +nightly fuzz run serial -- -max_total_time=60`
#![no_main]

mod shared;

use kprof_fold::read::form::Form;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let symbols = shared::symbols(shared::SYMS).expect("has symbols");
    shared::fold(bytes, Some(Form::Serial), &symbols);
    let mut log = String::new();
    for (number, line) in String::from_utf8_lossy(bytes).lines().enumerate() {
        kprof_format::serial::write(&mut log, number as u64, line).expect("a string takes everything");
    }
    shared::fold(log.as_bytes(), Some(Form::Serial), &symbols);
});
