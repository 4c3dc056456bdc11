//! The reading end: copies whole records, gives up nothing until told.
//!
//! In: a position at which a record begins. Out: copies, lengths, counts. Runs in: ordinary code, one reader at a time
//! (the owner word sees to that); in overwrite mode, and after a panic, beside a running producer. Empty: no record. A
//! record that was overwritten while it was copied is [`Torn`] and no word of it may be used.

use super::{Ring, position};
use crate::sync::{AtomicU64, Ordering, fence};

/// The producer took the place of the record while it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Torn;

impl Ring {
    /// The length in words of the record at `at`; `None` at the head.
    pub(crate) fn record_at(&self, at: u64) -> Result<Option<u64>, Torn> {
        let head = self.head();
        if at >= head {
            return Ok(None);
        }
        let first = self.words.at(at).load(Ordering::Relaxed);
        self.still_there(at)?;
        position::record_words(first, head - at).map(Some).ok_or(Torn)
    }

    /// Copies the words from `at` on as bytes, little endian.
    pub(crate) fn copy(&self, at: u64, to: &mut [u8]) -> Result<(), Torn> {
        let straight = self.words.from(at);
        let to = to.as_chunks_mut().0;
        let (before_the_end, after_it) = to.split_at_mut(to.len().min(straight.len()));
        copy_words(straight, before_the_end);
        copy_words(self.words.all(), after_it);
        self.still_there(at)
    }

    /// One word. Beside a running recorder only a look: nothing says that it is still part of the record.
    pub(crate) fn word(&self, position: u64) -> u64 {
        self.words.at(position).load(Ordering::Relaxed)
    }

    /// How many whole records lie from `from` up to `to`; `None` when `to` is not where a record ends.
    pub(crate) fn count(&self, from: u64, to: u64) -> Option<u64> {
        let (mut at, mut count) = (from, 0);
        let head = self.head();
        while at < to.min(head) {
            at += position::record_words(self.word(at), head - at)?;
            count += 1;
        }
        // What was given up meanwhile made the way here a guess.
        self.still_there(from).ok().filter(|()| at == to).map(|()| count)
    }

    /// Whether nothing from `at` on has been given up to the producer before now.
    #[inline]
    fn still_there(&self, at: u64) -> Result<(), Torn> {
        // Pairs with the fence in `reserve_overwriting`: if one of the words read above was a new one, the tail that
        // was moved before it was written is visible now.
        fence(Ordering::Acquire);
        if self.tail.position.load(Ordering::Relaxed) > at { Err(Torn) } else { Ok(()) }
    }
}

/// The right of the one who moves the tail, where that is not the producer.
pub(crate) struct TailMover<'r>(&'r Ring);

impl<'r> TailMover<'r> {
    /// To be made by the stream's owner only, and not while the producer moves the tail.
    pub(crate) fn of(ring: &'r Ring) -> Self {
        Self(ring)
    }

    /// Frees everything below `to`, which is the end of `records` records from the tail on.
    pub(crate) fn release(&self, to: u64, records: u64) {
        self.0.remove(records);
        // Release: our copies were made before the producer may write over them.
        self.0.tail.position.store(to, Ordering::Release);
    }
}

/// As many words as `to` has room for; four at a time, since nothing else makes a loop over atomics shorter.
fn copy_words(words: &[AtomicU64], to: &mut [[u8; 8]]) {
    let (fours, rest) = to.as_chunks_mut::<4>();
    let (words, last) = words.split_at((fours.len() * 4).min(words.len()));
    let copy = |(to, word): (&mut [u8; 8], &AtomicU64)| *to = word.load(Ordering::Relaxed).to_le_bytes();
    for (to, words) in fours.iter_mut().zip(words.as_chunks::<4>().0) {
        to.iter_mut().zip(words).for_each(copy);
    }
    rest.iter_mut().zip(last).for_each(copy);
}
