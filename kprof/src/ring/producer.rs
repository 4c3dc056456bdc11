//! The writing end: records are written directly into the ring's free space and published by one store.
//!
//! In: words of one record. Out: a record in the ring, or nothing. Runs in: NMI on the ring's CPU (or the one other
//! producer of that ring). Full: `Sink::is_full` says so after the last word, nothing is published, and the words
//! written are still free space. Nested: cannot happen, because the handler lets only one level in.

use super::{Ring, Rounds, position};
use crate::format::record::{Header, Kind};
use crate::sync::{AtomicU64, Ordering, fence};
use core::marker::PhantomData;
use core::num::NonZero;
use core::{hint, slice};

/// Free space for one record that is being written.
pub(crate) struct Sink<'r> {
    piece: &'r [AtomicU64],
    at: usize,
    /// The whole ring. Once `piece` is full, writing continues at its beginning; `beyond` words may be used there.
    words: &'r [AtomicU64],
    beyond: usize,
    written: usize,
    is_full: bool,
}

/// Every position below `limit` has at least this many contiguous free words after it.
pub(super) const MIN_ROOM: usize = if cfg!(kprof_loom) { 8 } else { 32 };

/// Contiguous free words starting at the ring's head: a header, then rounds.
#[derive(Clone, Copy)]
pub(crate) struct Reservation<'r, const H: usize, const R: usize> {
    first: *const AtomicU64,
    rounds: NonZero<usize>,
    ring: PhantomData<&'r Ring>,
}

/// The shift that converts bytes to words.
pub(crate) const WORD_SHIFT: u32 = size_of::<u64>().ilog2();

/// The number of whole rounds of `R` words in `words`.
#[inline(always)]
const fn per_round<const R: usize>(words: usize) -> usize {
    match words.checked_div(R) {
        Some(rounds) => rounds,
        None => 0,
    }
}

impl Ring {
    /// Where the next record begins, and contiguous free words for a header of `H` words, a round of `R` words, and
    /// `more` rounds. `None` if these words are not known to be free.
    #[inline(always)]
    pub(crate) fn reserve<const H: usize, const R: usize>(
        &self,
        more: Rounds<R>,
    ) -> Option<(u64, Reservation<'_, H, R>)> {
        const { assert!(H + R <= MIN_ROOM) };
        let more = more.words();
        let head = self.producer.head.load(Ordering::Relaxed);
        if head.wrapping_add(u64::from(more)) >= self.producer.limit.load(Ordering::Relaxed) {
            return None;
        }
        let first = self.producer.origin.load(Ordering::Relaxed).wrapping_add(head as usize);
        // SAFETY: every position that is not below `head` and is below `limit` has at least `MIN_ROOM` contiguous free
        // words after it. They are reached from this origin, because `look_ahead`, which sets both, was called in the
        // same lap. So the pointer is not null. Saying so saves the caller a check.
        unsafe { hint::assert_unchecked(!first.is_null()) };
        before_words();
        Some((
            head,
            Reservation {
                first,
                ring: PhantomData,
                rounds: NonZero::<usize>::MIN.saturating_add(per_round::<R>(more as usize)),
            },
        ))
    }

    /// The word at the head, and `N` contiguous words that begin `skip` words after it. All words in between are free
    /// too. `None` if these words are not known to be free.
    #[inline(always)]
    pub(crate) fn reserve_after<const N: usize>(&self, skip: u32) -> Option<(&AtomicU64, &[AtomicU64; N])> {
        const { assert!(N <= MIN_ROOM) };
        let head = self.producer.head.load(Ordering::Relaxed);
        if head.wrapping_add(u64::from(skip)) >= self.producer.limit.load(Ordering::Relaxed) {
            return None;
        }
        let first = self.producer.origin.load(Ordering::Relaxed).wrapping_add(head as usize);
        let after = first.wrapping_add(skip as usize).cast::<[AtomicU64; N]>();
        // SAFETY: as in `reserve`, for the positions `head` and `head + skip`. Both are below `limit`: positions count
        // words since boot, so the sum does not wrap.
        unsafe {
            hint::assert_unchecked(!first.is_null() && !after.is_null());
            Some((&*first, &*after))
        }
    }

    /// As [`Ring::reserve_after`], for a number of words that is known at run time: they begin `skip` words after the
    /// head.
    #[inline(always)]
    pub(crate) fn room_after(&self, skip: u32, words: usize) -> Option<&[AtomicU64]> {
        // Every position below `limit` has `MIN_ROOM` words after it, so the last one below it may be `more` further.
        let more = words.saturating_sub(MIN_ROOM) as u32;
        self.reserve_after::<MIN_ROOM>(skip.checked_add(more)?)?;
        let head = self.producer.head.load(Ordering::Relaxed) as usize;
        let first = self.producer.origin.load(Ordering::Relaxed).wrapping_add(head).wrapping_add(skip as usize);
        // SAFETY: as in `reserve`: the positions from `head + skip` up to `head + skip + more` are below `limit`, and
        // the last one has `MIN_ROOM` contiguous free words after it.
        Some(unsafe { slice::from_raw_parts(first, words) })
    }

    /// Recomputes `limit` and `origin`: how many contiguous words are free, and where they are. For drop mode, between
    /// two records.
    pub(crate) fn look_ahead(&self) {
        let head = self.producer.head.load(Ordering::Relaxed);
        // Acquire: the reader finished its copies before it moved the tail, so they are complete before these words are
        // written again.
        let free = self.tail.position.load(Ordering::Acquire).wrapping_add(self.capacity());
        let physical_end = (head | self.capacity().wrapping_sub(1)).wrapping_add(1);
        self.producer
            .limit
            .store(free.min(physical_end).wrapping_add(1).saturating_sub(MIN_ROOM as u64), Ordering::Relaxed);
        self.producer.origin.store(self.words.before(head), Ordering::Relaxed);
    }

    /// All free space, for one record. For drop mode.
    pub(crate) fn room(&self) -> Sink<'_> {
        self.sink(self.producer.head.load(Ordering::Relaxed), self.tail.position.load(Ordering::Acquire))
    }

    /// Space for a record of up to `words`, made by overwriting the oldest records. Also returns how many were
    /// overwritten.
    pub(crate) fn reserve_overwriting(&self, words: u64) -> (Sink<'_>, u64) {
        let (head, mut tail) = (self.producer.head.load(Ordering::Relaxed), self.tail.position.load(Ordering::Relaxed));
        let words = words.min(self.capacity());
        if position::room(self.capacity(), head, tail) >= words {
            return (self.sink(head, tail), 0);
        }
        // At most one iteration per record in the ring, and each record has at least six words.
        let mut overwritten = 0_u64;
        while position::room(self.capacity(), head, tail) < words {
            // The ring holds whole records that only the producer writes. Even if that were not so, the loop would end,
            // because each length is at least 1.
            let first = self.words.at(tail).load(Ordering::Relaxed);
            tail = tail.wrapping_add(position::own_record_words(first)).min(head);
            overwritten = overwritten.wrapping_add(1);
        }
        self.remove(overwritten);
        self.tail.position.store(tail, Ordering::Relaxed);
        (self.sink(head, tail), overwritten)
    }

    fn sink(&self, head: u64, tail: u64) -> Sink<'_> {
        before_words();
        let room = position::room(self.capacity(), head, tail) as usize;
        let piece = self.words.from(head);
        match piece.get(..room) {
            Some(piece) => Sink::new(piece, &[], 0),
            None => Sink::new(piece, self.words.all(), room.wrapping_sub(piece.len())),
        }
    }

    /// Writes the first word of the record, for which the sink had a placeholder, and publishes the record.
    #[inline(always)]
    pub(crate) fn publish(&self, kind: Kind, words: usize) {
        self.publish_at(self.words.at(self.producer.head.load(Ordering::Relaxed)), kind, words);
    }

    /// As [`Ring::publish`], for a caller that already has the word at the head.
    #[inline(always)]
    pub(crate) fn publish_at(&self, place: &AtomicU64, kind: Kind, words: usize) {
        // Added, so that the length needs no masking: it fits in 16 bits.
        place.store(Header { kind, words: 0 }.encode().wrapping_add(words as u64), Ordering::Relaxed);
        // Release: whoever sees the new head sees every word of the record.
        self.producer
            .head
            .store(self.producer.head.load(Ordering::Relaxed).wrapping_add(words as u64), Ordering::Release);
    }
}

/// Must come before the words of a record are written. Whoever sees one of them then also sees the head and the tail
/// that were stored or loaded before, so it notices that older words are overwritten. On x86_64 it is no instruction.
#[inline(always)]
fn before_words() {
    fence(Ordering::Release);
}

impl<'r, const H: usize, const R: usize> Reservation<'r, H, R> {
    /// The words of the header.
    #[inline(always)]
    pub(crate) fn header(&self) -> &'r [AtomicU64; H] {
        // SAFETY: `reserve` has checked that there are `H + rounds * R` contiguous words from `first` on. They live as
        // long as the ring.
        unsafe { &*self.first.cast() }
    }

    /// Writes the words of a header, except for word 0: [`Ring::publish_at`] writes it when the record is complete.
    #[inline(always)]
    pub(crate) fn begin<const N: usize>(&self, words: &[u64; N]) {
        const { assert!(N <= H) };
        let places = self.header().iter().zip(words).skip(1);
        places.for_each(|(place, word)| place.store(*word, Ordering::Relaxed));
    }

    /// The rounds, beginning after the first `skip` words of the header.
    #[inline(always)]
    pub(crate) fn rounds(&self, skip: usize) -> &'r [[AtomicU64; R]] {
        let skip = skip.min(H);
        // SAFETY: as in `header`; `skip` is at most `H`, so the rounds end within those words.
        unsafe { slice::from_raw_parts(self.first.add(skip).cast(), self.rounds.get()) }
    }

    /// How many words lie before this address, which is that of one of the words or of the end just after the last.
    #[inline(always)]
    pub(crate) fn before(&self, address: usize) -> usize {
        address.wrapping_sub(self.first.addr()) >> WORD_SHIFT
    }
}

impl<'r> Sink<'r> {
    const fn new(piece: &'r [AtomicU64], words: &'r [AtomicU64], beyond: usize) -> Self {
        Self { piece, at: 0, words, beyond, written: 0, is_full: false }
    }

    /// A sink that is never full, for a walk whose words are not used: `scratch` is overwritten again and again.
    pub(crate) fn discard(scratch: &'r [AtomicU64]) -> Self {
        Self::new(scratch, scratch, usize::MAX)
    }

    /// A sink over a few words, for tests.
    #[cfg(test)]
    pub(crate) fn over(piece: &'r [AtomicU64]) -> Self {
        Self::new(piece, &[], 0)
    }

    /// Adds one word, if there is space. After the last word, [`Sink::is_full`] tells whether the record did not fit.
    #[inline(never)]
    pub(crate) fn push(&mut self, word: u64) {
        self.put(word);
    }

    /// Adds the first words of a record.
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

    /// Whether there was no space for some word.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The next contiguous words, at most `most` of them. The caller fills them in order and then calls `advance`.
    #[inline(always)]
    pub(crate) fn contiguous(&self, most: usize) -> &'r [AtomicU64] {
        let places = self.piece.get(self.at..).unwrap_or_default();
        places.get(..most).unwrap_or(places)
    }

    /// Adds the first `filled` of the words that `contiguous` returned.
    #[inline(always)]
    pub(crate) fn advance(&mut self, filled: usize) {
        self.at = self.at.saturating_add(filled);
    }

    /// The number of words added so far.
    #[inline(always)]
    pub(crate) fn words(&self) -> usize {
        self.written.saturating_add(self.at)
    }

    /// Called at the physical end of the ring: continues at its beginning, if there is space.
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
