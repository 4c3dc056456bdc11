//! What one core says of itself: a place and a task, behind a sequence number.
//!
//! In: from that core, interrupts off, a word at each entry and exit, a task at each switch. Out: to the sampler
//! core, both as they stood together, and whether anything has changed since. Runs in: see [`super`]. One writer; the
//! reader never waits. A place is one word, so a core that enters or leaves only raises the number behind it; it is odd
//! while place and task change together. The number guards more than these words: while it stands, the frame that
//! the place points to has not been left, so whatever was read there belongs to it.

use crate::sync::{AtomicU64, Ordering, fence};

/// A core's own line: it writes at every entry.
#[repr(align(128))]
pub(crate) struct PublishedCell {
    sequence: AtomicU64,
    place: AtomicU64,
    task: AtomicU64,
    idle: AtomicU64,
}

/// What was read of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// A [`crate::Published`], as its word.
    pub(crate) place: u64,
    pub(crate) task: u64,
    pub(crate) is_idle: bool,
    /// To be asked about later.
    pub(crate) sequence: u64,
}

macro_rules! empty {
    () => {
        Self { sequence: AtomicU64::new(0), place: AtomicU64::new(0), task: AtomicU64::new(0), idle: AtomicU64::new(0) }
    };
}

impl PublishedCell {
    /// In the kernel, by no entry, in no task.
    #[cfg(not(kprof_loom))]
    pub(crate) const fn new() -> Self {
        empty!()
    }

    /// The same: loom's atomics cannot be made in a `const`.
    #[cfg(kprof_loom)]
    pub(crate) fn new() -> Self {
        empty!()
    }

    /// Changes the place; gives the one before. Its frame is whole, and that of the place before has not been left.
    #[inline(always)]
    pub(crate) fn replace(&self, place: u64) -> u64 {
        let before = self.place.load(Ordering::Relaxed);
        // Release: who sees the place sees its frame.
        self.place.store(place, Ordering::Release);
        self.advance(2);
        before
    }

    /// Changes place and task; gives the place before.
    pub(crate) fn switch(&self, place: u64, task: u64, is_idle: bool) -> u64 {
        self.advance(1);
        let before = self.place.load(Ordering::Relaxed);
        self.place.store(place, Ordering::Relaxed);
        self.task.store(task, Ordering::Relaxed);
        self.idle.store(is_idle.into(), Ordering::Relaxed);
        self.advance(1);
        before
    }

    /// Raises the number behind everything that was stored before, and ahead of everything that is stored from here on:
    /// be it here, be it where a frame was that is left.
    #[inline(always)]
    fn advance(&self, by: u64) {
        self.sequence.store(self.sequence.load(Ordering::Relaxed).wrapping_add(by), Ordering::Release);
        fence(Ordering::Release);
    }

    /// What stands there; `None` while it changes.
    pub(crate) fn read(&self) -> Option<Seen> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let [place, task, idle] = [&self.place, &self.task, &self.idle].map(|word| word.load(Ordering::Relaxed));
        let seen = Seen { place, task, is_idle: idle != 0, sequence };
        (sequence & 1 == 0 && self.still(sequence)).then_some(seen)
    }

    /// Whether nothing has changed since.
    pub(crate) fn still(&self, sequence: u64) -> bool {
        // Pairs with the fence in `advance`, and with the store of the place.
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == sequence
    }
}
