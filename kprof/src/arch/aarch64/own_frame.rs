//! The frame of the function that asks: the frame pointer, x29. In: nothing. Out: its value. Runs in: any but NMI. If
//! the kernel is compiled without frame pointers, it is any value, and the walk from it ends at once.

/// The frame pointer of the function that this is inlined into.
#[inline(always)]
#[cfg(target_arch = "aarch64")]
pub fn pointer() -> u64 {
    #[cfg(not(miri))]
    {
        let frame: u64;
        // SAFETY: reads a register.
        unsafe { core::arch::asm!("mov {}, x29", out(reg) frame, options(nomem, nostack, preserves_flags)) };
        frame
    }
    #[cfg(miri)]
    0
}
