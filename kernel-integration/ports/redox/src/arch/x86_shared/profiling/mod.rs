//! Profiling: what depends on the processor. `crate::profiling` has the rest.

pub mod calibrate;
pub mod entries;
pub mod sampler_timer;
pub mod user_memory;
