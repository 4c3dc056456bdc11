//! Fuzz: any text, read as symbols, gives no panic. The symbols are sorted, there is one per address, and each is found
//! at its own start, except at addresses that are not canonical.
//!
//! `cargo +nightly fuzz run nm -- -max_total_time=60`
#![no_main]

mod shared;

use kprof_fold::relocations::{LOWER_HALF, NOWHERE};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if bytes.starts_with(kprof_fold::symbols::elf::MAGIC) {
        return;
    }
    let Some(symbols) = shared::symbols(bytes) else { return };
    for number in 0..symbols.len() {
        let start = symbols.start(number);
        // No code can be at these addresses, because they are not canonical. In a profile they stand for unknown code
        // and for code of the lower half, of which symbols of the upper half know nothing.
        let is_code = start.wrapping_sub(NOWHERE) >= LOWER_HALF;
        assert_eq!(symbols.find(start), is_code.then_some(number));
        assert!(number == 0 || symbols.start(number - 1) < start);
        let _ = (symbols.function(number), symbols.lacks_frame(start));
    }
    shared::fold(b"a 0 1 ffffffff80001000 ffffffff80002010\n", None, &symbols);
});
