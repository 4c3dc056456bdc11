//! The writing end: straight into the ring's free space, published by one store.
//!
//! In: words of one record. Out: a record in the ring, or nothing. Runs in: NMI on the ring's CPU (or the one other
//! producer of that ring). Full: the sink says so at the end, nothing was published and the words written are free
//! space still. Nested: cannot happen, the handler lets only one level in.
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

use super::{Ring, position};
use crate::format::record::{Header, Kind};
use crate::sync::{AtomicU64, Ordering, fence};
use core::marker::PhantomData;
use core::num::NonZero;
use core::{hint, slice};

/// Room for one record, being filled.
pub(crate) struct Sink<'r> {
    piece: &'r [AtomicU64],
    at: usize,
    /// The whole ring, whose beginning follows its end, and how many words of it may be used then.
    words: &'r [AtomicU64],
    beyond: usize,
    written: usize,
    is_full: bool,
}

/// So many places there are at least from just before the limit on.
const MIN_ROOM: usize = if cfg!(kprof_loom) { 8 } else { 32 };

/// Free places from the ring's head on, side by side: a header, then rounds.
#[derive(Clone, Copy)]
pub(crate) struct Reservation<'r, const H: usize, const R: usize> {
    first: *const AtomicU64,
    rounds: NonZero<usize>,
    ring: PhantomData<&'r Ring>,
}

/// Bytes to words, by a shift.
pub(crate) const WORD_SHIFT: u32 = size_of::<u64>().ilog2();

/// Whole rounds of `R` words in so many.
#[inline(always)]
const fn per_round<const R: usize>(words: usize) -> usize {
    match words.checked_div(R) {
        Some(rounds) => rounds,
        None => 0,
    }
}

impl Ring {
    /// Where the next record begins, and places for a header of `H` words, a round of `R` words, and `more` words'
    /// worth of further rounds behind it, side by side, if it is known that there are as many.
    #[inline(always)]
    pub(crate) fn places<const H: usize, const R: usize>(&self, more: u32) -> Option<(u64, Reservation<'_, H, R>)> {
        const { assert!(H + R <= MIN_ROOM) };
        let head = self.producer.head.load(Ordering::Relaxed);
        if head.wrapping_add(u64::from(more)) >= self.producer.limit.load(Ordering::Relaxed) {
            return None;
        }
        let first = self.producer.origin.load(Ordering::Relaxed).wrapping_add(head as usize);
        // SAFETY: all positions below `limit` that are not below `head` have the least room behind them: free places,
        // side by side, reached from this origin; `look_ahead`, which sets both, was called in their lap. So it is not
        // null, which saves the caller a look.
        unsafe { hint::assert_unchecked(!first.is_null()) };
        Some((
            head,
            Reservation {
                first,
                ring: PhantomData,
                rounds: NonZero::<usize>::MIN.saturating_add(per_round::<R>(more as usize)),
            },
        ))
    }

    /// The address of the place at the head, for who has been given [`Ring::places`] there.
    #[inline(always)]
    pub(crate) fn head_address(&self) -> usize {
        self.producer
            .origin
            .load(Ordering::Relaxed)
            .wrapping_add(self.producer.head.load(Ordering::Relaxed) as usize)
            .addr()
    }

    /// Looks how far the free places that lie side by side reach now. Drop mode, between two records.
    pub(crate) fn look_ahead(&self) {
        let head = self.producer.head.load(Ordering::Relaxed);
        // Acquire: what the reader has copied before it moved the tail was read before we write over it.
        let free = self.tail.position.load(Ordering::Acquire).wrapping_add(self.capacity());
        let physical_end = (head | self.capacity().wrapping_sub(1)).wrapping_add(1);
        self.producer
            .limit
            .store(free.min(physical_end).wrapping_add(1).saturating_sub(MIN_ROOM as u64), Ordering::Relaxed);
        self.producer.origin.store(self.words.before(head), Ordering::Relaxed);
    }

    /// Room for one record, as much as there is. Drop mode.
    pub(crate) fn room(&self) -> Sink<'_> {
        self.sink(self.producer.head.load(Ordering::Relaxed), self.tail.position.load(Ordering::Acquire))
    }

    /// Room for a record of up to `words`, made by giving up the oldest ones; returns how many those were.
    pub(crate) fn reserve_overwriting(&self, words: u64) -> (Sink<'_>, u64) {
        let (head, mut tail) = (self.producer.head.load(Ordering::Relaxed), self.tail.position.load(Ordering::Relaxed));
        let words = words.min(self.capacity());
        if position::room(self.capacity(), head, tail) >= words {
            return (self.sink(head, tail), 0);
        }
        // At most one round per record in the ring; each is at least six words.
        let mut overwritten = 0_u64;
        while position::room(self.capacity(), head, tail) < words {
            // The ring holds whole records that only this side writes; were it not so, this would end all the same.
            let first = self.words.at(tail).load(Ordering::Relaxed);
            tail = tail.wrapping_add(position::own_record_words(first)).min(head);
            overwritten = overwritten.wrapping_add(1);
        }
        self.remove(overwritten);
        // The new tail must be seen by whoever sees one of the words written after it.
        self.tail.position.store(tail, Ordering::Relaxed);
        fence(Ordering::Release);
        (self.sink(head, tail), overwritten)
    }

    fn sink(&self, head: u64, tail: u64) -> Sink<'_> {
        let room = position::room(self.capacity(), head, tail) as usize;
        let piece = self.words.from(head);
        match piece.get(..room) {
            Some(piece) => Sink::new(piece, &[], 0),
            None => Sink::new(piece, self.words.all(), room.wrapping_sub(piece.len())),
        }
    }

    /// Writes the first word and publishes what was put into the sink, whose first word was a placeholder.
    #[inline(always)]
    pub(crate) fn publish(&self, kind: Kind, words: usize) {
        self.publish_at(self.words.at(self.producer.head.load(Ordering::Relaxed)), kind, words);
    }

    /// The same for who knows the head's place already.
    #[inline(always)]
    pub(crate) fn publish_at(&self, place: &AtomicU64, kind: Kind, words: usize) {
        // A sum, so that the length needs no masking: it has 16 bits.
        place.store(Header { kind, words: 0 }.encode().wrapping_add(words as u64), Ordering::Relaxed);
        // Release: who sees the new head sees every word of the record.
        self.producer
            .head
            .store(self.producer.head.load(Ordering::Relaxed).wrapping_add(words as u64), Ordering::Release);
    }
}

impl<'r, const H: usize, const R: usize> Reservation<'r, H, R> {
    /// As many places as the header has, `skip` further on; as far as the rounds reach.
    #[inline(always)]
    pub(crate) fn further(&self, skip: usize) -> &'r [AtomicU64; H] {
        let skip = skip.min(self.rounds.get().saturating_mul(R));
        // SAFETY: as in `header`; there are no more than the rounds between.
        unsafe { &*self.first.add(skip).cast() }
    }

    /// The first places.
    #[inline(always)]
    pub(crate) fn header(&self) -> &'r [AtomicU64; H] {
        // SAFETY: `places` made sure of `H + rounds * R` words from `first` on, side by side, that live as the ring
        // does.
        unsafe { &*self.first.cast() }
    }

    /// The rounds, which begin behind the first `skip` places of the header.
    #[inline(always)]
    pub(crate) fn rounds(&self, skip: usize) -> &'r [[AtomicU64; R]] {
        let skip = skip.min(H);
        // SAFETY: as in `header`; `skip` places and the rounds are no more.
        unsafe { slice::from_raw_parts(self.first.add(skip).cast(), self.rounds.get()) }
    }

    /// How many places lie before this address, which is one of theirs or just behind the last.
    #[inline(always)]
    pub(crate) fn before(&self, address: usize) -> usize {
        address.wrapping_sub(self.first.addr()) >> WORD_SHIFT
    }
}

impl<'r> Sink<'r> {
    const fn new(piece: &'r [AtomicU64], words: &'r [AtomicU64], beyond: usize) -> Self {
        Self { piece, at: 0, words, beyond, written: 0, is_full: false }
    }

    /// A sink that is never full, for a walk whose words nobody wants: `scratch` is written over and over.
    pub(crate) fn discard(scratch: &'r [AtomicU64]) -> Self {
        Self::new(scratch, scratch, usize::MAX)
    }

    /// A sink over a few words, for tests.
    #[cfg(test)]
    pub(crate) fn over(piece: &'r [AtomicU64]) -> Self {
        Self::new(piece, &[], 0)
    }

    /// Adds one word, if there is room: a record that does not fit is known by [`Sink::is_full`] at its end.
    #[inline(never)]
    pub(crate) fn push(&mut self, word: u64) {
        self.put(word);
    }

    /// The first words of a record.
    #[inline(always)]
    pub(crate) fn begin<const N: usize>(&mut self, words: &[u64; N]) {
        match self.piece.first_chunk::<N>() {
            Some(places) => {
                places.iter().zip(words).for_each(|(place, word)| place.store(*word, Ordering::Relaxed));
                self.at = N;
            }
            None => self.push_each(words),
        }
    }

    #[cold]
    #[inline(never)]
    fn push_each(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.put(*word));
    }

    #[inline(always)]
    fn put(&mut self, word: u64) {
        if self.at >= self.piece.len() {
            self.go_round();
        }
        if let Some(place) = self.piece.get(self.at) {
            place.store(word, Ordering::Relaxed);
            self.at = self.at.wrapping_add(1);
        }
    }

    /// Whether a word had no room.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The next places, at most `most`, as far as they lie side by side; to be filled in order, then `advance`d over.
    #[inline(always)]
    pub(crate) fn contiguous(&self, most: usize) -> &'r [AtomicU64] {
        let places = self.piece.get(self.at..).unwrap_or_default();
        places.get(..most).unwrap_or(places)
    }

    /// Takes over the first `filled` of the places that `contiguous` gave.
    #[inline(always)]
    pub(crate) fn advance(&mut self, filled: usize) {
        self.at = self.at.saturating_add(filled);
    }

    /// Words put in so far.
    #[inline(always)]
    pub(crate) fn words(&self) -> usize {
        self.written.saturating_add(self.at)
    }

    /// The physical end of the ring is reached: goes on at its beginning, if there is room.
    #[cold]
    #[inline(never)]
    fn go_round(&mut self) {
        let piece = self.words.get(..self.beyond).unwrap_or(self.words);
        self.is_full |= piece.is_empty();
        self.written = self.written.saturating_add(self.at);
        self.beyond = self.beyond.saturating_sub(piece.len());
        (self.piece, self.at) = (piece, 0);
    }
}
