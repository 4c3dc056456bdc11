//! The interrupt mask, bit I of DAIF.
//!
//! In: nothing, or the state before. Out: the state before. Runs in: ordinary kernel code, never in an NMI. A program
//! of EL0 must not touch DAIF, and EL0 cannot ask at which level it runs. So a kernel is what is compiled for a target
//! without an operating system. FIQs stay as they are: they are this processor's NMIs.

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
