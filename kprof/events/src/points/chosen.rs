//! Which hits of a point get a record: every Nth, or by chance, in proportion to their weight.
//!
//! In: the state of the point, the weight of a hit, random bits. Out: whether this hit is chosen. Runs in: a hit, with
//! interrupts off. Chosen by weight (Poisson sampling): marks lie on the sum of all weights, at distances that are
//! exponentially distributed with the mean W; a hit is chosen if at least one mark lies in its weight. So a hit of
//! weight w is chosen with the probability 1 - e^(-w/W), whatever the others weigh, and w / (1 - e^(-w/W)) for each
//! chosen hit is an unbiased estimate of the sum.

use core::sync::atomic::{AtomicU64, Ordering};
use kprof::format::point::PointState;

/// How far the next chosen hit of a point is on one CPU.
pub(crate) struct Distance {
    /// Hits, or weight.
    left: AtomicU64,
    /// The state that `left` is for; another one begins anew.
    state: AtomicU64,
}

/// What is left, if that is not known: the next hit draws again.
pub(crate) const UNKNOWN: u64 = u64::MAX;

impl Distance {
    pub(crate) const fn new() -> Self {
        Self { left: AtomicU64::new(0), state: AtomicU64::new(0) }
    }

    /// The state for which a hit was chosen last, as a word.
    pub(crate) fn state_word(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    /// Says that hits are counted in a state in which none is chosen.
    pub(crate) fn choose_none(&self, state: u64) {
        self.state.store(state, Ordering::Relaxed);
    }

    /// The weight up to the next chosen hit.
    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Sets the weight up to the next chosen hit, which somebody else has counted down.
    pub(crate) fn set_left(&self, left: u64) {
        self.left.store(left, Ordering::Relaxed);
    }

    /// Whether a hit of this weight is chosen in this state. One caller at a time.
    pub(crate) fn is_reached(&self, state: PointState, weight: u64, mut random: impl FnMut() -> u64) -> bool {
        let mut next = || match state {
            PointState::Every(hits) => hits,
            PointState::ByWeight(mean) => exponential(random(), mean),
            PointState::Off | PointState::Count | PointState::Record => 1,
        };
        let is_new = self.state.load(Ordering::Relaxed) != state.encode();
        let left = match self.left.load(Ordering::Relaxed) {
            left if !is_new && left != UNKNOWN => left,
            _ => next(),
        };
        let is_reached = match state {
            PointState::Every(_) => left <= 1,
            PointState::ByWeight(_) => left < weight,
            PointState::Off | PointState::Count | PointState::Record => true,
        };
        let step = if matches!(state, PointState::ByWeight(_)) { weight } else { 1 };
        self.left.store(if is_reached { next() } else { left.saturating_sub(step) }, Ordering::Relaxed);
        if is_new {
            self.state.store(state.encode(), Ordering::Relaxed);
        }
        is_reached
    }
}

/// Bits after the binary point of a logarithm.
const FRACTION: u32 = 24;
/// The natural logarithm of 2, with as many bits.
const LN_2: u128 = 11_629_080;

/// A distance with the exponential distribution of this mean, rounded down, from 64 uniform bits: the mean times the
/// negative natural logarithm of a number between 0 and 1. In integers, because a kernel saves no floating point
/// registers.
fn exponential(random: u64, mean: u64) -> u64 {
    let random = random | 1;
    let zeros = random.leading_zeros();
    // The binary logarithm of a mantissa from 1 to 2, bit by bit: squaring doubles the logarithm.
    let (mut mantissa, mut fraction) = (u128::from(random << zeros), 0_u128);
    for _ in 0..FRACTION {
        let square = mantissa.wrapping_mul(mantissa) >> 63;
        let is_two = square >> 64;
        fraction = fraction << 1 | is_two;
        mantissa = square >> is_two;
    }
    let logarithm = (u128::from(zeros + 1) << FRACTION).saturating_sub(fraction);
    // At most 64 * 2^24 * 2^24 * 2^64.
    let product = u128::from(mean).wrapping_mul(logarithm).wrapping_mul(LN_2) >> (2 * FRACTION);
    u64::try_from(product).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kprof::internals::Intervals;

    #[test]
    fn one_of_n_is_chosen_and_a_new_choice_begins_anew() {
        let distance = Distance::new();
        let chosen = |state, hits| (0..hits).filter(|_| distance.is_reached(state, 5, || unreachable!())).count();
        assert_eq!(chosen(PointState::Every(1000), 999), 0);
        assert_eq!(chosen(PointState::Every(1000), 2), 1);
        assert_eq!(chosen(PointState::Every(10), 9), 0, "the 999 hits that were left do not count");
        assert_eq!(chosen(PointState::Every(10), 91), 10);
        assert_eq!(chosen(PointState::Record, 3), 3);
        assert_eq!(chosen(PointState::Every(1), 3), 3);
    }

    #[test]
    #[cfg_attr(miri, ignore = "pure arithmetic, many times")]
    fn hits_chosen_by_weight_estimate_the_sum_without_a_bias() {
        // Hits of very different weights; the estimate of each kind's sum must be right, not only that of all.
        const MEAN: u64 = 4096;
        const ROUNDS: u64 = 40_000;
        let (distance, mut numbers) = (Distance::new(), Intervals::new(7));
        let weights = [1_u64, 100, 4096, 20_000];
        let mut estimates = [0.0; 4];
        for _ in 0..ROUNDS {
            for (weight, estimate) in weights.into_iter().zip(&mut estimates) {
                if distance.is_reached(PointState::ByWeight(MEAN), weight, || numbers.word()) {
                    *estimate += weight as f64 / -(-(weight as f64) / MEAN as f64).exp_m1();
                }
            }
        }
        for (weight, estimate) in weights.into_iter().zip(estimates) {
            let chance = -(-(weight as f64) / MEAN as f64).exp_m1();
            let truth = (weight * ROUNDS) as f64;
            // Five standard deviations of a sum of independent draws.
            let bound = 5.0 * (ROUNDS as f64 * (1.0 - chance) / chance).sqrt() * weight as f64;
            assert!((estimate - truth).abs() <= bound + 1.0, "weight {weight}: {estimate} for {truth}, bound {bound}");
        }
    }

    #[test]
    fn weight_0_is_never_chosen_by_weight() {
        let (distance, mut numbers) = (Distance::new(), Intervals::new(1));
        assert!((0..100).all(|_| !distance.is_reached(PointState::ByWeight(1), 0, || numbers.word())));
    }

    #[test]
    fn distances_are_exponential_at_the_ends_too() {
        assert_eq!(exponential(u64::MAX, 1 << 20), 0);
        assert_eq!([0, 1].map(|random| exponential(random, 1000)), [44_361; 2], "64 ln 2 means");
        // The median is ln 2 means.
        assert_eq!(exponential(1 << 63, 1_000_000), 693_147);
        assert_eq!(exponential(0, u64::MAX), u64::MAX);
    }
}
