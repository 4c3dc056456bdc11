//! What became of the hits for which a record was asked.
//!
//! In: one call before a hit is counted, one after it. Out: the counts since they were last taken, such that no hit in
//! progress is taken for one that was only counted. Runs in: hits in any but NMI; the taker in ordinary code.

use crate::points::chosen::Distance;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use kprof::format::point::{BUCKETS, PointState};

/// Counts that were taken, except for the buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcomes {
    /// The weight of the hits for which a record was asked, and of those whose record was lost.
    pub(crate) asked_weight: u64,
    pub(crate) lost_weight: u64,
    pub(crate) recorded: u64,
    pub(crate) lost: u64,
    /// Hits that were not chosen.
    pub(crate) unsampled: u64,
}

impl Outcomes {
    pub(crate) fn lost(lost: u64) -> Self {
        Self { lost, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The counts.
pub(crate) struct Asked {
    /// These hits, counted before anything else of them is, and their weights.
    hits: AtomicU64,
    weight: AtomicU64,
    recorded: AtomicU64,
    unsampled: AtomicU64,
    lost: AtomicU64,
    lost_weight: AtomicU64,
    distance: Distance,
    /// Of the point of allocations: how many bytes are left until one may get a record.
    pub(crate) countdown: AtomicI64,
}

/// What became of a hit for which a record was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Became {
    /// A record with its stack.
    Recorded,
    /// It was not chosen.
    Unsampled,
    /// It was chosen, and there was no room; or it was inside another hit.
    Lost,
}

impl Asked {
    pub(crate) const fn new() -> Self {
        Self {
            hits: AtomicU64::new(0),
            weight: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            unsampled: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            lost_weight: AtomicU64::new(0),
            distance: Distance::new(),
            countdown: AtomicI64::new(0),
        }
    }

    /// Counts a hit for which a record is asked. The caller counts it in its bucket next, with Release: whoever
    /// sees it there sees that a record was asked.
    #[inline(always)]
    pub(crate) fn ask(&self, weight: u64) {
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.weight.fetch_add(weight, Ordering::Relaxed);
    }

    /// Whether this hit is chosen for a record. Only for the one caller that writes records on this CPU.
    pub(crate) fn is_chosen(&self, state: PointState, weight: u64, random: impl FnMut() -> u64) -> bool {
        self.distance.is_reached(state, weight, random)
    }

    /// How far the next chosen hit is.
    pub(crate) fn distance(&self) -> &Distance {
        &self.distance
    }

    /// Says what has become of a hit, after it was counted in its bucket.
    #[inline(always)]
    pub(crate) fn became(&self, what: Became, weight: u64) {
        let counter = match what {
            Became::Recorded => &self.recorded,
            Became::Unsampled => &self.unsampled,
            Became::Lost => {
                self.lost_weight.fetch_add(weight, Ordering::Relaxed);
                &self.lost
            }
        };
        // Release: whoever sees it sees the hit in its bucket.
        counter.fetch_add(1, Ordering::Release);
    }

    /// Takes what became of hits, before the buckets are taken.
    pub(crate) fn take(&self) -> Outcomes {
        let swap = |count: &AtomicU64| count.swap(0, Ordering::Acquire);
        let (recorded, lost, unsampled) = (swap(&self.recorded), swap(&self.lost), swap(&self.unsampled));
        let (asked_weight, lost_weight) = (swap(&self.weight), swap(&self.lost_weight));
        Outcomes { asked_weight, lost_weight, recorded, lost, unsampled }
    }

    /// After the buckets were taken: puts hits in progress back, for which a record was asked and of which is not
    /// known yet what becomes of them. At most all of them are in a bucket already.
    pub(crate) fn settle(&self, outcomes: &Outcomes, taken: &mut [u64; BUCKETS], put_back: impl Fn(usize, u64)) {
        let known = outcomes.recorded + outcomes.lost + outcomes.unsampled;
        let hits = self.hits.swap(0, Ordering::Relaxed);
        let in_progress = hits.saturating_sub(known);
        if in_progress == 0 {
            return;
        }
        self.hits.fetch_add(in_progress, Ordering::Relaxed);
        let counted: u64 = taken.iter().sum();
        let mut rest = counted.saturating_sub(known).min(in_progress);
        for (bucket, count) in taken.iter_mut().enumerate() {
            let back = rest.min(*count);
            (*count, rest) = (*count - back, rest - back);
            put_back(bucket, back);
        }
    }

    /// Adds counts that were taken and could not be written, before the buckets are put back.
    pub(crate) fn put_hits_back(&self, taken: &Outcomes) {
        self.hits.fetch_add(taken.recorded + taken.lost + taken.unsampled, Ordering::Relaxed);
    }

    /// The same, after the buckets were put back.
    pub(crate) fn put_outcomes_back(&self, taken: &Outcomes) {
        self.weight.fetch_add(taken.asked_weight, Ordering::Relaxed);
        self.lost_weight.fetch_add(taken.lost_weight, Ordering::Relaxed);
        self.unsampled.fetch_add(taken.unsampled, Ordering::Release);
        self.lost.fetch_add(taken.lost, Ordering::Release);
        self.recorded.fetch_add(taken.recorded, Ordering::Release);
    }
}
