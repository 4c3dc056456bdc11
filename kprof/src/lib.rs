//! kprof: the profiler inside the kernel, and the wire language that it shares with daemon and host.
//!
//! Contents, in the order of the path. Without the feature `profiling` only [`format`] has code in it: the names that
//! a kernel uses are still there, do nothing, and leave no symbol and no byte in the kernel.
//!
//! A kernel brings one implementation of the unsafe trait [`Kernel`], one `static` [`Profiler`], and six calls:
//! [`Profiler::init`] on the boot CPU, [`Profiler::register`] on every CPU, [`Profiler::run_sampler`] on the sampler CPU,
//! [`Profiler::on_nmi`] in the NMI entry, [`Profiler::control`] and [`Profiler::read_stream`] behind its device files.
#![cfg_attr(not(test), no_std)]

pub mod config;
pub mod kernel;

#[cfg(feature = "profiling")]
mod account;
#[cfg(feature = "profiling")]
mod backoff;
#[cfg(feature = "profiling")]
pub mod clock;
#[cfg(feature = "profiling")]
mod control;
#[cfg(feature = "profiling")]
mod cpu_set;
#[cfg(feature = "profiling")]
mod drain;
#[cfg(feature = "profiling")]
mod events;
#[cfg(feature = "profiling")]
mod export;
#[cfg(feature = "profiling")]
mod gaps;
#[cfg(feature = "profiling")]
mod handler;
#[cfg(feature = "profiling")]
mod meta;
#[cfg(feature = "profiling")]
mod own;
#[cfg(feature = "profiling")]
mod profiler;
#[cfg(feature = "profiling")]
mod published;
#[cfg(feature = "profiling")]
mod ready;
#[cfg(feature = "profiling")]
mod ring;
#[cfg(feature = "profiling")]
mod sampler;
#[cfg(feature = "profiling")]
mod settings;
#[cfg(feature = "profiling")]
mod slot;
#[cfg(feature = "profiling")]
mod sync;
#[cfg(feature = "profiling")]
mod unwind;
#[cfg(feature = "profiling")]
mod x86_64;

#[cfg(not(feature = "profiling"))]
mod off;

pub mod format;

pub use config::{Clock, Config, Mode, Setup, Way};
pub use format::serial::Bytes;
pub use kernel::{
    Border, Context, EntryFrame, Event, Image, Interrupted, Kernel, NmiToken, Outcome, Published, Registers,
};

#[cfg(not(feature = "profiling"))]
pub use off::{
    ControlDone, ControlError, CpuSet, CpuSlot, DEFAULT_RING_WORDS, ENABLED, OwnTick, Profiler, Publisher, ReadError,
    StopError,
};
#[cfg(feature = "profiling")]
pub use {
    control::{ControlDone, ControlError, Refusal},
    cpu_set::CpuSet,
    drain::ReadError,
    own::OwnTick,
    profiler::{DEFAULT_RING_WORDS, ENABLED, Profiler, StopError},
    published::Publisher,
    slot::CpuSlot,
};
