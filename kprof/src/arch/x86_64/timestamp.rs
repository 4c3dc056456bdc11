//! The time stamp counter (Intel SDM volume 3, 18.17). In: nothing. Out: ticks. Runs in: any, NMI included.

/// Frequencies that it may have.
pub(crate) const PLAUSIBLE_HZ: core::ops::RangeInclusive<u64> = 100_000_000..=10_000_000_000;

/// The time stamp counter of this CPU. The instruction is not serializing: it does not matter here whether neighboring
/// instructions are counted.
#[inline(always)]
pub fn read() -> u64 {
    #[cfg(not(miri))]
    {
        // SAFETY: RDTSC exists on every x86_64 CPU and has no effect on memory. CR4.TSD cannot forbid it here, because
        // it restricts only privilege levels 1 to 3.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(miri)]
    {
        use core::sync::atomic::{AtomicU64, Ordering};
        static TICKS: AtomicU64 = AtomicU64::new(0);
        TICKS.fetch_add(100_000, Ordering::Relaxed)
    }
}
