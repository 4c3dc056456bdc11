//! The virtual count of the generic timer, CNTVCT_EL0; CNTFRQ_EL0 has its frequency (Arm Architecture Reference Manual,
//! D11.2). In: nothing. Out: ticks. Runs in: any, NMI included. All CPUs read the same count. It is coarse: often one
//! tick for 16 ns or more.

/// Frequencies that it may have.
pub(crate) const PLAUSIBLE_HZ: core::ops::RangeInclusive<u64> = 1_000_000..=10_000_000_000;

/// The count of now. The read is not ordered with neighboring instructions, which does not matter here.
#[inline(always)]
#[cfg(target_arch = "aarch64")]
pub fn read() -> u64 {
    let count: u64;
    // SAFETY: reads a register, which EL1 can always read.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags)) };
    count
}
