//! Fuzz: any bytes, read as an ELF file with DWARF, give an error or names, never a panic.
//!
//! `cargo +nightly fuzz run elf -- -max_total_time=60`
#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let bytes = [kprof_fold::symbols::elf::MAGIC, bytes].concat();
    let Some(symbols) = shared::symbols(&bytes) else { return };
    for number in 0..symbols.len().min(64) {
        let start = symbols.start(number);
        assert!(!kprof_fold::resolve::place(&symbols, start).functions.is_empty());
        let _ = symbols.lacks_frame(start);
    }
});
