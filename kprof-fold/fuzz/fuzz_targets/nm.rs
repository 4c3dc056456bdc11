//! Fuzz: any text as symbols: no panic, sorted, one per address, and each is found at its own start.
//!
//! `cargo +nightly fuzz run nm -- -max_total_time=60`
#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if bytes.starts_with(kprof_fold::symbols::elf::MAGIC) {
        return;
    }
    let Some(symbols) = shared::symbols(bytes) else { return };
    for number in 0..symbols.len() {
        let start = symbols.start(number);
        assert_eq!(symbols.find(start), Some(number));
        assert!(number == 0 || symbols.start(number - 1) < start);
        let _ = (symbols.function(number), symbols.lacks_frame(start));
    }
    shared::fold(b"a 0 1 ffffffff80001000 ffffffff80002010\n", None, &symbols);
});
