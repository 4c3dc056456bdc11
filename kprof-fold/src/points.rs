//! What was counted of a point: hits, the sum of their weights, the histogram of the weights. Stage: read.
//!
//! In: the lines `# point-account`, each with what was counted on a CPU since the line before. Out: sums by CPU over a
//! boot, those of chosen CPUs, and what they say about a weight: its mean, and bounds of its quantiles. A histogram by
//! powers of two knows a quantile only up to its bucket, so both ends of the bucket are given, and no value between is
//! invented.

use kprof_format::line::PointAccount;
use kprof_format::point::{BUCKETS, PointCounter, PointPart, bucket_of_name, weights};
use std::collections::BTreeMap;

/// What was counted of one point over a boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// What the weights are measured in.
    pub unit: String,
    /// What the first argument of its events means, by the value; empty if that is not known.
    pub values: Vec<String>,
    /// The counts of each CPU; under `None` those of hits on CPUs without memory for the point, which are lost.
    pub cpus: BTreeMap<Option<u64>, Counts>,
    /// Words of the meta stream that the file lacks: they may have had counts of this point.
    pub missing_meta_words: u64,
}

/// What was counted on one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The sum of the weights of all hits.
    weight: u128,
    /// Hits, by what became of them.
    counters: [u64; PointCounter::ALL.len()],
    /// What the account says besides.
    parts: [u128; PointPart::ALL.len()],
    /// The events of this point in the file.
    in_file: u64,
    /// Hits by the binary logarithm of their weights.
    buckets: [u64; BUCKETS],
}

impl Default for Counts {
    fn default() -> Self {
        Self { weight: 0, counters: Default::default(), parts: Default::default(), in_file: 0, buckets: [0; BUCKETS] }
    }
}

impl Counts {
    /// The number of hits.
    pub fn hits(&self) -> u64 {
        sum(self.counters)
    }

    fn add(&mut self, later: &Self) {
        self.weight = self.weight.saturating_add(later.weight);
        self.counters.iter_mut().zip(&later.counters).for_each(|(sum, count)| add(sum, *count));
        self.parts.iter_mut().zip(&later.parts).for_each(|(sum, part)| *sum = sum.saturating_add(*part));
        add(&mut self.in_file, later.in_file);
        self.buckets.iter_mut().zip(&later.buckets).for_each(|(sum, count)| add(sum, *count));
    }
}

impl Point {
    /// Adds what a line says. Counters that this version does not know are ignored.
    pub fn add_line(&mut self, line: &PointAccount<'_>) {
        self.unit = line.unit.to_string();
        let counts = self.cpus.entry(line.cpu).or_default();
        counts.weight = counts.weight.saturating_add(u128::from(line.weight));
        for (name, count) in line.counters.in_text() {
            if let Some(part) = PointPart::of(name) {
                let sum = &mut counts.parts[part as usize];
                *sum = sum.saturating_add(u128::from(count));
            }
            if let Some(counter) = PointCounter::of(name) {
                add(&mut counts.counters[counter as usize], count);
            } else if let Some(bucket) = bucket_of_name(name) {
                add(&mut counts.buckets[bucket], count);
            }
        }
    }

    /// Adds an event of the file.
    pub fn add_event(&mut self, cpu: u32) {
        add(&mut self.cpus.entry(Some(cpu.into())).or_default().in_file, 1);
    }

    /// Adds the counts of a later part of the same boot.
    pub fn add(&mut self, later: &Self) {
        if !later.unit.is_empty() {
            self.unit.clone_from(&later.unit);
        }
        if !later.values.is_empty() {
            self.values.clone_from(&later.values);
        }
        add(&mut self.missing_meta_words, later.missing_meta_words);
        later.cpus.iter().for_each(|(cpu, counts)| self.cpus.entry(*cpu).or_default().add(counts));
    }

    /// The point with the counts of these CPUs only.
    pub fn of_cpus(&self, is_wanted: impl Fn(Option<u64>) -> bool) -> Self {
        let cpus = self.cpus.iter().filter(|(cpu, _)| is_wanted(**cpu));
        let cpus = cpus.map(|(cpu, counts)| (*cpu, counts.clone())).collect();
        Self { unit: self.unit.clone(), values: self.values.clone(), cpus, ..*self }
    }

    /// A counter.
    pub fn count(&self, counter: PointCounter) -> u64 {
        sum(self.cpus.values().map(|counts| counts.counters[counter as usize]))
    }

    /// A part of the counters or of the weight.
    pub fn part(&self, part: PointPart) -> u128 {
        let parts = self.cpus.values().map(|counts| counts.parts[part as usize]);
        parts.fold(0, u128::saturating_add)
    }

    /// The sum of the weights of all hits.
    pub fn weight(&self) -> u128 {
        self.cpus.values().map(|counts| counts.weight).fold(0, u128::saturating_add)
    }

    /// The events of this point in the file.
    pub fn in_file(&self) -> u64 {
        sum(self.cpus.values().map(|counts| counts.in_file))
    }

    /// What makes the counts doubtful, each as `; ...`; empty if nothing is known to be missing.
    pub fn doubt(&self) -> String {
        let events = match self.unaccounted() {
            0 => String::new(),
            some => {
                format!("; {some} of its events are in no account: the file lacks it, or the kernel has overwritten it")
            }
        };
        match self.missing_meta_words {
            0 => events,
            words => format!("{events}; {words} words of the meta stream are missing, which may have had hits"),
        }
    }

    /// Hits by the binary logarithm of their weights.
    pub fn buckets(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| sum(self.cpus.values().map(|counts| counts.buckets[bucket])))
    }

    /// The number of hits.
    pub fn hits(&self) -> u64 {
        sum(self.cpus.values().map(Counts::hits))
    }

    /// Hits whose weight is in the histogram.
    pub fn weighed(&self) -> u64 {
        sum(self.buckets())
    }

    /// The mean weight of all hits.
    pub fn mean(&self) -> Option<f64> {
        (self.hits() > 0).then(|| self.weight() as f64 / self.hits() as f64)
    }

    /// The least and the greatest value that the weight of rank `share` (0 to 1) can have: those of its bucket. `None`
    /// if no weight was counted.
    pub fn quantile(&self, share: f64) -> Option<(u64, u64)> {
        let all = self.weighed();
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut below = 0;
        let found = self.buckets().iter().position(|count| {
            add(&mut below, *count);
            below >= rank
        });
        found.filter(|_| all > 0).map(weights)
    }

    /// Events of the file that no account has counted as recorded. The file ends before the account, or the kernel has
    /// overwritten the account before it was read.
    pub fn unaccounted(&self) -> u64 {
        let of = |counts: &Counts| counts.in_file.saturating_sub(counts.counters[PointCounter::Recorded as usize]);
        sum(self.cpus.values().map(of))
    }

    /// Whether every hit is in exactly one place: hits on CPUs with memory are in one bucket each, and those without
    /// memory in none. Not so if the file ends, or lacks a line, between the counts of one hit, or has events that no
    /// account has, or lacks words of the meta stream. Some points have no histogram, so no hit is in a bucket.
    pub fn is_balanced(&self) -> bool {
        if self.unaccounted() > 0 || self.missing_meta_words > 0 {
            return false;
        }
        if self.weighed() == 0 {
            return true;
        }
        let placed = sum(self.cpus.iter().filter(|(cpu, _)| cpu.is_some()).map(|(_, counts)| counts.hits()));
        self.weighed() == placed
    }
}

/// Adds to a sum, which stays at its greatest value: a damaged line may have any number.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

fn sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(lines: &[impl AsRef<str>]) -> Point {
        let mut point = Point::default();
        lines.iter().for_each(|line| point.add_line(&PointAccount::read(line.as_ref()).expect("a line")));
        point
    }

    #[test]
    fn an_event_that_no_account_has_is_not_balanced() {
        let mut point = point(&["tsc=1 cpu=1 weight=8 recorded=2 log2-2=2 unit=ns point=block.read"]);
        for (cpu, unaccounted) in [(1, 0), (1, 0), (2, 1), (1, 2)] {
            point.add_event(cpu);
            assert_eq!((point.unaccounted(), point.is_balanced()), (unaccounted, unaccounted == 0));
            assert_eq!(point.doubt().is_empty(), unaccounted == 0);
        }
        assert!(point.doubt().starts_with("; 2 of its events are in no account"), "{}", point.doubt());
    }

    #[test]
    fn words_that_the_meta_stream_lacks_make_the_counts_doubtful() {
        let mut point = point(&["tsc=1 cpu=1 weight=8 filtered=2 log2-2=2 unit=ns point=block.read"]);
        assert!(point.is_balanced() && point.doubt().is_empty());
        point.add(&Point { missing_meta_words: 40, ..Point::default() });
        assert!(!point.is_balanced());
        assert_eq!(point.doubt(), "; 40 words of the meta stream are missing, which may have had hits");
        assert_eq!(point.of_cpus(|cpu| cpu == Some(1)), point);
    }

    #[test]
    fn lines_are_added_up_and_quantiles_are_the_bounds_of_their_bucket() {
        let point = point(&[
            "tsc=1 cpu=1 weight=1000 filtered=97 log2-2=90 log2-3=7 unit=ns point=block.read",
            "tsc=2 cpu=2 weight=5000 filtered=2 recorded=1 newer=5 log2-12=3 unit=ns point=block.read",
        ]);
        assert_eq!((point.hits(), point.weight(), point.weighed()), (100, 6000, 100));
        assert_eq!(point.count(PointCounter::Filtered), 99);
        assert_eq!(point.mean(), Some(60.0));
        let quantiles = [0.0, 0.5, 0.9, 0.91, 0.97, 0.98, 1.0].map(|share| point.quantile(share).unwrap());
        assert_eq!(quantiles, [(4, 7), (4, 7), (4, 7), (8, 15), (8, 15), (4096, 8191), (4096, 8191)]);
        assert!(point.is_balanced());
    }

    #[test]
    fn the_counts_of_each_cpu_add_up_to_the_whole() {
        let lines =
            ["tsc=1 cpu=1 weight=9 recorded=1 asked-weight=7 log2-3=1", "tsc=1 cpu=2 weight=5 filtered=2 log2-1=2"];
        let point = point(&[lines[0], lines[1], "tsc=2 weight=4 lost=1"].map(|line| format!("{line} unit=ns point=a")));
        let of = |cpu: Option<u64>| point.of_cpus(|one| one == cpu);
        let parts = [of(Some(1)), of(Some(2)), of(None)];
        assert_eq!(parts.each_ref().map(Point::weight), [9, 5, 4]);
        assert_eq!(parts.each_ref().map(Point::hits), [1, 2, 1]);
        let mut sum = of(Some(3));
        assert_eq!((sum.hits(), &sum.unit[..]), (0, "ns"));
        parts.iter().for_each(|part| sum.add(part));
        assert_eq!(sum, point);
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
