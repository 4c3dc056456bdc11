//! The profiler in this kernel: its port, the places where it is called, its device files.
//!
//! `port.rs` is the part that every kernel has to write. `calls.rs`, `device.rs`, `points.rs`, `system_calls.rs`,
//! `heap.rs` and `locks.rs` are what this kernel does in addition: all four triggers, counters, samples after a panic,
//! files for a daemon, points, system calls, the heap, locks. `places.rs` is for `cargo xtask truth`.

mod calls;
pub mod device;
mod heap;
mod locks;
#[cfg(feature = "profiling")]
pub mod places;
mod points;
mod port;
mod probes;
mod system_calls;
mod waits;

pub use calls::*;
#[cfg(feature = "profiling")]
pub use heap::HEAP;
pub use heap::{inner_heap, register_heap};
pub use kprof::Published;
pub use locks::RawKernelLock;
#[cfg(feature = "profiling")]
pub use locks::{RawNamedLock, Watched};
pub use points::{block_read, block_written, null_written, page_fault_begins, page_fault_ends};
pub use port::{EVENTS, PROFILER, READERS, init, on_nmi};
pub use probes::on_breakpoint;
pub use system_calls::{syscall_begins, syscall_ends};
pub use waits::{TaskTimes, task_created, task_resumed, task_switched, task_times, task_woken};
