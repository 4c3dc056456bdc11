//! What one core publishes about itself: a place and a task, protected by a sequence number.
//!
//! In: from that core, with interrupts off, a word at each entry and exit, and a task at each switch. Out: for the
//! sampler CPU, place and task of the same moment, and whether either has changed since they were read. Runs in: see
//! [`super`]. There is one writer; the reader never waits. A place is one word, so a core that enters or leaves only
//! raises the sequence number after it has stored the place. The number is odd while place and task change together.
//! The number protects more than these words. As long as it is unchanged, the core has not left the frame that the
//! place points to, so every word that was read from the stack there belongs to that frame.

use crate::sync::{AtomicU64, Ordering, fence};

/// A separate cache line for each core, because the core writes it at every entry.
#[repr(align(128))]
pub(crate) struct PublishedCell {
    sequence: AtomicU64,
    place: AtomicU64,
    task: AtomicU64,
    idle: AtomicU64,
}

/// A consistent copy of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// A [`crate::Published`], encoded as a word.
    pub(crate) place: u64,
    pub(crate) task: u64,
    pub(crate) is_idle: bool,
    /// To be passed to `still` later.
    pub(crate) sequence: u64,
}

macro_rules! empty {
    () => {
        Self { sequence: AtomicU64::new(0), place: AtomicU64::new(0), task: AtomicU64::new(0), idle: AtomicU64::new(0) }
    };
}

impl PublishedCell {
    /// The state at boot: the core is in the kernel, not in an entry, and runs no task.
    #[cfg(not(kprof_loom))]
    pub(crate) const fn new() -> Self {
        empty!()
    }

    /// The state at boot. This function is not `const`, because loom's atomics cannot be made in a `const`.
    #[cfg(kprof_loom)]
    pub(crate) fn new() -> Self {
        empty!()
    }

    /// Changes the place and returns the previous one. The frame of the new place must be complete, and the frame of
    /// the previous place must not have been left.
    #[inline(always)]
    pub(crate) fn replace(&self, place: u64) -> u64 {
        let before = self.place.load(Ordering::Relaxed);
        // Release: whoever sees the place sees its frame.
        self.place.store(place, Ordering::Release);
        self.advance(2);
        before
    }

    /// Changes place and task, and returns the previous place.
    pub(crate) fn switch(&self, place: u64, task: u64, is_idle: bool) -> u64 {
        self.advance(1);
        let before = self.place.load(Ordering::Relaxed);
        self.place.store(place, Ordering::Relaxed);
        self.task.store(task, Ordering::Relaxed);
        self.idle.store(is_idle.into(), Ordering::Relaxed);
        self.advance(1);
        before
    }

    /// Raises the number. This is ordered after all earlier stores and before all later ones, both to this cell and to
    /// the stack memory of a frame that is left.
    #[inline(always)]
    fn advance(&self, by: u64) {
        self.sequence.store(self.sequence.load(Ordering::Relaxed).wrapping_add(by), Ordering::Release);
        fence(Ordering::Release);
    }

    /// A consistent copy of the cell; `None` while it changes.
    pub(crate) fn read(&self) -> Option<Seen> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let [place, task, idle] = [&self.place, &self.task, &self.idle].map(|word| word.load(Ordering::Relaxed));
        let seen = Seen { place, task, is_idle: idle != 0, sequence };
        (sequence & 1 == 0 && self.still(sequence)).then_some(seen)
    }

    /// Whether nothing has changed since `sequence` was read.
    pub(crate) fn still(&self, sequence: u64) -> bool {
        // Pairs with the fence in `advance`, and with the store of the place.
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == sequence
    }
}
