//! Fuzz: any text folds without a panic, and every sample that counts is in one stack.
//!
//! `cargo +nightly fuzz run profile -- -max_total_time=60`
#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let symbols = shared::symbols(shared::SYMS).expect("has symbols");
    shared::fold(bytes, None, &symbols);
    shared::fold(bytes, Some(kprof_fold::read::form::Form::RedoxCpuFirst), &symbols);
});
