//! Decides whether a change is more than chance. Stage: diff.
//!
//! In: counts of samples on both sides. Out: the change in share with a confidence interval.
//!
//! Method: samples are treated as independent draws. The interval of the difference of two shares is Newcombe's
//! (Statistics in Medicine 17, 1998, method 10), built from two Wilson score intervals. It is valid for small counts,
//! where the usual normal interval is not. If each side has several runs, the spread between them widens the interval
//! ([`super::spread`]), and Student's distribution takes the place of the normal one.

use super::spread::Spread;
use statrs::function::{beta::beta_reg, erf::erfc};

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
        difference(self.old, self.new, quantile(chance, self.spread.freedom) * self.spread.factor.sqrt())
    }

    /// The largest chance at which the interval does not contain 0: the p-value of a test against no change.
    pub fn p_value(&self) -> f64 {
        let is_clear = |z: f64| {
            let interval = difference(self.old, self.new, z);
            interval.low > 0.0 || interval.high < 0.0
        };
        let (mut low, mut high) = (0.0, 64.0);
        if !is_clear(f64::MIN_POSITIVE) {
            return 1.0;
        }
        for _ in 0..50 {
            let middle = f64::midpoint(low, high);
            if is_clear(middle) { low = middle } else { high = middle }
        }
        tails(low / self.spread.factor.sqrt(), self.spread.freedom)
    }
}

/// NEW minus OLD; each is given as (samples of the function, all samples).
fn difference(old: (u64, f64), new: (u64, f64), z: f64) -> Interval {
    let share = |(part, whole): (u64, f64)| part as f64 / whole.max(1.0);
    let (p_old, p_new) = (share(old), share(new));
    let ((low_old, high_old), (low_new, high_new)) = (wilson(old, z), wilson(new, z));
    let middle = p_new - p_old;
    let low = middle - (p_new - low_new).hypot(high_old - p_old);
    let high = middle + (high_new - p_new).hypot(p_old - low_old);
    Interval { low, middle, high }
}

/// Wilson's score interval of a share.
fn wilson((part, whole): (u64, f64), z: f64) -> (f64, f64) {
    if whole == 0.0 {
        return (0.0, 1.0);
    }
    let (n, p, z2) = (whole, part as f64 / whole, z * z);
    let center = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    ((center - half).max(0.0), (center + half).min(1.0))
}

/// The chance that a variable of Student's distribution is further than `t` from 0, on either side. With infinite
/// freedom that is the normal distribution.
fn tails(t: f64, freedom: f64) -> f64 {
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
