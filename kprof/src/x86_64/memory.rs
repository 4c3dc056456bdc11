//! Reads of the sampled CPU's stacks and text, as they lie in memory.
//!
//! In: addresses that the kernel declared. Out: words. Runs in: NMI. Nothing here checks an address: the unwinder does.

use crate::unwind::Memory;

/// The memory this code runs in.
#[derive(Clone, Copy)]
pub(crate) struct Direct;

impl Memory for Direct {
    #[inline(always)]
    unsafe fn stack(&self, address: u64) -> u64 {
        // SAFETY: the caller vouches that the word is aligned and inside a stack that the kernel declared mapped. It is
        // this CPU's own, and what runs on it is interrupted, so the word does not change while it is read; volatile
        // because the compiler knows nothing of it.
        unsafe { (address as *const u64).read_volatile() }
    }

    #[inline(always)]
    unsafe fn stack_unaligned(&self, address: u64) -> u64 {
        // SAFETY: as in `stack`, but for the alignment.
        unsafe { (address as *const u64).read_unaligned() }
    }

    #[inline(always)]
    unsafe fn code(&self, address: u64) -> u64 {
        // SAFETY: the caller vouches that these eight bytes are kernel text, which is mapped and readable.
        unsafe { (address as *const u64).read_unaligned() }
    }
}
