//! How many words a walk on the fast path may fill after its first round: always whole rounds.
//!
//! In: a number of rounds, from the settings. Out: their words, of which the compiler knows that they are whole rounds,
//! which saves the handler an instruction. Runs in: written by ctl, read in NMIs.

use core::hint;
use core::sync::atomic::{AtomicU32, Ordering};

/// Words of whole rounds of `R` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounds<const R: usize>(u32);

impl<const R: usize> Rounds<R> {
    /// More than the free space of any ring.
    pub(crate) const TOO_MANY: Self = Self(u32::MAX / R as u32 * R as u32);

    /// That many rounds, or too many.
    pub(crate) fn new(rounds: u32) -> Self {
        rounds.checked_mul(R as u32).map_or(Self::TOO_MANY, Self)
    }

    /// One round more.
    #[inline(always)]
    pub(crate) fn and_one(self) -> Self {
        self.0.checked_add(R as u32).map_or(Self::TOO_MANY, Self)
    }

    #[inline(always)]
    pub(crate) fn words(self) -> u32 {
        // SAFETY: `new` and `TOO_MANY` multiply by `R`, and a cell holds only what one of them has made.
        unsafe { hint::assert_unchecked(self.0.is_multiple_of(R as u32)) };
        self.0
    }
}

/// A value that ctl changes while handlers read it.
pub(crate) struct RoundsCell<const R: usize>(AtomicU32);

impl<const R: usize> RoundsCell<R> {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(Rounds::<R>::TOO_MANY.0))
    }

    pub(crate) fn set(&self, rounds: Rounds<R>) {
        self.0.store(rounds.0, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Rounds<R> {
        Rounds(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_rounds_and_too_many_is_more_than_any_ring_has() {
        let cell = RoundsCell::<16>::new();
        assert_eq!(cell.get(), Rounds::TOO_MANY);
        assert_eq!(Rounds::<16>::TOO_MANY.words(), u32::MAX - 15);
        for (rounds, words) in [(0, 0), (1, 16), (3, 48)] {
            cell.set(Rounds::new(rounds));
            assert_eq!(cell.get().words(), words);
        }
        assert_eq!(Rounds::<16>::new(1 << 28), Rounds::TOO_MANY);
        assert_eq!([Rounds::<16>::new(2), Rounds::TOO_MANY].map(Rounds::and_one), [Rounds::new(3), Rounds::TOO_MANY]);
    }
}
