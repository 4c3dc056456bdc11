//! The time stamp counter (Intel SDM volume 3, 18.17). In: nothing. Out: ticks. Runs in: any, NMI included.

/// The time stamp counter of this CPU. Not serialising: a neighbouring instruction more or less does not matter here.
#[inline(always)]
pub(crate) fn read() -> u64 {
    #[cfg(not(miri))]
    {
        // SAFETY: RDTSC exists on every x86_64 CPU and has no effect on memory. The kernel must not have set CR4.TSD
        // for its own privilege level, which is not possible: TSD binds levels 1 to 3 only.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(miri)]
    {
        use core::sync::atomic::{AtomicU64, Ordering};
        static TICKS: AtomicU64 = AtomicU64::new(0);
        TICKS.fetch_add(100_000, Ordering::Relaxed)
    }
}
