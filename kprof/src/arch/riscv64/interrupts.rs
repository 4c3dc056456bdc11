//! Turns interrupts off while a lock is held, so that no interrupt handler or preempting thread waits for a lock that
//! its own CPU holds.
//!
//! In: a closure. Out: its result. Runs in: ordinary kernel code, never in an NMI. A program of user mode must not
//! touch `sstatus`, and it cannot ask in which mode it runs. So a kernel is what is compiled for a target without an
//! operating system.

/// Runs `work` with interrupts off, then restores the flag.
#[inline]
pub fn without<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(all(target_arch = "riscv64", target_os = "none"))]
    {
        let status: u64;
        // SAFETY: a kernel may clear SIE (bit 1), and the flag is restored below.
        unsafe { core::arch::asm!("csrrci {}, sstatus, 2", out(reg) status, options(nostack)) };
        let result = work();
        // SAFETY: sets only the flag, and only if it was set before.
        unsafe { core::arch::asm!("csrs sstatus, {}", in(reg) status & 2, options(nostack)) };
        result
    }
    #[cfg(not(all(target_arch = "riscv64", target_os = "none")))]
    work()
}

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
