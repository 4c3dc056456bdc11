//! The test kernel: a small, honest SMP kernel, there to prove kprof and to show a port.
//!
//! Contents, from the bottom up. `boot` says in which order things start; `profiling` is the port of kprof; everything
//! else would be here without it.
#![no_std]
#![no_main]
// With the calls taken out, what only they use is left over.
#![cfg_attr(kprof_no_calls, allow(dead_code))]

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
#[cfg_attr(kprof_no_calls, path = "no_calls.rs")]
mod profiling;
mod random;
mod symbols;
mod syscall;
mod task;
mod wait;
mod workload;
