//! Fuzz: arbitrary bytes instead of records, chunks, serial lines and binary samples give errors, never a panic.
//!
//! `cargo +nightly fuzz run records -- -max_total_time=60`
#![no_main]

use kprof::format::chunk::Chunk;
use kprof::format::record::{Header, MAX_WORDS};
use kprof::format::samples::Reader;
use kprof::format::{marker::Marker, serial, text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for word in bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))) {
        if let Ok(header) = Header::decode(word) {
            assert!(usize::from(header.words) <= MAX_WORDS);
            assert_eq!(header.encode(), word);
        }
        assert!(Marker::decode(word).is_none_or(|marker| marker.encode() == word));
    }
    let _ = Chunk::split(bytes);
    if let Some(Ok(line)) = serial::read(bytes) {
        assert!(line.line.len() <= bytes.len());
    }
    assert!(text::unescaped(bytes).count() <= bytes.len());
    let (mut reader, mut rest) = (Reader::default(), bytes);
    while let Some(Ok(_)) = reader.read(&mut rest) {
        assert!(!reader.stack().is_empty());
    }
});
