//! The interval to the next tick: uniform within ±25 % of the period, from a seed that is stored with the data.
//!
//! In: the period. Out: the next interval. Runs in: the sampler CPU. The generator is SplitMix64 (Steele, Lea, Flood
//! 2014): it has 64 bits of state, and every seed is good. It is written out here, and not taken from a crate that may
//! change its stream, because the same seed must give the same intervals on every machine.

/// A generator of intervals.
#[derive(Clone, Debug)]
pub struct Intervals {
    state: u64,
}

impl Intervals {
    /// Intervals that this seed decides.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The state; `new` with this value continues the sequence.
    pub const fn state(&self) -> u64 {
        self.state
    }

    /// The next interval, in the unit of `period`; exactly the period if `random` is off.
    pub(crate) fn next(&mut self, period: u64, random: bool) -> u64 {
        if !random {
            return period;
        }
        let span = period / 2;
        period - period / 4 + scale(self.word(), span + 1)
    }

    /// The next 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}

/// `word` scaled to `0..limit`: the upper half of the product. The probabilities of the values differ by less than the
/// fraction `limit / 2^64`, because 2^64 need not be a multiple of `limit`.
fn scale(word: u64, limit: u64) -> u64 {
    ((u128::from(word) * u128::from(limit)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The first outputs for seed 1234567, as published with the reference implementation.
        let mut intervals = Intervals::new(1_234_567);
        assert_eq!(intervals.word(), 6_457_827_717_110_365_317);
        assert_eq!(intervals.word(), 3_203_168_211_198_807_973);
    }

    #[test]
    #[cfg_attr(miri, ignore = "pure arithmetic, 100 000 times")]
    fn gaps_stay_within_a_quarter_and_average_to_the_period() {
        let (mut intervals, period, count) = (Intervals::new(42), 1_000_000, 100_000);
        let mut eighths = [0_u32; 8];
        let mut sum = 0;
        for _ in 0..count {
            let interval = intervals.next(period, true);
            assert!((750_000..=1_250_000).contains(&interval));
            sum += interval;
            eighths[((interval - 750_000) * 8 / 500_001) as usize] += 1;
        }
        // Standard error of the mean: 500000 / sqrt(12) / sqrt(100000) = 456; five of them.
        assert!((sum / count).abs_diff(period) < 2_300, "{}", sum / count);
        // Each eighth: 12500 expected, standard deviation 105; five of them.
        assert!(eighths.iter().all(|count| count.abs_diff(12_500) < 530), "{eighths:?}");
    }

    #[test]
    fn fixed_gaps_are_the_period_and_short_periods_do_not_reach_zero() {
        let mut intervals = Intervals::new(1);
        assert_eq!(intervals.next(17, false), 17);
        assert!((0..1000).all(|_| intervals.next(1, true) == 1));
    }
}
