//! The interrupt flag, SIE of `sstatus`.
//!
//! In: nothing, or the state before. Out: the state before. Runs in: ordinary kernel code, never in an NMI. A program
//! of user mode must not touch `sstatus`, and it cannot ask in which mode it runs. So a kernel is what is compiled for
//! a target without an operating system.

/// Turns interrupts off. Returns the state before, for [`restore`].
#[inline(always)]
pub fn off() -> u64 {
    #[cfg(all(target_arch = "riscv64", target_os = "none"))]
    {
        let state: u64;
        // SAFETY: a kernel may turn interrupts off, and `restore` undoes it.
        unsafe { core::arch::asm!("csrrci {}, sstatus, 2", out(reg) state, options(nostack)) };
        state
    }
    #[cfg(not(all(target_arch = "riscv64", target_os = "none")))]
    0
}

/// Restores the state before [`off`].
#[inline(always)]
pub fn restore(state: u64) {
    #[cfg(all(target_arch = "riscv64", target_os = "none"))]
    // SAFETY: the state that it had.
    unsafe {
        core::arch::asm!("csrs sstatus, {}", in(reg) state & 2, options(nostack))
    };
    #[cfg(not(all(target_arch = "riscv64", target_os = "none")))]
    let _ = state;
}
