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

pub(crate) use consumer::Torn;
pub(crate) use producer::{Full, Sink};
pub(crate) use storage::{BadMemory, Words};

/// One record ring. All positions are in words.
pub(crate) struct Ring {
    words: Words,
    head: AtomicU64,
    tail: AtomicU64,
}

impl Ring {
    /// An empty ring over `words`.
    pub(crate) fn new(words: Words) -> Self {
        Self { words, head: AtomicU64::new(0), tail: AtomicU64::new(0) }
    }

    /// Words it can hold.
    pub(crate) fn capacity(&self) -> u64 {
        self.words.capacity()
    }

    /// Where the next record will begin.
    pub(crate) fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// Where the oldest kept record begins.
    pub(crate) fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }
}
