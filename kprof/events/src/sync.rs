//! The atomics of the parts that loom tries in every order: `kprof/tests/loom.rs` compiles those files with its own.
//!
//! In: nothing. Out: the atomic types of `core`.

pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
