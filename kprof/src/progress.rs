//! The progress of a CPU's handler in one word: the newest tick taken, and whether a handler is running.
//!
//! In: the handler's steps (`handler/progress.rs`). Out: both values, read at one moment. Runs in: written in NMIs on
//! the CPU itself (with the trigger `published`: on the sampler CPU); read anywhere.

use crate::account::Counter;

/// The bits of the state.
pub(crate) const STATE: u64 = 3;
/// A handler has entered, and has yet to take one tick.
pub(crate) const ENTERED: u64 = 1;
/// A handler has taken its tick, if there was one.
pub(crate) const TAKEN: u64 = 2;
/// The value of one tick in the word.
pub(crate) const TICK: u64 = 4;

/// The progress word.
#[repr(transparent)]
pub struct Progress(pub(crate) Counter);

impl Progress {
    pub(crate) const fn new() -> Self {
        Self(Counter::new())
    }

    /// The newest tick taken.
    #[inline(always)]
    pub fn seen(&self) -> u64 {
        self.0.get() / TICK
    }

    /// Whether a handler is running.
    #[inline(always)]
    pub(crate) fn is_busy(&self) -> bool {
        self.0.get() & STATE != 0
    }

    /// A number that changes with each tick taken; `None` while a handler runs. Whoever reads it also sees everything
    /// that was counted before.
    pub(crate) fn moment(&self) -> Option<u64> {
        Some(self.0.get_acquire()).filter(|word| word & STATE == 0)
    }

    /// For `add_in_one`, on processors that it has no single instruction for.
    #[allow(dead_code, reason = "which way is taken depends on the processor")]
    pub(crate) fn fetch_add(&self, number: u64) {
        self.0.fetch_add(number);
    }
}
