//! The profiler in this kernel: its port, the places where it is called, its device files.
//!
//! The port is the template that other kernels copy, used as it is. `calls.rs` and `device.rs` are what this kernel does
//! beyond it: all four ways, counters, samples after a panic, files for a daemon; `places.rs` is for `cargo xtask truth`.

mod calls;
pub mod device;
#[cfg(feature = "profiling")]
pub mod places;
#[path = "../../../kernel-integration/template/profiling.rs"]
mod port;

pub use calls::*;
pub use kprof::Published;
pub use port::{PROFILER, init, on_nmi};
