//! The ring of one CPU: whole records in, whole records out.
//!
//! ```text
//!            tail (oldest word kept)            head (next word to write)
//!   ───┬──────┬────────┬─────┬────────┬────────┬───────────── positions, in words since boot, 64 bits, never wrap
//!      │ free │ record │ rec │ record │ record │ free
//!   ───┴──────┴────────┴─────┴────────┴────────┴─────────────
//!   word of position p: words[p mod capacity]; used = head - tail; empty: 0, full: capacity; never confused
//! ```
//!
//! Producer: one, in NMI (or the sampler, or the meta lock's holder). Consumer: one, ordinary code, behind a claim.
//! One Release store of `head` publishes a record. Drop mode: the consumer moves `tail`, when the reader has
//! acknowledged; a record that does not fit is not begun. Overwrite mode: the producer moves `tail` over whole old
//! records before it writes; whoever reads meanwhile notices by `tail` afterwards and throws its copy away.

mod consumer;
mod position;
mod producer;
mod storage;

#[cfg(all(test, not(kprof_loom)))]
pub(crate) mod tests;

use crate::sync::{AtomicU64, Ordering};
use core::sync::atomic::AtomicPtr;

pub(crate) use consumer::{TailMover, Torn};
pub(crate) use producer::{Sink, WORD_SHIFT};
pub(crate) use storage::Words;

/// One record ring. All positions are in words.
pub(crate) struct Ring {
    words: Words,
    head: AtomicU64,
    tail: AtomicU64,
    /// Records that have left the ring since boot; kept by who moves the tail.
    removed: AtomicU64,
    /// The producer's own: a record that begins below has the least room behind it: places that are free and lie side
    /// by side. What was free once stays free, so it is looked at again only when `head` has reached it.
    limit: AtomicU64,
    /// Where position 0 would lie, were there as many words before those of `limit` as there are positions.
    origin: AtomicPtr<AtomicU64>,
}

impl Ring {
    /// A ring without memory, which takes nothing.
    #[cfg(not(kprof_loom))]
    pub(crate) const fn none() -> Self {
        Self {
            words: Words::none(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            origin: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// An empty ring over `words`.
    #[cfg(kprof_loom)]
    pub(crate) fn new(words: Words) -> Self {
        Self {
            words,
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            origin: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Gives it its memory.
    #[cfg(not(kprof_loom))]
    pub(crate) fn install(
        &self,
        memory: &'static mut [core::mem::MaybeUninit<u64>],
    ) -> Result<(), crate::errors::BadMemory> {
        self.words.install(memory)
    }

    /// This ring, if it has memory.
    #[cfg(not(kprof_loom))]
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&Self> {
        (self.capacity() > 1).then_some(self)
    }

    /// Words it can hold.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> u64 {
        self.words.capacity()
    }

    /// Where the next record will begin.
    pub(crate) fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// How many records have left the ring since boot.
    pub(crate) fn removed(&self) -> u64 {
        self.removed.load(Ordering::Relaxed)
    }

    /// Counts records that leave the ring. Only who moves the tail may.
    fn remove(&self, records: u64) {
        self.removed.store(self.removed.load(Ordering::Relaxed).wrapping_add(records), Ordering::Relaxed);
    }

    /// Where the oldest kept record begins.
    pub(crate) fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }
}
