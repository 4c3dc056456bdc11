//! Turns interrupts off while a lock is held, so that no interrupt handler or preempting thread waits for a lock that
//! its own CPU holds.
//!
//! In: a closure. Out: its result. Runs in: ordinary kernel code, never in an NMI. A program of EL0 must not touch
//! DAIF, and EL0 cannot ask at which level it runs. So a kernel is what is compiled for a target without an operating
//! system. FIQs stay as they are: they are this processor's NMIs.

/// Runs `work` with IRQs masked, then restores the mask.
#[inline]
pub fn without<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(all(target_arch = "aarch64", target_os = "none"))]
    {
        let daif: u64;
        // SAFETY: a kernel may mask IRQs (bit 1 of the immediate), and the mask is restored below.
        unsafe { core::arch::asm!("mrs {}, daif", "msr daifset, #2", out(reg) daif, options(nostack)) };
        let result = work();
        // SAFETY: the value that it had.
        unsafe { core::arch::asm!("msr daif, {}", in(reg) daif, options(nostack)) };
        result
    }
    #[cfg(not(all(target_arch = "aarch64", target_os = "none")))]
    work()
}

/// Turns interrupts off. Returns the state before, for [`restore`].
#[inline(always)]
pub fn off() -> u64 {
    #[cfg(all(target_arch = "aarch64", target_os = "none"))]
    {
        let state: u64;
        // SAFETY: a kernel may turn interrupts off, and `restore` undoes it.
        unsafe { core::arch::asm!("mrs {}, daif", "msr daifset, #2", out(reg) state, options(nostack)) };
        state
    }
    #[cfg(not(all(target_arch = "aarch64", target_os = "none")))]
    0
}

/// Restores the state before [`off`].
#[inline(always)]
pub fn restore(state: u64) {
    #[cfg(all(target_arch = "aarch64", target_os = "none"))]
    // SAFETY: the state that it had.
    unsafe {
        core::arch::asm!("msr daif, {}", in(reg) state, options(nostack))
    };
    #[cfg(not(all(target_arch = "aarch64", target_os = "none")))]
    let _ = state;
}
