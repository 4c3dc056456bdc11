//! The types of events with their features off: empty, so that the kernel's calls and statics compile to nothing.
//!
//! In: cargo features. Out: zero-sized types. Runs in: nowhere.

#[cfg(not(feature = "profiling"))]
pub(crate) mod heap;
#[cfg(not(all(feature = "profiling", feature = "locks")))]
pub(crate) mod locks;
#[cfg(not(feature = "profiling"))]
pub(crate) mod points;
#[cfg(not(feature = "profiling"))]
pub(crate) mod probes;
#[cfg(not(feature = "profiling"))]
pub(crate) mod slot;
#[cfg(not(feature = "profiling"))]
pub(crate) mod waiting;
