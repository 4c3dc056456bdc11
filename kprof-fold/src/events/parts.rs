//! How exactly the weight of each stack is known: its estimate and the variance of this estimate. Stage: fold.
//!
//! In: the recorded events of a point, or the allocations that were not freed. Out: for each CPU the estimate and the
//! variance of each stack, and by what the estimate is scaled to the exact total. It never shows a number itself: the
//! numbers are those of the fold, and `diff` asks here how exact they are.
//!
//! A hit that was recorded with the chance p stands for f = 1/p hits and for the weight w f. As an estimate of its own
//! part of the total this has the variance f (f - 1), or w^2 f (f - 1) for the weight (Horvitz and Thompson, Journal of
//! the American Statistical Association 47, 1952). This is 0 if every hit is recorded, w^2 (1 - p) / p^2 if hits are
//! drawn by weight, and w^2 N (N - 1) if one of N is recorded. The last one holds if the hits of a function are not in
//! step with the number N.

use super::{EventTally, Sum};
use crate::heap::{Estimate, HeapTally};
use crate::points::Point;
use crate::stacks::StackId;
use crate::tally::Count;
use kprof_format::memory::FREE;
use std::collections::BTreeMap;

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

/// The events of one CPU, or all of them if they are not scaled by CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// By what the estimates are multiplied.
    pub scale: f64,
    /// Whether this makes their sum the exact total.
    pub is_scaled: bool,
    /// Whether some hits were not recorded on purpose: by chance or by number.
    pub is_sampled: bool,
    /// What a hit stands for at most that was not recorded; 0 if that is not known.
    pub most: f64,
    /// All events, chosen or not.
    pub all: Amount,
    /// What was chosen, by stack and group. `samples` of a count is its place in this list.
    pub counts: Vec<(Count, Amount)>,
}

fn listed(rows: impl Iterator<Item = ((StackId, u32), Amount)>) -> Vec<(Count, Amount)> {
    let place = |(place, ((stack, group), amount))| (Count { group, stack, samples: place }, amount);
    (0..).zip(rows).map(place).collect()
}

impl Sum {
    fn amount(&self, of_hits: bool) -> Amount {
        if of_hits { self.hits } else { self.scaled_weight }
    }
}

impl EventTally {
    /// How exactly the counts of [`scaled`](Self::scaled) are known, by CPU.
    pub fn parts(&self, point: &Point, of_hits: bool) -> Vec<Part> {
        let is_free = self.point == FREE;
        let scaled = self.by_cpu(point, of_hits);
        let part = |(cpu, of_cpu): (&Option<u64>, &super::OfCpu)| {
            let all = of_cpu.all.amount(of_hits);
            let counts = point.of_cpus(|one| one == *cpu);
            let total = if of_hits { u128::from(counts.hits()) } else { counts.weight() };
            let beside = scaled.get(cpu).map_or(0, |one| u128::from(one.lost) + u128::from(one.only_counted));
            let is_scaled = of_cpu.is_sampled && !is_free && all.sum > 0.0;
            let scale = if is_scaled { total.saturating_sub(beside) as f64 / all.sum } else { 1.0 };
            let rows = of_cpu.chosen.iter().map(|(key, sum)| (*key, sum.amount(of_hits)));
            let most = if of_hits { of_cpu.most_hits } else { of_cpu.mean_distance as f64 };
            Part { scale, is_scaled, is_sampled: of_cpu.is_sampled, most, all, counts: listed(rows) }
        };
        self.cpus.iter().map(part).collect()
    }
}

impl HeapTally {
    /// How exactly the counts of [`counts`](Self::counts) are known. The numbers of its groups are those of `groups`.
    pub fn parts(&self, of_allocations: bool, tsc_hz: Option<f64>, groups: &[String]) -> Vec<Part> {
        let amount = |Estimate { allocations, bytes }: Estimate| {
            Amount::of_hit(if of_allocations { 1.0 } else { bytes / allocations.max(1.0) }, allocations)
        };
        let (mut all, mut rows) = (Amount::default(), BTreeMap::<(StackId, u32), Amount>::new());
        // In a fixed order, so that the same file gives the same sums to the last digit.
        let mut unfreed: Vec<_> = self.unfreed(tsc_hz).collect();
        unfreed.sort_by(|(a, _, one), (b, _, other)| a.cmp(b).then(one.bytes.total_cmp(&other.bytes)));
        let mut most = if of_allocations { 1.0 } else { self.mean_bytes.unwrap_or(0) as f64 };
        for (stack, group, estimate) in unfreed {
            if of_allocations {
                most = most.max(estimate.allocations);
            }
            let group = groups.binary_search_by(|one| one.as_str().cmp(group)).unwrap_or(0) as u32;
            rows.entry((stack, group)).or_default().add(&amount(estimate));
            all.add(&amount(estimate));
        }
        let is_sampled = self.mean_bytes.is_some() || all.unseen > 0.0;
        let counts = listed(rows.into_iter());
        vec![Part { scale: 1.0, is_scaled: false, is_sampled, most, all, counts }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::factor;
    use kprof_format::point::PointState;

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
