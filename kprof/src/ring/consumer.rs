//! The reading end: copies whole records, and frees them only when told to.
//!
//! In: a position at which a record begins. Out: copies, lengths, counts. Runs in: ordinary code, one reader at a time
//! (the lock of the stream ensures this), and beside it a reader of copies, which moves nothing here. In overwrite
//! mode, after a panic, and for the reader of copies, the producer runs at the same time. Empty: no record. A record
//! that was overwritten while it was copied is [`Torn`], and no word of the copy may be used.

use super::{LONGEST, Ring, position};
use crate::sync::{AtomicU64, Ordering, fence};

/// The producer overwrote the record while it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn;

/// What [`Ring::copy_records`] has copied, or could copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) words: u64,
    pub(crate) records: u64,
}

/// Why [`Ring::copy_records`] has copied nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCopy {
    /// The first record was overwritten, or the check cannot exclude it.
    Overwritten,
    /// The buffer is too small for the first record, which has this many words.
    TooSmall(u64),
}

impl Ring {
    /// Copies whole records, beginning at `at`, where a record began when it was published. Unlike [`Ring::copy`], this
    /// also copies records that the owner has freed, as long as the producer has not overwritten them.
    pub(crate) fn copy_records(&self, at: u64, to: &mut [u8]) -> Result<Copy, NoCopy> {
        let (Copy { words, records }, next) = self.whole_records(at, (to.len() / 8) as u64);
        let Ok(next) = next else {
            // The ring holds whole records, so the word is newer. The check makes the new tail visible.
            return self.is_intact(at).and(Err(NoCopy::Overwritten));
        };
        if let Some(place) = to.get_mut(..(words as usize).wrapping_mul(8)) {
            self.copy_unchecked(at, place);
        }
        // The lengths are checked together with the words.
        self.is_intact(at)?;
        match next {
            Some(length) if records == 0 => Err(NoCopy::TooSmall(length)),
            _ => Ok(Copy { words, records }),
        }
    }

    /// How many whole records, beginning at `at`, have at most `places` words together, and the length of the next
    /// record if there is one, or [`Torn`] if there is something else.
    pub(crate) fn whole_records(&self, at: u64, places: u64) -> (Copy, Result<Option<u64>, Torn>) {
        let head = self.head();
        let (mut end, mut records, mut next) = (at, 0_u64, Ok(None));
        while end < head {
            let Some(length) = position::record_words(self.word(end), head.wrapping_sub(end)) else {
                next = Err(Torn);
                break;
            };
            if end.wrapping_add(length).wrapping_sub(at) > places {
                next = Ok(Some(length));
                break;
            }
            end = end.wrapping_add(length);
            records = records.wrapping_add(1);
        }
        (Copy { words: end.wrapping_sub(at), records }, next)
    }

    /// Checks that no word at or after `at` has been overwritten until now. This is so if the record at `at` has not
    /// been freed, or if even the longest record, written at the head, would not reach `at`.
    fn is_intact(&self, at: u64) -> Result<(), NoCopy> {
        // Pairs with the fence before the first word of each record: if one of the words read above was newer, the head
        // and the tail that its producer had seen before it wrote that word are visible now.
        fence(Ordering::Acquire);
        let tail = self.tail.position.load(Ordering::Relaxed);
        let head = self.producer.head.load(Ordering::Relaxed);
        let overwritten = head.saturating_add(LONGEST).saturating_sub(self.capacity());
        if at < tail.min(overwritten) { Err(NoCopy::Overwritten) } else { Ok(()) }
    }

    /// The first words of the record at `at`, and its length in words; `None` at the head. Unlike `Ring::record_at`,
    /// this also finds a record that the owner has freed, as long as the producer has not overwritten it. Words after
    /// the end of the record are any words.
    pub fn first_words<const N: usize>(&self, at: u64) -> Result<Option<([u64; N], u64)>, Torn> {
        let head = self.head();
        if at >= head {
            return Ok(None);
        }
        let words = core::array::from_fn(|index| self.word(at.wrapping_add(index as u64)));
        self.is_intact(at).map_err(|_| Torn)?;
        let length = words.first().and_then(|first| position::record_words(*first, head.wrapping_sub(at)));
        length.map(|length| Some((words, length))).ok_or(Torn)
    }

    /// The length in words of the record at `at`; `None` at the head.
    pub(crate) fn record_at(&self, at: u64) -> Result<Option<u64>, Torn> {
        let head = self.head();
        if at >= head {
            return Ok(None);
        }
        let first = self.words.at(at).load(Ordering::Relaxed);
        self.still_there(at)?;
        position::record_words(first, head.wrapping_sub(at)).map(Some).ok_or(Torn)
    }

    /// Copies the words from `at` on as bytes, little endian.
    pub(crate) fn copy(&self, at: u64, to: &mut [u8]) -> Result<(), Torn> {
        self.copy_unchecked(at, to);
        self.still_there(at)
    }

    /// So many words from `at` on as bytes, where they lie, in two pieces: up to the physical end of the ring and after
    /// it. A copy of them takes an instruction a word, where one of words that may change takes two or three.
    ///
    /// # Safety
    /// `at` is not below the tail, the words end at the head or before it, and nobody moves the tail as long as the
    /// result is used.
    #[cfg(not(kprof_loom))]
    pub(crate) unsafe fn kept(&self, at: u64, words: u64) -> [&[u8]; 2] {
        // SAFETY: the producer writes no word between the tail and the head, and the caller promises that these words
        // are between them.
        unsafe { self.words.bytes(at, words as usize) }
    }

    fn copy_unchecked(&self, at: u64, to: &mut [u8]) {
        let straight = self.words.from(at);
        let to = to.as_chunks_mut().0;
        let (before_the_end, after_it) = to.split_at_mut(to.len().min(straight.len()));
        copy_words(straight, before_the_end);
        copy_words(self.words.all(), after_it);
    }

    /// The word at this position. While the flight recorder runs, the word may already belong to a newer record; this
    /// function does not check that.
    pub fn word(&self, position: u64) -> u64 {
        self.words.at(position).load(Ordering::Relaxed)
    }

    /// How many whole records lie from `from` up to `to`; `None` when `to` is not where a record ends.
    pub(crate) fn count(&self, from: u64, to: u64) -> Option<u64> {
        let (mut at, mut count) = (from, 0_u64);
        let head = self.head();
        while at < to.min(head) {
            at = at.wrapping_add(position::record_words(self.word(at), head.wrapping_sub(at))?);
            count = count.wrapping_add(1);
        }
        // If records were overwritten meanwhile, the lengths read above are not reliable.
        self.still_there(from).ok().filter(|()| at == to).map(|()| count)
    }

    /// Checks that the producer has not overwritten anything at or after `at` until now.
    #[inline]
    fn still_there(&self, at: u64) -> Result<(), Torn> {
        // Pairs with the fence in `sink`. The producer moves the tail before it writes a new word. So if one of the
        // words read above was new, the new tail is visible now.
        fence(Ordering::Acquire);
        if self.tail.position.load(Ordering::Relaxed) > at { Err(Torn) } else { Ok(()) }
    }
}

/// The right to move the tail, where the producer does not move it.
pub(crate) struct TailMover<'r>(&'r Ring);

impl<'r> TailMover<'r> {
    /// The right, for the stream's owner. Nobody else may call this, and the owner may not while the producer moves the
    /// tail.
    pub(crate) fn of(ring: &'r Ring) -> Self {
        Self(ring)
    }

    /// Frees everything below `to`, which is the end of `records` records from the tail on.
    pub(crate) fn release(&self, to: u64, records: u64) {
        self.0.remove(records);
        // Release: our copies are complete before the producer may overwrite the words.
        self.0.tail.position.store(to, Ordering::Release);
    }
}

/// Copies as many words as `to` has space for. Four at a time, because the compiler does not unroll a loop over
/// atomics.
fn copy_words(words: &[AtomicU64], to: &mut [[u8; 8]]) {
    let (fours, rest) = to.as_chunks_mut::<4>();
    let (words, last) = words.split_at(fours.len().wrapping_mul(4).min(words.len()));
    let copy = |(to, word): (&mut [u8; 8], &AtomicU64)| *to = word.load(Ordering::Relaxed).to_le_bytes();
    for (to, words) in fours.iter_mut().zip(words.as_chunks::<4>().0) {
        to.iter_mut().zip(words).for_each(copy);
    }
    rest.iter_mut().zip(last).for_each(copy);
}
