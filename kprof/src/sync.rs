//! Selects between the atomics of `core` and those of loom.
//!
//! In: nothing. Out: the atomic types that the rings, the slots and the counters are made of. Under `--cfg kprof_loom`
//! only the ring and the published cell are compiled, because loom's atomics cannot be made in a `const`.

#[cfg(not(kprof_loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(kprof_loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
