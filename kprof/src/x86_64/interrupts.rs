//! Interrupts off for the length of a lock, so that no interrupt handler or preempting thread waits for its own CPU.
//!
//! In: a closure. Out: its result. Runs in: ordinary kernel code, never in an NMI. Whether there is anything to turn
//! off is asked of the CPU (the privilege level, SDM volume 3, 6.5): kernels have targets of all names, and tests run
//! as user programs.

/// Runs `work` with interrupts off and puts the flag back as it was.
#[inline]
pub(crate) fn without<R>(work: impl FnOnce() -> R) -> R {
    if !is_kernel() {
        return work();
    }
    let flags: u64;
    // SAFETY: code at privilege level 0, as was just seen, may clear IF; pushfq and pop are balanced.
    #[cfg(not(miri))]
    unsafe {
        core::arch::asm!("pushfq", "pop {}", "cli", out(reg) flags)
    };
    #[cfg(miri)]
    {
        flags = 0;
    }
    let result = work();
    if flags & 1 << 9 != 0 {
        // SAFETY: IF was set before, so the kernel expects interrupts here.
        #[cfg(not(miri))]
        unsafe {
            core::arch::asm!("sti")
        };
    }
    result
}

/// Whether this code runs at privilege level 0: the two lowest bits of CS.
pub(crate) fn is_kernel() -> bool {
    #[cfg(not(miri))]
    {
        let cs: u64;
        // SAFETY: reads a register.
        unsafe { core::arch::asm!("mov {}, cs", out(reg) cs, options(nomem, nostack, preserves_flags)) };
        cs & 3 == 0
    }
    #[cfg(miri)]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_program_is_no_kernel_and_its_work_is_done_all_the_same() {
        assert!(!is_kernel());
        assert_eq!(without(|| 7), 7);
    }
}
