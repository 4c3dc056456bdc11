//! What a recorded hit stands for, and how exactly that is known. Stage: fold.
//!
//! In: the weight of a hit, and how it was chosen for a record. Out: an estimate of hits or of weight, with its
//! variance. It never rounds: the tallies do.
//!
//! A hit that was recorded with the chance p stands for f = 1/p hits and for the weight w f. As an estimate of its own
//! part of the total this has the variance f (f - 1), or w^2 f (f - 1) for the weight (Horvitz and Thompson, Journal of
//! the American Statistical Association 47, 1952). This is 0 if every hit is recorded, w^2 (1 - p) / p^2 if hits are
//! drawn by weight, and w^2 N (N - 1) if one of N is recorded. The last one holds if the hits of a function are not in
//! step with the number N.

use kprof_format::point::PointState;

/// For how many hits a recorded hit of this weight stands, if it was chosen like this.
pub fn factor(weight: u64, state: PointState) -> f64 {
    match state {
        PointState::Every(hits) => hits as f64,
        PointState::ByWeight(mean) if weight > 0 => 1.0 / -(-(weight as f64) / mean as f64).exp_m1(),
        _ => 1.0,
    }
}

/// An estimate of weight or of hits, before it is scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// The estimate.
    pub sum: f64,
    /// Its variance.
    pub variance: f64,
    /// The part of the estimate that stands for hits that were not recorded.
    pub unseen: f64,
}

impl Amount {
    /// The amount of a hit that stands for `factor` hits of the weight `weight` each.
    pub fn of_hit(weight: f64, factor: f64) -> Self {
        let more = (factor - 1.0).max(0.0);
        Self { sum: weight * factor, variance: weight * weight * factor * more, unseen: weight * more }
    }

    /// Adds the amount of other hits. Each hit is chosen independently, so the variances are added.
    pub fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.variance += other.variance;
        self.unseen += other.unseen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_has_the_variance_of_its_chance() {
        let of = |weight: u64, state| Amount::of_hit(weight as f64, factor(weight, state));
        assert_eq!(of(700, PointState::Record), Amount { sum: 700.0, variance: 0.0, unseen: 0.0 });
        let (w, n) = (300.0, 10.0);
        assert_eq!(
            of(300, PointState::Every(10)),
            Amount { sum: w * n, variance: w * w * n * (n - 1.0), unseen: 2700.0 }
        );
        let p = 1.0 - (-0.3_f64).exp();
        let drawn = of(300, PointState::ByWeight(1000));
        assert!((drawn.sum - w / p).abs() < 1e-9);
        assert!((drawn.variance / (w * w * (1.0 - p) / (p * p)) - 1.0).abs() < 1e-12);
        // One far above the mean distance is always recorded, so it is exact.
        assert!(of(1_000_000, PointState::ByWeight(1000)).variance < 1e-9);
    }
}
