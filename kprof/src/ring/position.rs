//! Arithmetic on positions, pure. In: positions. Out: free space and lengths. Runs in: any.
//!
//! Positions count words since boot in 64 bits: at 2^40 words a second they would last half a year, and a profiler's
//! rates are far lower, so they never wrap.

use crate::format::record::{Header, MAX_WORDS};

/// How many words may be written from `head` on without overwriting the records from `tail` on. 0 if the two positions
/// are impossible in a ring of this capacity.
#[inline(always)]
pub(crate) const fn room(capacity: u64, head: u64, tail: u64) -> u64 {
    capacity.saturating_sub(head.wrapping_sub(tail))
}

/// The length of the record with this first word, if the word is a valid header and the record fits in `available`
/// words.
///
/// The ring holds only whole records, so `None` means that the words changed while they were read.
#[inline]
pub(crate) fn record_words(first: u64, available: u64) -> Option<u64> {
    let words = match Header::decode(first) {
        Ok(header) => u64::from(header.words),
        Err(_) => return None,
    };
    (words <= available && words <= MAX_WORDS as u64).then_some(words)
}

/// The length of the record with this first word, for the producer, which has written the record itself. The length is
/// not checked, but never 0.
#[inline(always)]
pub(crate) fn own_record_words(first: u64) -> u64 {
    (first & 0xffff).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::Kind;

    #[test]
    fn full_and_empty_are_told_apart() {
        assert_eq!(room(8, 100, 100), 8);
        assert_eq!(room(8, 108, 100), 0);
        assert_eq!(room(8, 103, 100), 5);
    }

    #[test]
    fn positions_that_cannot_be_leave_no_room() {
        assert_eq!(room(8, 109, 100), 0);
        assert_eq!(room(8, 100, 101), 0);
    }

    #[test]
    fn a_length_past_the_available_words_is_no_record() {
        let first = Header { kind: Kind::Sample, words: 9 }.encode();
        assert_eq!(record_words(first, 9), Some(9));
        assert_eq!(record_words(first, 8), None);
        assert_eq!(record_words(0, 8), None);
    }
}
