//! The ring of one CPU. Only whole records are written and read.
//!
//! ```text
//!            tail (oldest word kept)            head (next word to write)
//!   ───┬──────┬────────┬─────┬────────┬────────┬───────────── positions, in words since boot, 64 bits, never wrap
//!      │ free │ record │ rec │ record │ record │ free
//!   ───┴──────┴────────┴─────┴────────┴────────┴─────────────
//!   word of position p: words[p mod capacity]; used = head - tail; empty: 0, full: capacity; never confused
//! ```
//!
//! There is one producer, which runs in NMI (or is the sampler, or the holder of the meta lock). There is one consumer,
//! ordinary code that owns the stream. One Release store of `head` publishes a record. In drop mode the consumer moves
//! `tail`, after the reader has acknowledged; a record that does not fit is not published. In overwrite mode the
//! producer moves `tail` over whole old records before it writes; a reader that copies meanwhile compares `tail`
//! afterwards and discards its copy if it was overwritten.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

mod consumer;
mod position;
mod producer;
mod rounds;
mod storage;

#[cfg(all(test, not(kprof_loom)))]
pub(crate) mod tests;

use crate::sync::{AtomicU64, Ordering};
use core::sync::atomic::AtomicPtr;

pub(crate) use consumer::{Copy, NoCopy, TailMover, Torn};
pub(crate) use producer::{Sink, WORD_SHIFT};
pub(crate) use rounds::{Rounds, RoundsCell};
pub(crate) use storage::Words;

/// The producer writes at most this many words from the head on before it publishes them.
const LONGEST: u64 = if cfg!(kprof_loom) { 6 } else { crate::format::record::MAX_WORDS as u64 };

/// One record ring. All positions are in words.
///
/// What the producer writes at each record and what the owner writes lie in separate cache lines, so that neither waits
/// for the other's stores. They are 128 bytes apart because processors fetch cache lines in pairs.
#[repr(align(128))]
pub struct Ring {
    /// The memory of the ring: set once, by `install`; used by all CPUs.
    words: Words,
    producer: ProducerLine,
    tail: TailLine,
}

/// Written by the producer.
#[repr(align(128))]
struct ProducerLine {
    head: AtomicU64,
    /// Every position below `limit`, from `head` on, has at least `MIN_ROOM` contiguous free words after it. A free
    /// word stays free until the producer writes it, so `limit` is computed again only when `head` has reached it.
    limit: AtomicU64,
    /// Base pointer of the current lap: word `p` is at `origin + p`.
    origin: AtomicPtr<AtomicU64>,
}

/// Written by whoever moves the tail.
#[repr(align(128))]
struct TailLine {
    position: AtomicU64,
    /// Records that have left the ring since boot.
    removed: AtomicU64,
}

macro_rules! empty {
    ($words:expr) => {
        Self {
            words: $words,
            producer: ProducerLine {
                head: AtomicU64::new(0),
                limit: AtomicU64::new(0),
                origin: AtomicPtr::new(core::ptr::null_mut()),
            },
            tail: TailLine { position: AtomicU64::new(0), removed: AtomicU64::new(0) },
        }
    };
}

impl Ring {
    /// A ring without memory. It takes no record.
    #[cfg(not(kprof_loom))]
    pub(crate) const fn none() -> Self {
        empty!(Words::none())
    }

    /// An empty ring over `words`.
    #[cfg(kprof_loom)]
    pub(crate) fn new(words: Words) -> Self {
        empty!(words)
    }

    /// Gives the ring its memory.
    #[cfg(not(kprof_loom))]
    pub fn install(&self, memory: &'static mut [core::mem::MaybeUninit<u64>]) -> Result<(), crate::errors::BadMemory> {
        self.words.install(memory)
    }

    /// This ring, if it has memory.
    #[cfg(not(kprof_loom))]
    #[inline(always)]
    pub fn get(&self) -> Option<&Self> {
        (self.capacity() > 1).then_some(self)
    }

    /// The number of words that the ring can hold.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> u64 {
        self.words.capacity()
    }

    /// Where the next record will begin.
    pub fn head(&self) -> u64 {
        self.producer.head.load(Ordering::Acquire)
    }

    /// How many records have left the ring since boot.
    pub(crate) fn removed(&self) -> u64 {
        self.tail.removed.load(Ordering::Relaxed)
    }

    /// Counts records that leave the ring. Only whoever moves the tail may call it.
    fn remove(&self, records: u64) {
        self.tail.removed.store(self.tail.removed.load(Ordering::Relaxed).wrapping_add(records), Ordering::Relaxed);
    }

    /// Where the oldest kept record begins.
    pub(crate) fn tail(&self) -> u64 {
        self.tail.position.load(Ordering::Acquire)
    }
}
