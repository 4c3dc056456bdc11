//! The profiler in this kernel: its port, the places where it is called, its device files.
//!
//! The port is the template that other kernels copy, used as it is. `calls.rs` and `device.rs` are what this kernel does
//! beyond it: all four ways, counters, samples after a panic, files for a daemon.

mod calls;
pub mod device;
#[path = "../../../kernel-integration/template/profiling.rs"]
mod port;

pub use calls::*;
pub use port::{PROFILER, Port, init, on_nmi};
