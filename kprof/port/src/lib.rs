//! kprof-port: hardware access that every x86_64 port of kprof needs; each module can be used without the others.
//!
//! In: the kernel's choices (a vector, an interrupt stack, where the local APIC is mapped). Out: register writes. Runs
//! in: as each item says. A kernel that already has such code does not need this package. Nothing here allocates, locks
//! or prints.
//!
//! | step of docs/porting.md | module |
//! |---|---|
//! | the NMI's stub, gate and stack | [`entry`], [`gate`], [`tss`] |
//! | probes: the breakpoint's stub, `EventKernel::patch` | [`breakpoint`], [`patch`] |
//! | `Kernel::signal`, `Kernel::cpu` | [`apic`] |
//! | `Kernel::sleep_ns` | [`timer`] |
//! | room for `Kernel::unwind_table` | [`unwind_room!`] |
//! | `Config::tsc_hz`, `Config::clock` | [`calibrate`], [`counted`] |
//! | `Kernel::compiled_entry`, for `extern "x86-interrupt"` functions | [`compiled`] |
//! | `Kernel::caller_entry_frame`, for stubs that build their own trap frame | [`trap_frame`] |
#![cfg_attr(not(test), no_std)]
#![cfg(target_arch = "x86_64")]

pub mod apic;
pub mod breakpoint;
pub mod calibrate;
pub mod command;
pub mod compiled;
pub mod counted;
pub mod entry;
pub mod gate;
pub mod patch;
pub mod timer;
pub mod trap_frame;
pub mod tss;
pub mod unwind_room;

#[cfg(test)]
mod recorded;
