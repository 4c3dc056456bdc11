//! The profiler in this kernel: its port, the places where it is called, its device files.
//!
//! `port.rs` is the part that every kernel has to write. `calls.rs` and `device.rs` are what this kernel does in
//! addition: all four triggers, counters, samples after a panic, files for a daemon. `places.rs` is for
//! `cargo xtask truth`.

mod calls;
pub mod device;
#[cfg(feature = "profiling")]
pub mod places;
mod port;

pub use calls::*;
pub use kprof::Published;
pub use port::{PROFILER, READERS, init, on_nmi};
