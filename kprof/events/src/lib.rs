//! kprof-events: what a kernel counts and records beside its samples. The package stands above `kprof`, which knows of
//! it only the hooks of `kprof::extension::Extension`.
//!
//! In: hits of points, calls of the scheduler, allocations, waits for locks, breakpoints; what the profiler tells an
//! extension. Out: counts and records in the meta stream, records in the event streams, reports of lockups. Runs in:
//! any but NMI.
#![doc = "\n---\n"]
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]

/// The body of a public function: with the feature on, and with it off.
macro_rules! feature {
    ($on:expr; else $off:expr) => {{
        #[cfg(feature = "profiling")]
        {
            $on
        }
        #[cfg(not(feature = "profiling"))]
        {
            $off
        }
    }};
}

mod profiled;

mod api;
#[cfg(feature = "profiling")]
mod by_task;
mod event;
mod events;
#[cfg(feature = "profiling")]
mod export;
#[cfg(feature = "profiling")]
mod extension;
#[cfg(feature = "profiling")]
mod heap;
mod kernel;
#[cfg(all(feature = "profiling", feature = "locks"))]
mod locks;
mod lockup;
#[cfg(feature = "profiling")]
mod points;
#[cfg(feature = "profiling")]
mod probes;
#[cfg(feature = "profiling")]
mod records;
#[cfg(feature = "profiling")]
mod slot;
#[cfg(feature = "profiling")]
mod state;
#[cfg(feature = "profiling")]
mod sync;
#[cfg(feature = "profiling")]
mod task_times;
#[cfg(all(test, feature = "profiling"))]
mod tests;
#[cfg(feature = "profiling")]
mod waiting;

#[cfg(not(feature = "profiling"))]
mod off;
#[cfg(not(all(feature = "profiling", feature = "locks")))]
mod unwrapped;

pub use event::Event;
pub use events::Events;
#[cfg(feature = "profiling")]
pub use heap::Alloc;
pub use kernel::{EventKernel, TaskState};
#[cfg(all(feature = "profiling", feature = "locks"))]
pub use locks::RawLock;
pub use lockup::Lockup;
#[cfg(not(feature = "profiling"))]
pub use off::{Alloc, AllocSample, EventSlot, Point, PointCounts, ProbeMemory, TaskTimes};
#[cfg(feature = "profiling")]
pub use points::{AllocSample, Point, PointCounts};
#[cfg(feature = "profiling")]
pub use probes::ProbeMemory;
pub use profiled::Profiled;
#[cfg(feature = "profiling")]
pub use slot::EventSlot;
#[cfg(feature = "profiling")]
pub use task_times::TaskTimes;
#[cfg(not(all(feature = "profiling", feature = "locks")))]
pub use unwrapped::RawLock;
