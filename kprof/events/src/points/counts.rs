//! What one CPU has counted of one point: hits by the bucket of their weights, the total weight, and what became of the
//! hits for which a record was asked.
//!
//! In: one call for each hit. Out: the counts since they were last taken. Runs in: ordinary code and interrupts, never
//! an NMI. Each count is one atomic addition, so no hit is lost if the caller is interrupted, or moved to another CPU.

use super::asked::{Asked, Outcomes};
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kprof::format::point::{BUCKETS, PointState, bucket};

/// Memory for what one CPU counts of one point: 640 bytes, aligned so that no other CPU writes to the same cache lines.
#[repr(C, align(64))]
pub struct PointCounts {
    buckets: [AtomicU64; BUCKETS],
    weight: AtomicU64,
    pub(crate) asked: Asked,
    is_taken: AtomicBool,
}

/// Counts that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) weight: u64,
    /// Hits without memory for them are `lost` here, and have no bucket.
    pub(crate) outcomes: Outcomes,
    pub(crate) buckets: [u64; BUCKETS],
}

impl PointCounts {
    /// Nothing has been counted.
    #[allow(clippy::declare_interior_mutable_const)]
    pub const fn new() -> Self {
        Self {
            weight: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            asked: Asked::new(),
            is_taken: AtomicBool::new(false),
        }
    }

    /// Takes this memory for one CPU. `false` if a CPU has it already.
    pub(crate) fn take_memory(&self) -> bool {
        !self.is_taken.swap(true, Ordering::AcqRel)
    }

    /// Gives the memory back, which nobody has counted in.
    pub(crate) fn give_back(&self) {
        self.is_taken.store(false, Ordering::Release);
    }

    /// Counts one hit for which no record is asked.
    #[inline(always)]
    pub(crate) fn count(&self, weight: u64) {
        self.weight.fetch_add(weight, Ordering::Relaxed);
        if let Some(count) = self.buckets.get(bucket(weight)) {
            // Release: for `count_asked`. On x86_64 it is the same instruction.
            count.fetch_add(1, Ordering::Release);
        }
    }

    /// Counts one hit whose weight is not 0 and for which no record is asked.
    #[inline(always)]
    pub(crate) fn count_bytes(&self, bytes: NonZeroU64) {
        self.weight.fetch_add(bytes.get(), Ordering::Relaxed);
        if let Some(count) = self.buckets.get(bytes.ilog2() as usize) {
            count.fetch_add(1, Ordering::Release);
        }
    }

    /// Counts one hit of a point without a histogram, for which no record is asked.
    #[inline(always)]
    pub(crate) fn count_without_histogram(&self, weight: u64) {
        self.weight.fetch_add(weight, Ordering::Relaxed);
        self.buckets[0].fetch_add(1, Ordering::Release);
    }

    /// Counts one hit for which a record is asked.
    #[inline(always)]
    pub(crate) fn count_asked(&self, weight: u64) {
        self.asked.ask(weight);
        self.count(weight);
    }

    /// Takes all counts, which are 0 then. A hit in progress may be divided between this call and the next one: its
    /// weight may be taken first; its bucket stays with what becomes of it. The sums over all calls are exact; a weight
    /// of 2^64 - 1 says that it is that or more.
    pub(crate) fn take(&self) -> Taken {
        let swap = |count: &AtomicU64| count.swap(0, Ordering::Acquire);
        let outcomes = self.asked.take();
        let mut buckets = self.buckets.each_ref().map(swap);
        let all = buckets;
        self.asked.settle(&outcomes, &mut buckets, |bucket, count| self.add_to_bucket(bucket, count));
        let weight = swap(&self.weight);
        Taken { weight: if has_wrapped(weight, &all) { u64::MAX } else { weight }, outcomes, buckets }
    }

    /// As `take`, of the point of allocations: while they are recorded by chance, those that were only counted were
    /// asked for, too, and not chosen.
    pub(crate) fn take_allocations(&self) -> Taken {
        let state = PointState::decode(self.asked.distance().state_word());
        let mut taken = self.take();
        if state.is_some_and(PointState::records) {
            let hits: u64 = taken.buckets.iter().sum();
            let outcomes = &mut taken.outcomes;
            outcomes.unsampled = hits.saturating_sub(outcomes.recorded + outcomes.lost);
            outcomes.asked_weight = taken.weight;
        }
        taken
    }

    /// Adds counts that were taken and could not be written.
    pub(crate) fn put_back(&self, taken: &Taken) {
        add_saturating(&self.weight, taken.weight);
        self.asked.put_hits_back(&taken.outcomes);
        taken.buckets.iter().enumerate().for_each(|(bucket, count)| self.add_to_bucket(bucket, *count));
        self.asked.put_outcomes_back(&taken.outcomes);
    }

    fn add_to_bucket(&self, bucket: usize, count: u64) {
        if let Some(place) = self.buckets.get(bucket) {
            place.fetch_add(count, Ordering::Release);
        }
    }
}

/// Whether a sum of weights has wrapped at 2^64: it is less than the least that the hits in these buckets can have had.
/// (It always is then, because the hits have less than twice that least sum.) A sum whose least is below 2^63 has not
/// wrapped; it may be less because the weight of a hit was taken before its bucket.
fn has_wrapped(weight: u64, buckets: &[u64; BUCKETS]) -> bool {
    // The first bucket has weights of 0, too.
    let least = buckets.iter().enumerate().skip(1).map(|(bucket, count)| u128::from(*count) << bucket).sum::<u128>();
    least >> 63 != 0 && u128::from(weight) < least
}

/// Adds to a sum that stays at 2^64 - 1.
pub(super) fn add_saturating(sum: &AtomicU64, weight: u64) {
    let mut before = sum.load(Ordering::Relaxed);
    let add = |before: u64| {
        sum.compare_exchange_weak(before, before.saturating_add(weight), Ordering::Relaxed, Ordering::Relaxed)
    };
    while let Err(now) = add(before) {
        before = now;
    }
}

impl Default for PointCounts {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(size_of::<PointCounts>() == 640, "the documentation says so");

impl Taken {
    /// Hits on CPUs that have no memory for the point.
    pub(crate) fn lost(lost: u64, weight: u64) -> Self {
        Self { weight, outcomes: Outcomes::lost(lost), buckets: [0; BUCKETS] }
    }

    /// Whether nothing was counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.weight == 0 && self.outcomes.is_empty() && self.buckets.iter().all(|count| *count == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_added_up_and_counted_by_their_logarithm() {
        let counts = PointCounts::new();
        [0, 1, 2, 3, u64::MAX - 6].into_iter().for_each(|weight| counts.count(weight));
        let taken = counts.take();
        assert_eq!(taken.weight, u64::MAX);
        let buckets: Vec<_> = taken.buckets.iter().enumerate().filter(|(_, count)| **count > 0).collect();
        assert_eq!(buckets, [(0, &2), (1, &2), (63, &1)]);
        assert!(counts.take().is_empty());
        counts.put_back(&taken);
        assert_eq!(counts.take(), taken);
    }

    #[test]
    fn a_hit_stays_in_its_bucket_until_it_is_known_what_becomes_of_it() {
        use super::super::asked::Became::{Lost, Recorded, Unsampled};
        let counts = PointCounts::new();
        let ended = [Recorded, Lost, Lost, Unsampled];
        ended.into_iter().enumerate().for_each(|(bit, became)| {
            counts.count_asked(1 << bit);
            counts.asked.became(became, 1 << bit);
        });
        // Two hits of which a record is asked are in progress.
        counts.count_asked(1);
        counts.count_asked(1 << 20);
        let hits = |taken: &Taken| taken.buckets.iter().sum::<u64>();
        let outcomes = |taken: &Taken| [taken.outcomes.recorded, taken.outcomes.lost, taken.outcomes.unsampled];
        let first = counts.take();
        assert_eq!((hits(&first), outcomes(&first), first.outcomes.lost_weight), (4, [1, 2, 1], 2 + 4));
        // It could not be written.
        counts.put_back(&first);
        assert_eq!(counts.take(), first);
        // Another one is not in its bucket yet.
        counts.asked.ask(1 << 21);
        assert_eq!(hits(&counts.take()), 0);
        counts.count(1 << 21);
        [1, 1 << 20, 1 << 21].into_iter().for_each(|weight| counts.asked.became(Recorded, weight));
        let last = counts.take();
        assert_eq!((hits(&last), outcomes(&last)), (3, [3, 0, 0]));
        let weights = [first.weight, first.outcomes.asked_weight, last.weight];
        assert_eq!(weights, [0x10_0010, 0x10_0010, 1 << 21]);
        let both = |bucket: usize| first.buckets[bucket] + last.buckets[bucket];
        assert_eq!([0, 1, 2, 3, 20, 21].map(both), [2, 1, 1, 1, 1, 1]);
        assert!(counts.take().is_empty());
    }

    #[test]
    fn a_sum_of_weights_beyond_64_bits_is_the_greatest_number() {
        for weights in [[u64::MAX; 2], [u64::MAX, 1], [1 << 63; 2], [u64::MAX - 1, 2]] {
            let counts = PointCounts::new();
            weights.into_iter().for_each(|weight| counts.count(weight));
            let taken = counts.take();
            assert_eq!(taken.weight, u64::MAX, "{weights:x?}");
            counts.put_back(&taken);
            counts.count(5);
            assert_eq!(counts.take().weight, u64::MAX);
        }
        let counts = PointCounts::new();
        [1 << 63, (1 << 63) - 1].into_iter().for_each(|weight| counts.count(weight));
        assert_eq!(counts.take().weight, u64::MAX, "it fits just so");
        counts.count(7);
        assert_eq!(counts.take().weight, 7);
    }

    #[test]
    fn nothing_is_lost_while_counts_are_taken() {
        const HITS: u64 = if cfg!(miri) { 200 } else { 100_000 };
        let (counts, done) = (PointCounts::new(), AtomicU64::new(0));
        let (mut hits, mut weight) = (0, 0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    (1..=HITS).for_each(|weight| counts.count(weight));
                    done.fetch_add(1, Ordering::Release);
                });
            }
            loop {
                let is_last = done.load(Ordering::Acquire) == 2;
                let taken = counts.take();
                hits += taken.buckets.iter().sum::<u64>();
                weight += taken.weight;
                if is_last {
                    break;
                }
            }
        });
        assert_eq!((hits, weight), (2 * HITS, HITS * (HITS + 1)));
    }
}
