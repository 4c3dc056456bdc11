//! The cycle CSR, by which the self cost is measured where the clock is too coarse for this (the RISC-V
//! Instruction Set Manual, volume I, Zicntr; volume II, 3.1.11, mcounteren). In: nothing. Out: cycles of this CPU. Runs
//! in: any, NMI included. Supervisor mode cannot ask whether it may read the counter: a read that machine mode does not
//! allow is an illegal instruction. So the kernel says that it may.

/// Whether this processor has a cycle counter besides its clock.
pub(crate) const EXISTS: bool = true;

/// Whether the counter counts, on this CPU (mcountinhibit can stop it). The kernel has said that it can be read.
#[cfg(target_arch = "riscv64")]
pub(crate) fn is_counting() -> bool {
    crate::arch::moves(read)
}

/// The count of now.
#[inline(always)]
#[cfg(target_arch = "riscv64")]
pub(crate) fn read() -> u64 {
    let count: u64;
    // SAFETY: reads a register. It is used only if the kernel has said that it can be read.
    unsafe { core::arch::asm!("rdcycle {}", out(reg) count, options(nostack)) };
    count
}
