//! Reads the sampled CPU's stacks and text directly from memory.
//!
//! In: addresses that the kernel declared. Out: words. Runs in: NMI. No address is checked here; the unwinder has
//! checked it.

use super::Memory;

/// The memory of the machine that this code runs on.
#[derive(Clone, Copy)]
pub struct Direct;

impl Memory for Direct {
    #[inline(always)]
    unsafe fn stack(&self, address: u64) -> u64 {
        // SAFETY: the caller promises that the word is aligned and inside a stack that the kernel declared mapped. It
        // is a stack of this CPU, and the code on it is interrupted, so the word does not change while it is read.
        // Volatile, because the compiler does not know of this memory.
        unsafe { (address as *const u64).read_volatile() }
    }

    #[inline(always)]
    unsafe fn stack_unaligned(&self, address: u64) -> u64 {
        // SAFETY: as in `stack`, except for the alignment.
        unsafe { (address as *const u64).read_unaligned() }
    }

    #[inline(always)]
    unsafe fn code(&self, address: u64) -> u64 {
        // SAFETY: the caller promises that these eight bytes are kernel text, which is mapped and readable.
        unsafe { (address as *const u64).read_unaligned() }
    }
}
