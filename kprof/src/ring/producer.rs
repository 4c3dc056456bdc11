//! The writing end: straight into the ring's free space, published by one store.
//!
//! In: words of one record. Out: a record in the ring, or nothing. Context: NMI on the ring's CPU (or the one other
//! producer of that ring). Full: [`Full`], nothing was published and the words written are free space still. Nested:
//! cannot happen, the handler lets only one level in.

use super::{Ring, position};
use crate::format::record::{Header, Kind};
use crate::sync::{AtomicU64, Ordering, fence};

/// The record does not fit into the room that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Room for one record, being filled.
pub(crate) struct Sink<'r> {
    piece: &'r [AtomicU64],
    at: usize,
    rest: &'r [AtomicU64],
    written: usize,
    discards: bool,
}

impl Ring {
    /// Room for one record, as much as there is. Drop mode.
    #[inline(always)]
    pub(crate) fn room(&self) -> Sink<'_> {
        let head = self.head.load(Ordering::Relaxed);
        // Acquire: what the reader has copied before it moved the tail was read before we write over it.
        let tail = self.tail.load(Ordering::Acquire);
        let (piece, rest) = self.words.pieces(head, position::room(self.capacity(), head, tail));
        Sink { piece, at: 0, rest, written: 0, discards: false }
    }

    /// Room for a record of up to `words`, made by giving up the oldest ones; returns how many those were.
    pub(crate) fn room_by_force(&self, words: u64) -> (Sink<'_>, u64) {
        let (head, mut tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        let mut overwritten = 0;
        // At most one round per record in the ring; each is at least six words.
        while position::room(self.capacity(), head, tail) < words && tail < head {
            let first = self.words.at(tail).load(Ordering::Relaxed);
            // Never `None`: the ring holds whole records that only this side writes. If it were, all is given up.
            tail = position::record_words(first, head - tail).map_or(head, |length| tail + length);
            overwritten += 1;
        }
        if overwritten > 0 {
            // The new tail must be seen by whoever sees one of the words written after it.
            self.tail.store(tail, Ordering::Relaxed);
            fence(Ordering::Release);
        }
        let (piece, rest) = self.words.pieces(head, position::room(self.capacity(), head, tail));
        (Sink { piece, at: 0, rest, written: 0, discards: false }, overwritten)
    }

    /// Writes the first word and publishes what was put into the sink, whose first word was a placeholder.
    #[inline(always)]
    pub(crate) fn publish(&self, kind: Kind, words: usize) {
        let head = self.head.load(Ordering::Relaxed);
        self.words.at(head).store(Header { kind, words: words as u16 }.encode(), Ordering::Relaxed);
        // Release: who sees the new head sees every word of the record.
        self.head.store(head + words as u64, Ordering::Release);
    }
}

impl<'r> Sink<'r> {
    /// A sink that is never full, for a walk whose words nobody wants: `scratch` is written over and over.
    pub(crate) fn discard(scratch: &'r [AtomicU64]) -> Self {
        Self { piece: scratch, at: 0, rest: &[], written: 0, discards: true }
    }

    /// Adds one word.
    #[inline(always)]
    pub(crate) fn push(&mut self, word: u64) -> Result<(), Full> {
        if let Some(place) = self.piece.get(self.at) {
            place.store(word, Ordering::Relaxed);
            self.at += 1;
            return Ok(());
        }
        self.push_after_end(word)
    }

    /// Words put in so far.
    #[inline(always)]
    pub(crate) fn words(&self) -> usize {
        self.written + self.at
    }

    /// The physical end of the ring is reached: goes on at its beginning, if there is room.
    #[cold]
    fn push_after_end(&mut self, word: u64) -> Result<(), Full> {
        if self.discards {
            self.rest = self.piece;
        }
        let Some(place) = self.rest.first() else { return Err(Full) };
        place.store(word, Ordering::Relaxed);
        self.written += self.at;
        (self.piece, self.rest, self.at) = (self.rest, &[], 1);
        Ok(())
    }
}
