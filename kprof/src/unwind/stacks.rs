//! The stacks that one walk has left. A chain that returns to one of them is a loop.
//!
//! In: each change of stack. Out: whether it may be made. Runs in: NMI. A walk changes stacks at most `MAX` times, so
//! the search is short.

use crate::arch::record;
use crate::format::marker::TruncationReason;
use core::ops::Range;

/// The greatest frame pointer whose two words still lie in the range.
#[cfg(not(kprof_break_bounds))]
#[inline(always)]
pub(super) fn bound(range: &Range<u64>) -> u64 {
    record::highest(range)
}

/// The deliberately broken build has no upper bound, to prove that the storm test notices.
#[cfg(kprof_break_bounds)]
#[inline(always)]
pub(super) fn bound(_range: &Range<u64>) -> u64 {
    u64::MAX - 15
}

/// How many times one walk may change from one stack to another.
const MAX: usize = 8;

/// The start addresses of the stacks that were left.
#[derive(Debug)]
pub(crate) struct Stacks {
    left: [u64; MAX],
    count: usize,
}

impl Stacks {
    /// No stack has been left yet.
    pub(crate) const fn new() -> Self {
        Self { left: [0; MAX], count: 0 }
    }

    /// Records a change from one stack to another, or returns why it is not allowed.
    pub(super) fn change(&mut self, from: &Range<u64>, to: &Range<u64>) -> Result<(), TruncationReason> {
        if from.start == to.start || self.left.iter().take(self.count).any(|left| *left == to.start) {
            return Err(TruncationReason::Loop);
        }
        let place = self.left.get_mut(self.count).ok_or(TruncationReason::Range)?;
        *place = from.start;
        self.count = self.count.wrapping_add(1);
        Ok(())
    }
}
