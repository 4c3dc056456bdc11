//! Gaps: parts of time with ticks that have no sample. Stage: read, part of its second result.
//!
//! In: counts that the readers have computed from counters. Out: the same counts, added up or divided. No count is
//! rounded away.

/// Ticks without a sample, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsampled {
    /// Filtered: user code.
    pub user: u64,
    /// Filtered: the idle task.
    pub idle: u64,
    /// Filtered: kernel code.
    pub kernel: u64,
    /// Coalesced.
    pub coalesced: u64,
    /// Lost before they reached the file.
    pub lost: u64,
}

impl Unsampled {
    /// The sum of all reasons.
    pub fn sum(&self) -> u64 {
        let Self { user, idle, kernel, coalesced, lost } = *self;
        [user, idle, kernel, coalesced, lost].into_iter().fold(0, u64::saturating_add)
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        let Self { user, idle, kernel, coalesced, lost } = *other;
        let counts = [&mut self.user, &mut self.idle, &mut self.kernel, &mut self.coalesced, &mut self.lost];
        for (count, more) in counts.into_iter().zip([user, idle, kernel, coalesced, lost]) {
            *count = count.saturating_add(more);
        }
    }

    /// Takes out `ticks` of them, or all if there are fewer, of each reason in proportion.
    pub fn take(&mut self, ticks: u64) -> Self {
        let Self { user, idle, kernel, coalesced, lost } = self;
        // Damaged counters can be so large that their sum does not fit into 64 bits.
        let mut left: u128 = [&*user, idle, kernel, coalesced, lost].into_iter().map(|count| u128::from(*count)).sum();
        let mut rest = left.min(ticks.into()) as u64;
        let mut part = |count: &mut u64| {
            let taken = (u128::from(rest) * u128::from(*count) / left.max(1)) as u64;
            left -= u128::from(*count);
            rest -= taken;
            *count -= taken;
            taken
        };
        Self { user: part(user), idle: part(idle), kernel: part(kernel), coalesced: part(coalesced), lost: part(lost) }
    }
}

/// A part of one CPU's time with ticks that have no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Index of the boot.
    pub boot: usize,
    /// The CPU.
    pub cpu: u32,
    /// TSC at its start, if known.
    pub from: Option<u64>,
    /// TSC at its end, if known.
    pub to: Option<u64>,
    /// Ticks in it without a sample.
    pub ticks: Unsampled,
    /// Samples that were delivered but cannot be read from the file, because it is damaged or parts were removed.
    pub missing: u64,
}

impl Gap {
    /// Samples that are not in the file: lost or missing.
    pub fn samples(&self) -> u64 {
        self.ticks.lost.saturating_add(self.missing)
    }

    /// Whether there is anything in it.
    pub fn is_any(&self) -> bool {
        *self != Self { ticks: Unsampled::default(), missing: 0, ..*self }
    }
}

/// All ticks of some CPUs in some time, by what they hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Samples by their state ([`crate::state::State`]).
    pub states: [u64; 5],
    /// Ticks without a sample. What cannot be read from the file is lost.
    pub unsampled: Unsampled,
    /// Of which CPUs and time, for people.
    pub of: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_in_proportion_and_nothing_is_rounded_away() {
        let whole = Unsampled { user: 30, idle: 60, kernel: 0, coalesced: 0, lost: 9 };
        for ticks in 0..=100 {
            let mut rest = whole;
            let part = rest.take(ticks);
            assert_eq!(part.sum(), ticks.min(99));
            assert!((part.idle as i64 - 2 * part.user as i64).abs() <= 3, "{part:?}");
            rest.add(&part);
            assert_eq!(rest, whole);
        }
        let mut huge = Unsampled { user: u64::MAX, idle: u64::MAX, kernel: 0, coalesced: 1, lost: 0 };
        assert_eq!(huge.take(u64::MAX).sum(), u64::MAX);
    }
}
