//! Everything that leaves the daemon: lines and chunks, the sample file, how it is continued after a crash.
//!
//! In: samples, meta records, counters. Out: bytes on a disk. Runs in: user process. The order is always: write, sync,
//! then acknowledge to the kernel (by [`crate::drain_loop`]).

pub mod append;
mod body;
pub mod compose;
pub mod damaged;
pub mod event_lines;
pub mod found;
pub mod lines;
pub mod resume;
pub mod rotate;
pub mod sample_file;
pub mod sample_line;
