//! Profiling: what depends on the processor. `crate::profiling` has the rest.

pub mod calibrate;
pub mod entries;
pub mod sampler_timer;
pub mod user_memory;

use core::arch::x86_64::_rdtsc;

use crate::arch::interrupt::irq::__generic_interrupts_start;

/// The clock that kprof stamps samples with.
pub fn timestamp() -> u64 {
    // SAFETY: reads a counter.
    unsafe { _rdtsc() }
}

/// A symbol with its address, with which symbols of another build are detected.
pub fn anchor() -> (&'static str, u64) {
    let address = __generic_interrupts_start as *const () as u64;
    ("__generic_interrupts_start", address)
}
