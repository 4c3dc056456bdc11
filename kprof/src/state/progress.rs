//! How far a CPU's handler is, in one word: the newest tick taken, and whether a handler is at work.
//!
//! In: the handler's steps (`handler/progress.rs`). Out: to whoever looks, both at one moment. Runs in: written in NMIs
//! on the CPU itself (with the trigger `published`: on the sampler CPU); read anywhere.

use super::account::Counter;

/// The bits of the state.
pub(crate) const STATE: u64 = 3;
/// A handler has entered, and has yet to take the one tick that is there.
pub(crate) const ENTERED: u64 = 1;
/// It has taken what it takes.
pub(crate) const TAKEN: u64 = 2;
/// One tick, in the word.
pub(crate) const TICK: u64 = 4;

/// The word.
#[repr(transparent)]
pub(crate) struct Progress(pub(crate) Counter);

impl Progress {
    pub(crate) const fn new() -> Self {
        Self(Counter::new())
    }

    /// The newest tick taken.
    #[inline(always)]
    pub(crate) fn seen(&self) -> u64 {
        self.0.get() / TICK
    }

    /// Whether a handler is at work.
    #[inline(always)]
    pub(crate) fn is_busy(&self) -> bool {
        self.0.get() & STATE != 0
    }

    /// A number that says whether a handler was at work, and is another one after each tick that was taken. What was
    /// counted before is seen by who sees it.
    pub(crate) fn moment(&self) -> Option<u64> {
        Some(self.0.get_acquire()).filter(|word| word & STATE == 0)
    }

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    pub(crate) fn fetch_add(&self, number: u64) {
        self.0.fetch_add(number);
    }
}
