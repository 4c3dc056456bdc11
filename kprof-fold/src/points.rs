//! What was counted of a point: hits, the sum of their weights, the histogram of the weights. Stage: read.
//!
//! In: the lines `# point-account`, each with what was counted since the line before. Out: sums over a boot, and what
//! they say about a weight: its mean, and bounds of its quantiles. A histogram by powers of two knows a quantile only
//! up to its bucket, so both ends of the bucket are given, and no value between them is invented.

use kprof_format::line::PointAccount;
use kprof_format::point::{BUCKETS, PointCounter, PointPart, bucket_of_name, weights};
use std::collections::BTreeMap;

/// The sums of one point over a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// What the weights are measured in.
    pub unit: String,
    /// The sum of the weights of all hits.
    pub weight: u128,
    /// What the first argument of its events means, by the value; empty if that is not known.
    pub values: Vec<String>,
    /// Hits, by what became of them.
    counters: [u64; PointCounter::ALL.len()],
    /// What the account says besides.
    parts: [u128; PointPart::ALL.len()],
    /// Hits on CPUs without memory for the point, and their weights. They are lost.
    pub homeless: (u64, u128),
    /// The events of this point in the file, and the sum of their weights.
    pub in_file: (u64, u128),
    /// Hits by the binary logarithm of their weights.
    pub buckets: [u64; BUCKETS],
    /// Hits by CPU; under `None` those on CPUs without memory for the point.
    pub cpus: BTreeMap<Option<u64>, u64>,
}

impl Default for Point {
    fn default() -> Self {
        Self {
            unit: String::new(),
            values: Vec::new(),
            weight: 0,
            counters: Default::default(),
            parts: Default::default(),
            homeless: (0, 0),
            in_file: (0, 0),
            buckets: [0; BUCKETS],
            cpus: BTreeMap::new(),
        }
    }
}

impl Point {
    /// Adds what a line says. Counters that this version does not know are ignored.
    pub fn add_line(&mut self, line: &PointAccount<'_>) {
        self.unit = line.unit.to_string();
        self.weight = self.weight.saturating_add(u128::from(line.weight));
        if line.cpu.is_none() {
            self.homeless.1 = self.homeless.1.saturating_add(u128::from(line.weight));
        }
        for (name, count) in line.counters.in_text() {
            if let Some(part) = PointPart::of(name) {
                let sum = &mut self.parts[part as usize];
                *sum = sum.saturating_add(u128::from(count));
            }
            if let Some(counter) = PointCounter::of(name) {
                add(&mut self.counters[counter as usize], count);
                add(self.cpus.entry(line.cpu).or_default(), count);
                if line.cpu.is_none() {
                    add(&mut self.homeless.0, count);
                }
            } else if let Some(bucket) = bucket_of_name(name) {
                add(&mut self.buckets[bucket], count);
            }
        }
    }

    /// Adds the sums of a later part of the same boot.
    pub fn add(&mut self, later: &Self) {
        if !later.unit.is_empty() {
            self.unit.clone_from(&later.unit);
        }
        if !later.values.is_empty() {
            self.values.clone_from(&later.values);
        }
        self.weight = self.weight.saturating_add(later.weight);
        self.counters.iter_mut().zip(&later.counters).for_each(|(sum, count)| add(sum, *count));
        self.parts.iter_mut().zip(&later.parts).for_each(|(sum, part)| *sum = sum.saturating_add(*part));
        for (sum, more) in [(&mut self.homeless, later.homeless), (&mut self.in_file, later.in_file)] {
            *sum = (sum.0.saturating_add(more.0), sum.1.saturating_add(more.1));
        }
        self.buckets.iter_mut().zip(&later.buckets).for_each(|(sum, count)| add(sum, *count));
        later.cpus.iter().for_each(|(cpu, count)| add(self.cpus.entry(*cpu).or_default(), *count));
    }

    /// A counter.
    pub fn count(&self, counter: PointCounter) -> u64 {
        self.counters[counter as usize]
    }

    /// A part of the counters or of the weight.
    pub fn part(&self, part: PointPart) -> u128 {
        self.parts[part as usize]
    }

    /// Adds an event of the file.
    pub fn add_event(&mut self, weight: u64) {
        add(&mut self.in_file.0, 1);
        self.in_file.1 = self.in_file.1.saturating_add(u128::from(weight));
    }

    /// The number of hits.
    pub fn hits(&self) -> u64 {
        sum(&self.counters)
    }

    /// Hits whose weight is in the histogram.
    pub fn weighed(&self) -> u64 {
        sum(&self.buckets)
    }

    /// The mean weight of all hits.
    pub fn mean(&self) -> Option<f64> {
        (self.hits() > 0).then(|| self.weight as f64 / self.hits() as f64)
    }

    /// The least and the greatest value that the weight of rank `share` (0 to 1) can have: those of its bucket. `None`
    /// if no weight was counted.
    pub fn quantile(&self, share: f64) -> Option<(u64, u64)> {
        let all = self.weighed();
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut below = 0;
        let found = self.buckets.iter().position(|count| {
            add(&mut below, *count);
            below >= rank
        });
        found.filter(|_| all > 0).map(weights)
    }

    /// Whether every hit is in exactly one place: hits on CPUs with memory are in one bucket each, and those without
    /// memory in none. Not so if the file ends, or lacks a line, between the counts of one hit. Some points have no
    /// histogram, so no hit is in a bucket.
    pub fn is_balanced(&self) -> bool {
        if self.weighed() == 0 {
            return true;
        }
        let placed = sum(self.cpus.iter().filter(|(cpu, _)| cpu.is_some()).map(|(_, hits)| hits));
        self.weighed() == placed
    }
}

/// Adds to a sum, which stays at its greatest value: a damaged line may have any number.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

fn sum<'a>(counts: impl IntoIterator<Item = &'a u64>) -> u64 {
    counts.into_iter().fold(0, |sum, count| sum.saturating_add(*count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(lines: &[&str]) -> Point {
        let mut point = Point::default();
        lines.iter().for_each(|line| point.add_line(&PointAccount::read(line).expect("a line")));
        point
    }

    #[test]
    fn lines_are_added_up_and_quantiles_are_the_bounds_of_their_bucket() {
        let point = point(&[
            "tsc=1 cpu=1 weight=1000 filtered=97 log2-2=90 log2-3=7 unit=ns point=block.read",
            "tsc=2 cpu=2 weight=5000 filtered=2 recorded=1 newer=5 log2-12=3 unit=ns point=block.read",
        ]);
        assert_eq!((point.hits(), point.weight, point.weighed()), (100, 6000, 100));
        assert_eq!(point.count(PointCounter::Filtered), 99);
        assert_eq!(point.mean(), Some(60.0));
        let quantiles = [0.0, 0.5, 0.9, 0.91, 0.97, 0.98, 1.0].map(|share| point.quantile(share).unwrap());
        assert_eq!(quantiles, [(4, 7), (4, 7), (4, 7), (8, 15), (8, 15), (4096, 8191), (4096, 8191)]);
        assert!(point.is_balanced());
    }

    #[test]
    fn hits_without_memory_have_no_bucket_and_a_missing_bucket_is_noticed() {
        let lost = "tsc=1 weight=40 lost=2 unit=ns point=block.read";
        let lost_only = point(&[lost]);
        assert!(lost_only.is_balanced());
        assert_eq!((lost_only.hits(), lost_only.quantile(0.5)), (2, None));
        let damaged = point(&[lost, "tsc=1 cpu=1 weight=40 filtered=2 log2-4=1 unit=ns point=block.read"]);
        assert!(!damaged.is_balanced());
    }
}
