//! The kernel's locks: those of modules above this one can be watched.
//!
//! In: the calls of a raw lock. Out: the same calls of a spin lock; without the feature `profiling` nothing else. Runs
//! in: wherever the kernel locks, never in an NMI.

use kprof_events::{Events, Profiled, RawLock};

use super::port::{EVENTS, Port};

impl Profiled for Port {
    #[inline]
    fn events() -> &'static Events<Self> {
        &EVENTS
    }
}

/// A spin lock that the profiler watches, for `Lock` and `IrqLock`.
pub type RawKernelLock = RawLock<spin::Mutex<()>, Port>;

/// The same, which also notes on which CPU it was taken: for reports of lockups.
#[cfg(feature = "profiling")]
pub type RawNamedLock = RawLock<spin::Mutex<()>, Port, true>;

/// The profiler around any lock.
#[cfg(feature = "profiling")]
pub type Watched<R> = RawLock<R, Port>;
