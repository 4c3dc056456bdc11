//! How exactly the weight of each stack is known: its estimate and the variance of this estimate. Stage: fold.
//!
//! In: the recorded events of a point, or the allocations that were not freed. Out: for each CPU the estimate and the
//! variance of each stack, and by what the estimate is scaled to the exact total. It never shows a number itself: the
//! numbers are those of the fold, and `diff` asks here how exact they are.

use super::{EventTally, Sum};
use crate::amount::Amount;
use crate::heap::{Estimate, HeapTally};
use crate::points::Point;
use crate::stacks::StackId;
use crate::tally::Count;
use kprof_format::memory::FREE;
use std::collections::BTreeMap;

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
            let most = if of_hits { of_cpu.max_hits } else { of_cpu.mean_distance as f64 };
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
            let group = groups.binary_search_by(|one| one.cmp(&group)).unwrap_or(0) as u32;
            rows.entry((stack, group)).or_default().add(&amount(estimate));
            all.add(&amount(estimate));
        }
        let is_sampled = self.mean_bytes.is_some() || all.unseen > 0.0;
        let counts = listed(rows.into_iter());
        vec![Part { scale: 1.0, is_scaled: false, is_sampled, most, all, counts }]
    }
}
