//! The intervals between two samples of a CPU: how many have which length. Stage: fold, a histogram of fixed size.
//!
//! In: times in TSC ticks. Out: how many there are of each length. Lengths below 1024 TSC ticks have a bin each; longer
//! ones share a bin with those that have the same ten leading bits after the first, so a bin is at most 0.1 % wide.
//! Each bin keeps the sum of its lengths too: equal lengths are shown exactly.

/// Bins for each power of two.
const PER_OCTAVE: usize = 1 << BITS;
const BITS: u32 = 10;
/// Bins of all lengths.
const BINS: usize = (64 - BITS as usize + 1) * PER_OCTAVE;

/// The histogram: for each bin the number of lengths and their sum.
#[derive(Clone, Debug)]
pub struct Intervals {
    bins: Vec<(u64, f64)>,
    count: u64,
    /// The bins that are not empty, in no particular order.
    used: Vec<u32>,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { bins: vec![(0, 0.0); BINS], count: 0, used: Vec::new() }
    }
}

impl Intervals {
    /// Adds a length.
    #[inline]
    pub fn add(&mut self, interval: u64) {
        let octave = (u64::BITS - BITS).saturating_sub(interval.leading_zeros());
        // From the second octave on, the first of the leading bits is always set and needs no bins.
        let bin = ((octave as usize) << BITS) + (interval >> octave.saturating_sub(1)) as usize;
        let bin = if octave > 0 { bin - PER_OCTAVE } else { bin };
        self.put(bin, 1, interval as f64);
    }

    #[inline]
    fn put(&mut self, bin: usize, count: u64, sum: f64) {
        if self.bins[bin].0 == 0 {
            self.used.push(bin as u32);
        }
        self.bins[bin].0 += count;
        self.bins[bin].1 += sum;
        self.count += count;
    }

    /// Moves all lengths of `other` into this histogram; `other` is empty afterwards.
    pub fn take(&mut self, other: &mut Self) {
        for bin in std::mem::take(&mut other.used) {
            let (count, sum) = std::mem::take(&mut other.bins[bin as usize]);
            self.put(bin as usize, count, sum);
        }
        other.count = 0;
    }

    /// Removes all lengths.
    pub fn clear(&mut self) {
        self.used.drain(..).for_each(|bin| self.bins[bin as usize] = (0, 0.0));
        self.count = 0;
    }

    /// How many lengths the histogram has.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The lengths, ascending: the average of each bin and how many there are in it.
    pub fn iter(&self) -> impl Iterator<Item = (f64, u64)> {
        self.bins.iter().filter(|(count, _)| *count > 0).map(|(count, sum)| (sum / *count as f64, *count))
    }

    /// The median.
    pub fn middle(&self) -> Option<f64> {
        let mut before = 0;
        let reaches = |(_, count): &(f64, u64)| {
            before += count;
            before > self.count / 2
        };
        self.iter().find(reaches).map(|(interval, _)| interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_counted_within_a_thousandth() {
        let mut whole = Intervals::default();
        let mut lengths: Vec<u64> = (0..64).flat_map(|bit| [1 << bit, (1 << bit) - 1, (3 << bit) >> 1]).collect();
        lengths.push(u64::MAX);
        for interval in &lengths {
            let mut intervals = Intervals::default();
            intervals.add(*interval);
            intervals.add(interval.saturating_add(interval / 4096));
            whole.add(*interval);
            for (length, _) in intervals.iter() {
                assert!((length - *interval as f64).abs() <= *interval as f64 / 1024.0, "{interval}: {length}");
            }
        }
        assert_eq!(whole.iter().map(|(_, count)| count).sum::<u64>(), whole.len());
        assert!(whole.iter().map(|(interval, _)| interval).is_sorted());
    }

    #[test]
    fn the_middle_one_of_equal_lengths_is_exact() {
        let mut intervals = Intervals::default();
        assert_eq!((intervals.middle(), intervals.is_empty()), (None, true));
        [1_000_003; 7].iter().chain(&[5, 90_000_000]).for_each(|interval| intervals.add(*interval));
        assert_eq!(intervals.middle(), Some(1_000_003.0));
    }
}
