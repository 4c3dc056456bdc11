//! Whether a word is 0. In: the word. Out: the answer, as a branch. Runs in: any.

use core::sync::atomic::{AtomicU64, Ordering};

/// Whether the word is 0: a load and a branch.
#[inline(always)]
pub(crate) fn is(word: &AtomicU64) -> bool {
    word.load(Ordering::Relaxed) == 0
}
