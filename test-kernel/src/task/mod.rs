//! Threads, the scheduler, processes, programs, signals.

pub mod exec;
pub mod process;
pub mod scheduler;
pub mod signal;
pub mod thread;
mod waiting;
