//! kprof: the profiler inside the kernel.
//!
//! The modules are listed in the order in which a sample passes them. Without the feature `profiling` the names that a
//! kernel uses still exist, do nothing, and add no symbol and no byte to the kernel. [`format`] is the package
//! `kprof-format`, the wire language that daemon and host share.
//!
//! A kernel provides one implementation of the unsafe trait [`Kernel`], one `static` [`Profiler`], and these calls:
//! [`Profiler::init`] on the boot CPU, [`Profiler::register`] on every CPU, [`Profiler::run_sampler`] on the sampler
//! CPU, [`Profiler::on_nmi`] in the NMI entry; [`Profiler::open_control`], [`Profiler::open_stream`] and
//! [`Profiler::open_meta`] where a process opens its device files, or [`Profiler::export`] where there are none.
#![doc = "\n---\n"]
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]

/// The body of a public function: with the feature on, and with it off.
macro_rules! feature {
    ($on:expr; else $off:expr) => {{
        #[cfg(feature = "profiling")]
        {
            $on
        }
        #[cfg(not(feature = "profiling"))]
        {
            $off
        }
    }};
}

mod check;
pub mod clock;
pub mod config;
mod cpu_set;
mod errors;
mod files;
pub mod kernel;
mod profiler;
mod publisher;

#[cfg(feature = "profiling")]
mod account;
#[cfg(feature = "profiling")]
mod arch;
#[cfg(feature = "profiling")]
mod backoff;
#[cfg(feature = "profiling")]
mod control;
#[cfg(feature = "profiling")]
mod drain;
#[cfg(feature = "profiling")]
mod export;
#[cfg(feature = "profiling")]
pub mod extension;
#[cfg(feature = "profiling")]
mod handler;
#[cfg(feature = "profiling")]
mod hit;
#[cfg(feature = "profiling")]
#[doc(hidden)]
pub mod internals;
#[cfg(feature = "profiling")]
mod intervals;
#[cfg(feature = "profiling")]
mod live;
#[cfg(feature = "profiling")]
mod moment;
#[cfg(feature = "profiling")]
mod names;
#[cfg(feature = "profiling")]
mod patience;
#[cfg(feature = "profiling")]
mod progress;
#[cfg(feature = "profiling")]
mod published;
#[cfg(all(test, feature = "profiling"))]
mod quiet;
#[cfg(feature = "profiling")]
mod ready;
#[cfg(feature = "profiling")]
mod ring;
#[cfg(feature = "profiling")]
mod sampler;
#[cfg(feature = "profiling")]
mod self_cost;
#[cfg(feature = "profiling")]
mod setup;
#[cfg(feature = "profiling")]
mod shared;
#[cfg(feature = "profiling")]
mod slot;
#[cfg(feature = "profiling")]
mod stream;
#[cfg(feature = "profiling")]
mod sync;
#[cfg(feature = "profiling")]
mod timer;
#[cfg(feature = "profiling")]
mod transition;
#[cfg(feature = "profiling")]
mod unwind;

#[cfg(not(feature = "profiling"))]
mod slot_off;

pub use check::{CheckError, Vectors};
pub use kprof_format as format;

pub use config::{Clock, Config, CountedEvent, Mode, Precision, Setup, Trigger};
pub use cpu_set::CpuSet;
pub use errors::{
    BadMemory, CommandError, ControlError, ExportError, InitError, ReadError, RegisterError, StateError, StreamName,
};
pub use files::{ControlFile, StreamFile};
pub use format::point::Unit;
pub use format::serial::Bytes;
pub use kernel::{
    Breakpoint, CallerEntryFrame, CompiledEntry, ControlDone, EntryFrame, ForeignStacks, Image, Interrupted, Kernel,
    NmiToken, Outcome, OverflowTick, Published, Registers, Task, TimerTick, UnwindTable,
};
pub use profiler::{DEFAULT_RING_WORDS, ENABLED, Profiler};
pub use publisher::Publisher;
#[cfg(feature = "profiling")]
pub use slot::CpuSlot;
#[cfg(not(feature = "profiling"))]
pub use slot_off::CpuSlot;
