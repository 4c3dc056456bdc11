//! Interrupts off for the length of a lock, so that no interrupt handler or preempting thread waits for its own CPU.
//!
//! In: a closure. Out: its result. Context: ordinary kernel code, never NMI. On hosts (tests) there is nothing to turn off.

/// Runs `work` with interrupts off and puts the flag back as it was.
#[inline]
pub(crate) fn without<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_os = "none")]
    {
        let flags: u64;
        // SAFETY: kernel code runs at privilege level 0 and may clear IF; pushfq and pop are balanced.
        unsafe { core::arch::asm!("pushfq", "pop {}", "cli", out(reg) flags) };
        let result = work();
        if flags & 1 << 9 != 0 {
            // SAFETY: IF was set before, so the kernel expects interrupts here.
            unsafe { core::arch::asm!("sti") };
        }
        result
    }
    #[cfg(not(target_os = "none"))]
    work()
}
