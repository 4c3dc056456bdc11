//! The frame of the function that asks: the frame pointer, s0. In: nothing. Out: its value. Runs in: any but NMI. If
//! the kernel is compiled without frame pointers, it is any value, and the walk from it ends at once.

/// The frame pointer of the function that this is inlined into.
#[inline(always)]
#[cfg(target_arch = "riscv64")]
pub fn pointer() -> u64 {
    #[cfg(not(miri))]
    {
        let frame: u64;
        // SAFETY: reads a register.
        unsafe { core::arch::asm!("mv {}, s0", out(reg) frame, options(nomem, nostack, preserves_flags)) };
        frame
    }
    #[cfg(miri)]
    0
}
