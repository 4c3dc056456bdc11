//! Takes the bytes of a stream apart into samples, meta records and damage.
//!
//! In: bytes as a read gave them, with what the read before has left over. Out: [`Item`]s in the order of the ring.
//! Runs in: user process. Never trusts a length, never loses its place: after damage it goes on at the next record that
//! says itself where it lies, and what was skipped is counted.

pub mod framed;
pub mod redox_raw;

/// Little-endian words in a byte slice; a last piece of less than 8 bytes is not part of them.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// The words of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.0.len() / 8
    }

    /// Word number `at`, if there is one.
    #[inline]
    pub fn get(self, at: usize) -> Option<u64> {
        let bytes = self.0.get(at * 8..at * 8 + 8)?;
        bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Words `from` to `to`; fewer where there are not so many.
    pub fn range(self, from: usize, to: usize) -> Self {
        let end = self.0.len().min(to * 8);
        Self(&self.0[(from * 8).min(end)..end])
    }

    /// One after the other.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = u64> + 'a {
        self.whole().iter().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// All of them as they lie there.
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
    /// Where the CPU was.
    pub first: u64,
    /// Callers and markers, innermost first.
    pub callers: Words<'a>,
}

impl<'a> Stack<'a> {
    /// All of them, innermost first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = u64> + 'a {
        std::iter::once(self.first).chain(self.callers.iter())
    }
}

/// One sample of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Tick number of the CPU; 0 where the source has none.
    pub tick: u64,
    /// TSC.
    pub tsc: u64,
    /// Context id.
    pub task: u64,
    /// First address, then callers and markers, innermost first.
    pub stack: Stack<'a>,
    /// Read from a running flight recorder: not delivered, only seen.
    pub is_snapshot: bool,
}

/// One record of the meta stream.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a> {
    /// What it is about; never a sample.
    pub kind: kprof_format::record::Kind,
    /// TSC.
    pub tsc: u64,
    /// Its three values.
    pub values: [u64; 3],
    /// Its text.
    pub text: &'a [u8],
}

/// Words that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Position of the first word.
    pub from: u64,
    /// How many.
    pub words: u64,
    /// What was wrong with them.
    pub why: Why,
}

/// Why words were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No record begins where one should.
    NoRecord,
    /// The version is not ours.
    Version(u8),
    /// A kind that this version does not know; whole and in its place, simply not for us.
    UnknownKind(u8),
    /// The length does not lead to the next record.
    Length,
    /// The record says it lies elsewhere.
    Position,
    /// Records are missing: somebody else has read them.
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

/// One piece of a stream.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// A meta record.
    Meta(Meta<'a>),
    /// Damage.
    Skipped(Skipped),
}

/// The records of one read, of either layout.
#[derive(Debug)]
pub enum Records<'a> {
    /// kprof's framed records.
    Framed(framed::Framed<'a>),
    /// Redox's raw words.
    Raw(redox_raw::RawRecords<'a>),
}

/// The same call on either.
macro_rules! either {
    ($records:expr, $inner:ident => $call:expr) => {
        match $records {
            Records::Framed($inner) => $call,
            Records::Raw($inner) => $call,
        }
    };
}

impl Records<'_> {
    /// Position of the next word, if any is known.
    pub fn position(&self) -> Option<u64> {
        match self {
            Self::Framed(records) => records.position(),
            Self::Raw(records) => Some(records.position()),
        }
    }

    /// Position of the first word of the item that was given last.
    pub fn item_from(&self) -> u64 {
        either!(self, records => records.item_from())
    }

    /// Bytes that are done with. The rest is the beginning of a record whose end has not been read yet.
    pub fn used_bytes(&self) -> usize {
        either!(self, records => records.used_bytes())
    }

    /// Skips all that is left, because nothing more will be read.
    pub fn give_up_rest(&mut self) -> Option<Skipped> {
        either!(self, records => records.give_up_rest())
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Item<'a>;

    #[inline]
    fn next(&mut self) -> Option<Item<'a>> {
        either!(self, records => records.next())
    }
}
