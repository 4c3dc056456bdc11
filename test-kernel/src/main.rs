//! The test kernel: a small SMP kernel with which kprof is tested, and which shows a port.
//!
//! The modules are listed from the bottom up. `boot` defines in which order things start. `profiling` is the port of
//! kprof. Everything else is independent of kprof.
#![no_std]
#![no_main]
// Without the calls of the profiler, the code that only they use is dead.
#![cfg_attr(feature = "no-calls", allow(dead_code))]

extern crate alloc;

mod boot;
mod cpu;
mod device;
mod errno;
mod fs;
mod info;
mod lock;
mod log;
mod memory;
mod panic;
mod power;
mod preempt;
#[cfg_attr(feature = "no-calls", path = "no_calls.rs")]
mod profiling;
mod random;
mod symbols;
mod syscall;
mod task;
mod wait;
mod workload;
