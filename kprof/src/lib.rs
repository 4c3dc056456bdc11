//! kprof: the profiler inside the kernel, and the wire language that it shares with daemon and host.
//!
//! Contents, in the order of the path. Without the feature `profiling` only [`format`] exists.
#![no_std]

pub mod format;
