//! Fuzz: any chunks fold without a panic. Some have right checksums, so that their contents are parsed.
//!
//! `cargo +nightly fuzz run binary -- -max_total_time=60`
#![no_main]

mod shared;

use kprof_format::chunk::{Chunk, ChunkKind};
use kprof_fold::read::form::Form;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let symbols = shared::symbols(shared::SYMS).expect("has symbols");
    shared::fold(bytes, Some(Form::Binary), &symbols);
    // Kind and number of samples come from the first bytes; the rest is the payload of a chunk with a right checksum.
    if let [kind, samples, payload @ ..] = bytes {
        let kind = if kind % 4 == 0 { ChunkKind::Lines } else { ChunkKind::Samples };
        let chunk = Chunk { kind, samples: u32::from(*samples), payload };
        shared::fold(&[&chunk.header()[..], payload].concat(), Some(Form::Binary), &symbols);
    }
});
