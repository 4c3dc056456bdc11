//! What one CPU has counted of one point: hits by the bucket of their weights, and the total weight.
//!
//! In: one call for each hit. Out: the counts since they were last taken. Runs in: ordinary code and interrupts, never
//! an NMI. Each count is one atomic addition, so no hit is lost if the caller is interrupted, or moved to another CPU.

use crate::format::point::{BUCKETS, bucket};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Memory for what one CPU counts of one point: 576 bytes, aligned so that no other CPU writes to the same cache lines.
#[repr(C, align(64))]
pub struct PointCounts {
    buckets: [AtomicU64; BUCKETS],
    weight: AtomicU64,
    is_taken: AtomicBool,
}

/// Counts that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) weight: u64,
    /// Hits without memory for them, which have no bucket.
    pub(crate) lost: u64,
    pub(crate) buckets: [u64; BUCKETS],
}

impl PointCounts {
    /// Nothing has been counted.
    #[allow(clippy::declare_interior_mutable_const)]
    pub const fn new() -> Self {
        Self {
            weight: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            is_taken: AtomicBool::new(false),
        }
    }

    /// Takes this memory for one CPU. `false` if a CPU has it already.
    pub(crate) fn take_memory(&self) -> bool {
        !self.is_taken.swap(true, Ordering::AcqRel)
    }

    /// Counts one hit for which no record is asked.
    #[inline(always)]
    pub(crate) fn count(&self, weight: u64) {
        self.weight.fetch_add(weight, Ordering::Relaxed);
        if let Some(count) = self.buckets.get(bucket(weight)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes all counts, which are 0 then. A hit in progress may be divided between this call and the next one; the
    /// sums over all calls are exact.
    pub(crate) fn take(&self) -> Taken {
        let swap = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        Taken { weight: swap(&self.weight), lost: 0, buckets: self.buckets.each_ref().map(swap) }
    }

    /// Adds counts that were taken and could not be written.
    pub(crate) fn put_back(&self, taken: &Taken) {
        self.weight.fetch_add(taken.weight, Ordering::Relaxed);
        for (count, taken) in self.buckets.iter().zip(&taken.buckets) {
            count.fetch_add(*taken, Ordering::Relaxed);
        }
    }
}

impl Default for PointCounts {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(size_of::<PointCounts>() == 576, "the documentation says so");

impl Taken {
    /// Hits on CPUs that have no memory for the point.
    pub(crate) fn lost(lost: u64, weight: u64) -> Self {
        Self { weight, lost, buckets: [0; BUCKETS] }
    }

    /// Whether nothing was counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.weight == 0 && self.lost == 0 && self.buckets.iter().all(|count| *count == 0)
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
