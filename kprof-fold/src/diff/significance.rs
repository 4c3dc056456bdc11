//! Decides whether a change is more than chance. Stage: diff.
//!
//! In: counts of samples on both sides. Out: the change in share with a confidence interval.
//!
//! Method: samples are treated as independent draws. The interval of the difference of two shares is Newcombe's
//! (Statistics in Medicine 17, 1998, method 10), built from two Wilson score intervals. It is valid for small counts,
//! where the usual normal interval is not. If many functions are compared, the level of each one is corrected
//! (Bonferroni), so that the stated confidence holds for the whole table: with 99 %, two profiles of the same behaviour
//! show any alarm in at most 1 % of runs. Differences between whole runs are not covered; to see these, repeat the
//! runs.

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

/// The number of standard deviations on each side of an interval, chosen so that `comparisons` intervals hold together
/// with this confidence.
pub fn z_for(confidence: f64, comparisons: usize) -> f64 {
    let chance = (1.0 - confidence).clamp(1e-12, 0.999) / comparisons.max(1) as f64;
    normal_quantile(1.0 - chance / 2.0)
}

/// NEW minus OLD; each is given as (samples of the function, all samples).
pub fn difference(old: (u64, u64), new: (u64, u64), z: f64) -> Interval {
    let share = |(part, whole): (u64, u64)| part as f64 / whole.max(1) as f64;
    let (p_old, p_new) = (share(old), share(new));
    let ((low_old, high_old), (low_new, high_new)) = (wilson(old, z), wilson(new, z));
    let middle = p_new - p_old;
    let low = middle - (p_new - low_new).hypot(high_old - p_old);
    let high = middle + (high_new - p_new).hypot(p_old - low_old);
    Interval { low, middle, high }
}

/// Wilson's score interval of a share.
fn wilson((part, whole): (u64, u64), z: f64) -> (f64, f64) {
    if whole == 0 {
        return (0.0, 1.0);
    }
    let (n, p, z2) = (whole as f64, part as f64 / whole as f64, z * z);
    let center = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    ((center - half).max(0.0), (center + half).min(1.0))
}

/// The value below which a standard normal variable is with this probability.
///
/// Found by bisection of `upper_tail`; exact to about 1e-12.
fn normal_quantile(probability: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if upper_tail(middle) > 1.0 - probability { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// The probability that a standard normal variable is above `z`: Lentz's continued fraction for large z, the series for
/// small.
fn upper_tail(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - upper_tail(-z);
    }
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    if z < 3.0 {
        // 1/2 - density * (z + z^3/3 + z^5/15 + ...)
        let (mut term, mut sum, mut divisor) = (z, z, 1.0);
        while term > sum * 1e-17 && term > 0.0 {
            divisor += 2.0;
            term *= z * z / divisor;
            sum += term;
        }
        return 0.5 - density * sum;
    }
    // density / (z + 1/(z + 2/(z + 3/(z + ...))))
    density / (1..200).rev().fold(z, |rest, number| z + f64::from(number) / rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (probability, z) in
            [(0.5, 0.0), (0.975, 1.959_963_985), (0.995, 2.575_829_304), (0.999_999_5, 4.891_638_475)]
        {
            assert!((normal_quantile(probability) - z).abs() < 1e-8, "{probability} {}", normal_quantile(probability));
        }
    }

    #[test]
    fn newcombes_own_example_comes_out() {
        // Newcombe 1998, table II, row a: 56/70 against 48/80, 95 %, method 10: 0.0524 to 0.3339.
        let interval = difference((48, 80), (56, 70), z_for(0.95, 1));
        assert!((interval.low - 0.0524).abs() < 5e-5 && (interval.high - 0.3339).abs() < 5e-5, "{interval:?}");
    }

    #[test]
    fn nothing_counted_says_nothing() {
        let interval = difference((0, 0), (0, 0), 2.0);
        assert!(interval.low < 0.0 && interval.high > 0.0);
    }
}
