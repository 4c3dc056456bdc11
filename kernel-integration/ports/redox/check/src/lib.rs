//! A stand-in for the Redox kernel (663e664): the names, signatures and layouts that the drop-in uses, and nothing
//! else.
//!
//! In: `../profiling.rs`, compiled as a module here as it is there. Out: a library for the tests, which play the
//! machine: CPUs are a number per thread ([`machine`]), the timer sleeps on the host, an NMI is a call. Names and
//! signatures are the kernel's; what is behind them is ours and does only what a test needs. Runs on the host, never in
//! a kernel.
#![cfg_attr(not(feature = "profiling"), allow(dead_code, unused_macros))]

extern crate alloc;
// Crates that the kernel depends on, as far as the drop-in names them.
extern crate self as arrayvec;
extern crate self as hashbrown;
extern crate self as rmm;
extern crate self as x86;

macro_rules! log_macros {
    ($d:tt $($name:ident)*) => {
        $(macro_rules! $name {
            ($d($d arg:tt)*) => { $crate::machine::log(stringify!($name), format!($d($d arg)*)); };
        })*
    };
}
log_macros!($ info warn error);

pub mod arch;
pub mod crates;
pub mod machine;
pub mod parts;
#[path = "../../profiling.rs"]
pub mod profiling;
#[cfg(feature = "profiling")]
#[path = "../../step2.rs"]
pub mod profiling_control;

pub use crates::*;
pub use parts::{acpi, context, cpu_set, ipi, kernel_executable_offsets, memory, percpu, startup, sync, syscall, time};

/// The first address that is not the user's; the kernel's is 2^47.
pub const USER_END_OFFSET: usize = 1 << 32;
/// What one entry of the topmost table maps; the kernel's is 2^39.
pub const PML4_SIZE: usize = 1 << 47;
