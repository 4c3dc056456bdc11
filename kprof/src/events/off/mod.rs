//! The types of events with their features off: empty, so that the kernel's calls and statics compile to nothing.
//!
//! In: cargo features. Out: zero-sized types. Runs in: nowhere.

#[cfg(not(all(feature = "profiling", feature = "heap")))]
pub(crate) mod heap;
#[cfg(not(all(feature = "profiling", feature = "locks")))]
pub(crate) mod locks;
#[cfg(not(feature = "profiling"))]
pub(crate) mod points;
#[cfg(not(all(feature = "profiling", feature = "probes")))]
pub(crate) mod probes;
#[cfg(not(feature = "profiling"))]
pub(crate) mod slot;
#[cfg(not(all(feature = "profiling", feature = "points")))]
pub(crate) mod waiting;
