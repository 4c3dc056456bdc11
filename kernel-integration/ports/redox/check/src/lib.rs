//! A stand-in for the Redox kernel (663e664): the names, signatures and layouts that the drop-in uses, and nothing
//! else.
//!
//! In: the files of `../src`, compiled as modules as in the kernel. Out: a library for the tests, which simulate the
//! machine: each thread has the number of a CPU ([`machine`]), the timer sleeps on the host, an NMI is a call. Names
//! and signatures are the kernel's. The implementations are our own and do only what a test needs. Runs on the host,
//! never in a kernel. For aarch64 it is compiled for Linux there, and has that processor's part.
#![cfg_attr(not(feature = "profiling"), allow(dead_code))]
// The port uses other macros on each processor, and none without the feature.
#![allow(unused_macros)]

extern crate alloc;
// The crates of the kernel that the drop-in uses.
extern crate self as arrayvec;
extern crate self as hashbrown;
extern crate self as x86;

macro_rules! log_macros {
    ($d:tt $($name:ident)*) => {
        $(macro_rules! $name {
            ($d($d arg:tt)*) => { $crate::machine::log(stringify!($name), format!($d($d arg)*)); };
        })*
    };
}
log_macros!($ info warn error);

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
pub mod arch;
pub mod crates;
pub mod machine;
pub mod parts;
#[path = "../../src/profiling/mod.rs"]
pub mod profiling;

pub use crates::*;
pub use parts::{
    acpi, context, cpu_set, ipi, kernel_executable_offsets, memory, percpu, startup, sync, syscall,
    time,
};

/// The first address after user memory. In the kernel it is 2^47.
pub const USER_END_OFFSET: usize = 1 << 32;
/// The bytes that one entry of the top page table maps. In the kernel it is 2^39.
pub const PML4_SIZE: usize = 1 << 47;
