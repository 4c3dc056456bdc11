//! Hits of points, and their weights: what `kprof-record stat -e` and `kprof-record probe` print.
//!
//! In: the text of account records, `UNIT NAME COUNTER=COUNT ...`, and the weight. Out: exact sums by the point's name.
//! Runs in: user process. Bounded: the kernel has a fixed number of points.

use kprof_format::line::PointAccount;
use kprof_format::point::{PointCounter, bucket_of_name, weights};
use std::collections::BTreeMap;

/// What was counted of a point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointSum {
    /// What the weights are measured in.
    pub unit: String,
    /// Hits, whatever became of their records.
    pub hits: u64,
    /// The sum of the weights of all hits.
    pub weight: u64,
    /// Hits by the binary logarithm of their weights, as far as those are known.
    pub buckets: BTreeMap<usize, u64>,
}

impl PointSum {
    /// Hits whose weight is known.
    pub fn weighed(&self) -> u64 {
        self.buckets.values().fold(0, |sum, hits| sum.saturating_add(*hits))
    }

    /// The greatest value that the weight of rank `share` (0 to 1) can have: that of its bucket. `None` if no weight is
    /// known.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let rank = ((self.weighed() as f64 * share).ceil() as u64).max(1);
        let mut below = 0_u64;
        let found = self.buckets.iter().find(|(_, hits)| {
            below = below.saturating_add(**hits);
            below >= rank
        });
        found.map(|(bucket, _)| weights(*bucket).1)
    }
}

/// Sums by the point's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByPoint(BTreeMap<String, PointSum>);

impl ByPoint {
    /// Adds the account record with this weight and text. A word that is not a counter of hits is ignored.
    pub fn add(&mut self, weight: u64, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let mut words = text.split(' ').map(str::to_owned);
        let (unit, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let sum = self.0.entry(name).or_default();
        sum.unit = unit;
        sum.weight = sum.weight.saturating_add(weight);
        let line = PointAccount::of_record(0, 0, weight, &text);
        for (_, count) in line.counters.in_text().filter(|(name, _)| PointCounter::of(name).is_some()) {
            sum.hits = sum.hits.saturating_add(count);
        }
        for (bucket, count) in line.counters.in_text().filter_map(|(name, count)| Some((bucket_of_name(name)?, count)))
        {
            let hits = sum.buckets.entry(bucket).or_default();
            *hits = hits.saturating_add(count);
        }
    }

    /// The sum of the point with this name, if it was hit.
    pub fn get(&self, name: &str) -> Option<&PointSum> {
        self.0.get(name)
    }

    /// All points that were hit, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &PointSum)> {
        self.0.iter().map(|(name, sum)| (name.as_str(), sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_and_weights_add_up_over_records_whatever_became_of_the_hits() {
        let mut points = ByPoint::default();
        points.add(300, b"ns block.read log2-6=4 recorded=1 filtered=2 lost=1 unsampled=2 asked-weight=300");
        points.add(50, b"ns block.read filtered=1 log2-5=1");
        points.add(u64::MAX, b"bytes null.write lost=2 newer=7");
        points.add(1, b"bytes null.write");
        let sum = |unit: &str, hits, weight, buckets: &[(usize, u64)]| {
            let buckets = buckets.iter().copied().collect();
            PointSum { unit: unit.into(), hits, weight, buckets }
        };
        assert_eq!((points.get("block.read").is_some(), points.get("block")), (true, None));
        let expected =
            [("block.read", &sum("ns", 5, 350, &[(5, 1), (6, 4)])), ("null.write", &sum("bytes", 2, u64::MAX, &[]))];
        assert_eq!(points.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_quantile_is_the_greatest_weight_of_its_bucket() {
        let mut points = ByPoint::default();
        points.add(1000, b"ns a filtered=101 lost=1 log2-2=90 log2-3=9 log2-12=1");
        let sum = points.get("a").unwrap();
        assert_eq!((sum.hits, sum.weighed()), (102, 100));
        assert_eq!([0.0, 0.5, 0.9, 0.91, 0.99, 1.0].map(|share| sum.quantile(share).unwrap()), [7, 7, 7, 15, 15, 8191]);
        assert_eq!(PointSum::default().quantile(0.5), None);
    }
}
