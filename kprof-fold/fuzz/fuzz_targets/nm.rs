//! Fuzz: any text, read as symbols, gives no panic. The symbols are sorted, there is one per address, and each is found
//! at its own start, except at the addresses that mean "nowhere".
//!
//! `cargo +nightly fuzz run nm -- -max_total_time=60`
#![no_main]

mod shared;

use kprof_fold::relocations::NOWHERE;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if bytes.starts_with(kprof_fold::symbols::elf::MAGIC) {
        return;
    }
    let Some(symbols) = shared::symbols(bytes) else { return };
    for number in 0..symbols.len() {
        let start = symbols.start(number);
        // No code can be at the two addresses that stand for "nowhere": they are not canonical.
        let is_nowhere = start.wrapping_sub(NOWHERE) < 2;
        assert_eq!(symbols.find(start), (!is_nowhere).then_some(number));
        assert!(number == 0 || symbols.start(number - 1) < start);
        let _ = (symbols.function(number), symbols.lacks_frame(start));
    }
    shared::fold(b"a 0 1 ffffffff80001000 ffffffff80002010\n", None, &symbols);
});
