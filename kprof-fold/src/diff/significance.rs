//! Decides whether a change is more than chance. Stage: diff.
//!
//! In: counts of samples on both sides. Out: the change in share with a confidence interval.
//!
//! Method: samples are treated as independent draws. The interval of the difference of two shares is Newcombe's
//! (Statistics in Medicine 17, 1998, method 10), built from two Wilson score intervals. It is valid for small counts,
//! where the usual normal interval is not, but not exact: with few samples on one side and many on the other it
//! promises too much. So no change is called more than chance that the exact test ([`super::exact`]) does not find, and
//! then 0 is in the interval. If each side has several runs, the spread between them widens the interval
//! ([`super::spread`]), and Student's distribution takes the place of the normal one.

use super::exact;
use super::spread::Spread;
use statrs::function::{beta::beta_reg, erf::erfc};

/// Below this chance the exact test does not decide.
const MIN_EXACT: f64 = 1e-14;

/// A value with its interval, in shares (0.01 is one percent of all samples).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// The estimate.
    pub middle: f64,
    /// Upper end.
    pub high: f64,
}

/// Samples of a function and all samples on both sides, pooled over the runs of each side, with their spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// OLD.
    pub old: (u64, f64),
    /// NEW.
    pub new: (u64, f64),
    /// The spread between runs.
    pub spread: Spread,
}

impl Change {
    /// The change with its confidence interval. The true change is outside of the interval with the probability
    /// `chance`, half of it on each side.
    pub fn interval(&self, chance: f64) -> Interval {
        let Interval { low, middle, high } = self.at(quantile(chance, self.spread.freedom) * self.spread.factor.sqrt());
        if self.spread(exact::test(self.old, self.new).changed) <= chance {
            return Interval { low, middle, high };
        }
        Interval { low: low.min(0.0), middle, high: high.max(0.0) }
    }

    /// The chance of a share that grew (or shrank) as much or more, by the exact test.
    pub fn one_sided(&self, grows: bool) -> f64 {
        let exact = exact::test(self.old, self.new);
        // As the chance on both sides, which the spread widens.
        self.spread(2.0 * if grows { exact.grew } else { exact.shrank }) / 2.0
    }

    /// A chance of independent samples as it is with the spread between runs.
    fn spread(&self, chance: f64) -> f64 {
        match self.spread {
            // Newcombe's interval decides where the numbers are large enough for so small a chance.
            _ if chance < MIN_EXACT => 0.0,
            Spread { factor: 1.0, freedom: f64::INFINITY } => chance,
            Spread { factor, freedom } if chance < 0.999 => {
                tails(quantile(chance, f64::INFINITY) / factor.sqrt(), freedom)
            }
            _ => chance,
        }
    }

    fn at(&self, z: f64) -> Interval {
        difference(Share::of_counts(self.old), Share::of_counts(self.new), z)
    }

    /// The largest chance at which the interval does not contain 0: the p-value of a test against no change.
    pub fn p_value(&self) -> f64 {
        let interval =
            clear_until(|z| self.at(z)).map_or(1.0, |z| tails(z / self.spread.factor.sqrt(), self.spread.freedom));
        interval.max(self.spread(exact::test(self.old, self.new).changed))
    }
}

/// The largest number of standard deviations at which the interval does not contain 0; `None` if it always does.
pub(super) fn clear_until(interval: impl Fn(f64) -> Interval) -> Option<f64> {
    let is_clear = |z: f64| {
        let interval = interval(z);
        interval.low > 0.0 || interval.high < 0.0
    };
    let (mut low, mut high) = (0.0, 64.0);
    if !is_clear(f64::MIN_POSITIVE) {
        return None;
    }
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if is_clear(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

/// A share that was estimated from draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The estimate, 0 to 1.
    pub share: f64,
    /// From how many independent draws; infinite if the share is exact.
    pub draws: f64,
    /// The size of the whole, by which the share is multiplied.
    pub whole: f64,
}

impl Share {
    fn of_counts((part, draws): (u64, f64)) -> Self {
        Self { share: part as f64 / draws.max(1.0), draws, whole: 1.0 }
    }
}

/// NEW minus OLD.
pub(super) fn difference(old: Share, new: Share, z: f64) -> Interval {
    let ends = |side: Share| {
        let (low, high) = wilson(side, z);
        [low, side.share, high].map(|end| end * side.whole)
    };
    let ([low_old, p_old, high_old], [low_new, p_new, high_new]) = (ends(old), ends(new));
    let middle = p_new - p_old;
    let low = middle - (p_new - low_new).hypot(high_old - p_old);
    let high = middle + (high_new - p_new).hypot(p_old - low_old);
    Interval { low, middle, high }
}

/// Wilson's score interval of a share.
fn wilson(Share { share: p, draws: n, .. }: Share, z: f64) -> (f64, f64) {
    if n == 0.0 {
        return (0.0, 1.0);
    }
    if n.is_infinite() {
        return (p, p);
    }
    let z2 = z * z;
    let center = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    ((center - half).max(0.0), (center + half).min(1.0))
}

/// The chance that a variable of Student's distribution is further than `t` from 0, on either side. With infinite
/// freedom that is the normal distribution.
pub(super) fn tails(t: f64, freedom: f64) -> f64 {
    if freedom > 1e6 {
        return erfc(t / std::f64::consts::SQRT_2);
    }
    beta_reg(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// The distance from 0 that a variable of Student's distribution exceeds with this chance, on either side together.
pub fn quantile(chance: f64, freedom: f64) -> f64 {
    let chance = chance.clamp(1e-15, 0.999);
    let (mut low, mut high) = (0.0f64, 1.0f64);
    while tails(high, freedom) > chance && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if tails(middle, freedom) > chance { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANCE: Spread = Spread { factor: 1.0, freedom: f64::INFINITY };

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (chance, freedom, expected) in [
            (0.05, f64::INFINITY, 1.959_963_985),
            (0.01, f64::INFINITY, 2.575_829_304),
            (1e-6, f64::INFINITY, 4.891_638_475),
            (0.05, 4.0, 2.776_445_105),
            (0.01, 10.0, 3.169_272_667),
            (0.001, 1.0, 636.619_248_77),
        ] {
            let found = quantile(chance, freedom);
            assert!((found - expected).abs() < 1e-7 * expected.max(1.0), "{chance} {freedom}: {found}");
        }
    }

    #[test]
    fn newcombes_own_example_comes_out() {
        // Newcombe 1998, table II, row a: 56/70 against 48/80, 95 %, method 10: 0.0524 to 0.3339.
        let change = Change { old: (48, 80.0), new: (56, 70.0), spread: CHANCE };
        let interval = change.interval(0.05);
        assert!((interval.low - 0.0524).abs() < 5e-5 && (interval.high - 0.3339).abs() < 5e-5, "{interval:?}");
    }

    #[test]
    fn the_p_value_is_the_chance_at_which_the_interval_just_reaches_zero() {
        for spread in [CHANCE, Spread { factor: 2.0, freedom: 4.0 }] {
            for (old, new) in [((48, 80.0), (56, 70.0)), ((0, 100.0), (9, 100.0)), ((500, 1000.0), (470, 1000.0))] {
                let change = Change { old, new, spread };
                let p = change.p_value();
                let is_clear = |chance| {
                    let interval = change.interval(chance);
                    interval.low > 0.0 || interval.high < 0.0
                };
                assert!(is_clear(p * 1.001) && !is_clear(p * 0.999), "{change:?} {p}");
            }
        }
        assert_eq!(Change { old: (5, 100.0), new: (5, 100.0), spread: CHANCE }.p_value(), 1.0);
    }

    #[test]
    fn nothing_counted_says_nothing() {
        let change = Change { old: (0, 0.0), new: (0, 0.0), spread: CHANCE };
        let interval = change.interval(0.05);
        assert!(interval.low < 0.0 && interval.high > 0.0 && change.p_value() == 1.0);
    }
}
