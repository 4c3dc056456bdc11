//! The time CSR, which counts at a constant frequency (the RISC-V Instruction Set Manual, volume I, Zicntr). In:
//! nothing. Out: ticks. Runs in: any, NMI included. All CPUs read the same count. It is coarse: often one tick for 100
//! ns.

/// Frequencies that it may have.
pub(crate) const PLAUSIBLE_HZ: core::ops::RangeInclusive<u64> = 500_000..=10_000_000_000;

/// The count of now.
#[inline(always)]
#[cfg(target_arch = "riscv64")]
pub fn read() -> u64 {
    let count: u64;
    // SAFETY: reads a register. Firmware that does not allow it emulates the instruction.
    unsafe { core::arch::asm!("rdtime {}", out(reg) count, options(nomem, nostack, preserves_flags)) };
    count
}
