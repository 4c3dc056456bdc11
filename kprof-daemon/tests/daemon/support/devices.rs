//! Device files that are ordinary files, for tests of the real programs.
//!
//! In: nothing. Out: a folder for `--scheme`. An ordinary file takes every command and gives it back as its state,
//! after the state that is written here. So it says `protocol 1` after the claim. Sampling is stopped, and CPU 1 has
//! samples.

use kprof_format::record::{Kind, SampleHeader};
use std::fs;
use tempfile::TempDir;

/// How many samples CPU 1 has. As text they are several times longer than a pipe.
pub const SAMPLES: u64 = 5000;

/// Device files with [`SAMPLES`] samples.
pub fn devices() -> TempDir {
    let length = SampleHeader::WORDS as u64 + 4;
    let sample = |number: u64| {
        let header = SampleHeader {
            position: number * length,
            tick: number,
            tsc: 1000 + number,
            task: 1,
            address: 0xffff_ffff_8020_0000 + number,
        };
        header.record(Kind::Sample, &[0xffff_ffff_8021_0000; 4])
    };
    with((0..SAMPLES).flat_map(sample).collect())
}

/// Device files in which the stream of CPU 1 has these words.
pub fn with(words: Vec<u64>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let state = format!("protocol 1\nstate stopped\nboot 1\ncpu.1.position-in {}\n", words.len());
    fs::write(folder.path().join("ctl-profiling"), state).unwrap();
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    fs::write(folder.path().join("profiling-1"), bytes).unwrap();
    folder
}
