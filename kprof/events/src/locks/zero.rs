//! Whether a word is 0. In: the word. Out: the answer, as a branch. Runs in: any.
//!
//! On x86_64 the compiler loads an atomic word into a register and tests it there, which is three instructions with the
//! branch. A volatile read it compares in memory, which is two. Rust's documentation calls a volatile read beside an
//! atomic write a data race; LLVM, which compiles both, says that its result is what the processor makes of it. Linux's
//! `READ_ONCE` rests on the same. So only kernels read it so: in programs (tests, Miri, sanitizers) the read is atomic.
//!
//! It is one instruction in each release of a lock that nobody waits for. Measured by `cargo xtask bench kernel
//! --filter locks`, where single readings vary by one: in a function that calls nothing a lock costs 5, 6 and 7
//! instructions more with the atomic read, and 4, 5, 5 and 5 with this one; 6 are allowed. If a compiler compares an
//! atomic word in memory itself, the volatile read can go.

use core::sync::atomic::AtomicU64;
#[cfg(any(miri, not(all(target_arch = "x86_64", target_os = "none"))))]
use core::sync::atomic::Ordering;

/// Whether the word is 0: a comparison and a branch.
#[inline(always)]
pub(super) fn is(word: &AtomicU64) -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "none", not(miri)))]
    {
        // SAFETY: the word is aligned and readable. The processor reads eight aligned bytes at once (SDM volume 3,
        // 10.1.1), so this is some value that was stored, as of a relaxed load.
        unsafe { word.as_ptr().read_volatile() == 0 }
    }
    #[cfg(any(miri, not(all(target_arch = "x86_64", target_os = "none"))))]
    {
        word.load(Ordering::Relaxed) == 0
    }
}
