//! Recorded hits for other viewers: several values for each stack, and what the values are. Stage: output.
//!
//! In: counts of hits and of weight by stack. Out: one table, which each exporter writes in its own form. A heap has
//! the four sample types of Go's heap profiles, so that what is known of those is known of these.

use crate::stacks::StackId;

/// What is written.
pub struct Values<'a> {
    /// The name of each value, and its unit as pprof calls it: `count`, `bytes`, `nanoseconds`.
    pub types: &'a [(&'a str, &'static str)],
    /// The index of the one that readers show first.
    pub default: usize,
    /// The values of each stack.
    pub rows: Vec<(StackId, Vec<i64>)>,
    /// The values of functions that stand for something besides.
    pub beside: Vec<(&'a str, Vec<i64>)>,
    /// What was sampled, its unit, and how much of it lies between two samples.
    pub period: Option<(&'a str, &'a str, u64)>,
}

/// The sample types of Go's heap profiles.
pub const HEAP: [(&str, &str); 4] =
    [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")];
