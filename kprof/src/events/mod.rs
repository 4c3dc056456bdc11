//! Events: what a kernel counts and records beside samples. Everything here is above the core of the profiler, which
//! knows of it only the hooks of [`crate::extension`].
//!
//! In: hits of points, calls of the scheduler, allocations, waits for locks, breakpoints; what the core tells an
//! extension. Out: counts and records in the meta stream, records in the event streams, reports of lockups. Runs in:
//! any but NMI.

pub(crate) mod profiled;

pub(crate) mod api;
#[cfg(feature = "profiling")]
pub(crate) mod by_task;
#[cfg(feature = "profiling")]
mod extension;
#[cfg(feature = "profiling")]
pub(crate) mod heap;
pub(crate) mod kernel;
#[cfg(all(feature = "profiling", feature = "locks"))]
pub(crate) mod locks;
pub(crate) mod lockup;
#[cfg(feature = "profiling")]
pub(crate) mod points;
#[cfg(feature = "profiling")]
pub(crate) mod probes;
#[cfg(feature = "profiling")]
pub(crate) mod records;
#[cfg(feature = "profiling")]
pub(crate) mod slot;
#[cfg(feature = "profiling")]
mod state;
#[cfg(feature = "profiling")]
pub(crate) mod task_times;
#[cfg(feature = "profiling")]
pub(crate) mod waiting;

pub(crate) mod off;
