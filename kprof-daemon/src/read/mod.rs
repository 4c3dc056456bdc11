//! Parses the bytes of a stream into samples, meta records and damage.
//!
//! In: the bytes of one read, after those that the previous read had left over. Out: [`Item`]s in the order of the
//! ring. Runs in: user process. Never trusts a length and never loses its position: after damage it continues at the
//! next record whose own position is right, and counts what it skipped.

pub mod framed;
pub mod records;
pub mod redox_raw;

use kprof_format::event::Event;

/// Little-endian words in a byte slice; fewer than 8 bytes at the end are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// The words of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// These words, undecoded.
    #[inline(always)]
    pub fn of(words: &'a [[u8; 8]]) -> Self {
        Self(words.as_flattened())
    }

    /// The number of words.
    pub fn count(self) -> usize {
        self.0.len() / 8
    }

    /// Word number `at`, if there is one.
    #[inline]
    pub fn get(self, at: usize) -> Option<u64> {
        let bytes = self.0.get(at * 8..at * 8 + 8)?;
        bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Words `from` to `to`; fewer if there are not that many.
    pub fn range(self, from: usize, to: usize) -> Self {
        let end = self.0.len().min(to * 8);
        Self(&self.0[(from * 8).min(end)..end])
    }

    /// The words in order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = u64> + 'a {
        self.whole().iter().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// The words as undecoded bytes.
    #[inline]
    pub fn whole(self) -> &'a [[u8; 8]] {
        self.0.as_chunks().0
    }

    /// The first `length` bytes.
    pub fn bytes(self, length: usize) -> Option<&'a [u8]> {
        self.0.get(..length)
    }
}

/// The addresses of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a> {
    /// The instruction pointer of the CPU.
    pub first: u64,
    /// Callers and markers, innermost first.
    pub callers: Words<'a>,
}

impl<'a> Stack<'a> {
    /// The first address and the callers, innermost first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = u64> + 'a {
        std::iter::once(self.first).chain(self.callers.iter())
    }
}

/// One sample of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Tick number of the CPU; 0 if the source has none.
    pub tick: u64,
    /// TSC value.
    pub tsc: u64,
    /// Task id.
    pub task: u64,
    /// First address, then callers and markers, innermost first.
    pub stack: Stack<'a>,
    /// Whether it was read from a running flight recorder: such a sample is copied but does not count as delivered.
    pub is_snapshot: bool,
}

/// One recorded hit of a point.
#[derive(Clone, Copy, Debug)]
pub struct EventRecord<'a> {
    /// The hit.
    pub event: Event,
    /// Return addresses and markers, innermost first.
    pub stack: Words<'a>,
}

/// One record of the meta stream.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a> {
    /// The kind of record; never a sample.
    pub kind: kprof_format::record::Kind,
    /// TSC value.
    pub tsc: u64,
    /// Its three values.
    pub values: [u64; 3],
    /// Its text.
    pub text: &'a [u8],
}

/// Words that are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Position of the first word.
    pub from: u64,
    /// Number of words.
    pub words: u64,
    /// What was wrong with them.
    pub why: Why,
}

/// Why words were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No record begins where one should.
    NoRecord,
    /// The version is not the one that this program reads.
    Version(u8),
    /// The record is complete and at its position, but this version does not know its kind.
    UnknownKind(u8),
    /// The length does not lead to the next record.
    Length,
    /// The record gives a position other than the one where it lies.
    Position,
    /// Records are missing because another reader has taken them.
    Gap,
    /// The record contradicts itself (a text longer than the record).
    Body,
}

impl Why {
    /// One word for messages and for the sample file.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoRecord => "no-record",
            Self::Version(_) => "version",
            Self::UnknownKind(_) => "unknown-kind",
            Self::Length => "length",
            Self::Position => "position",
            Self::Gap => "gap",
            Self::Body => "body",
        }
    }
}

/// One item of a stream.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// A recorded hit of a point.
    Event(EventRecord<'a>),
    /// A meta record.
    Meta(Meta<'a>),
    /// Damage.
    Skipped(Skipped),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_word_of_its_own() {
        let all =
            [Why::NoRecord, Why::Version(2), Why::UnknownKind(9), Why::Length, Why::Position, Why::Gap, Why::Body];
        let words = ["no-record", "version", "unknown-kind", "length", "position", "gap", "body"];
        assert_eq!(all.map(Why::name), words);
    }
}
