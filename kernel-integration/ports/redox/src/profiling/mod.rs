//! Performance profiling by kprof: what the rest of the kernel calls, in the order of a boot.
//!
//! In: calls of the set-up of each CPU, of the NMI entry, of the debug scheme. Out: samples. The CPU
//! with the highest number samples the others and runs nothing else (x86_64), or the only CPU samples
//! itself (aarch64). Without the feature this file has a few empty functions, and kprof is not
//! compiled. `arch::profiling` has the processor's part.

#[cfg(all(
    feature = "profiling",
    not(any(target_arch = "x86_64", target_arch = "aarch64"))
))]
compile_error!(
    "kprof samples x86_64 and aarch64 only: build the kernel without the feature `profiling`"
);

#[cfg(all(feature = "profiling", target_arch = "x86_64"))]
mod cpu;
#[cfg(all(feature = "profiling", target_arch = "x86_64"))]
pub mod nmi;
#[cfg(all(feature = "profiling", target_arch = "aarch64"))]
pub mod own_timer;
#[cfg(feature = "profiling")]
pub mod read;
#[cfg(all(feature = "profiling", target_arch = "x86_64"))]
pub mod sampler;
#[cfg(feature = "profiling")]
mod setup;

#[cfg(feature = "profiling")]
pub mod control;

#[cfg(all(feature = "profiling", target_arch = "aarch64"))]
pub use self::own_timer::{
    counts, cpu_exists, init, interrupted, is_period_over, maybe_run_profiling_helper_forever,
    ready_for_profiling, serio_command, RingBuffer,
};
#[cfg(feature = "profiling")]
pub use self::read::{drain_buffer, lookup_dbg_id, name_context};
#[cfg(all(feature = "profiling", target_arch = "x86_64"))]
pub use self::{
    cpu::{allocate, cpu_exists, init, ready_for_profiling, RingBuffer},
    nmi::nmi_handler,
    sampler::{maybe_run_profiling_helper_forever, maybe_setup_timer, serio_command},
};

#[cfg(all(feature = "profiling", target_arch = "aarch64"))]
use self::own_timer::{rings, PROFILER};
#[cfg(all(feature = "profiling", target_arch = "x86_64"))]
use self::{cpu::rings, nmi::PROFILER};

#[cfg(not(feature = "profiling"))]
#[allow(unused_imports)]
pub use self::off::*;

/// Without the feature. Not every architecture calls all of these.
#[cfg(not(feature = "profiling"))]
#[allow(dead_code, clippy::missing_safety_doc)]
mod off {
    use crate::cpu_set::LogicalCpuId;

    pub unsafe fn allocate(_total_cpu_count: u32) {}
    pub unsafe fn init() {}
    pub fn ready_for_profiling() {}
    pub fn maybe_run_profiling_helper_forever(_cpu_id: LogicalCpuId) {}
    pub fn serio_command(_index: usize, _data: u8) {}
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn nmi_handler(_stack: &crate::arch::interrupt::InterruptStack) {}
}
