//! The records of one read, whichever layout they have.
//!
//! In: a parser of one layout. Out: its items and positions. Runs in: user process. Never looks at a byte itself.

use super::Item;
use super::framed::Framed;
use super::redox_raw::RawRecords;

/// The records of one read, of either layout.
#[derive(Debug)]
pub enum Records<'a> {
    /// kprof's framed records.
    Framed(Framed<'a>),
    /// Redox's raw words.
    Raw(RawRecords<'a>),
}

/// Calls the same method on either layout.
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

    /// Position of the first word of the last item.
    pub fn item_from(&self) -> u64 {
        either!(self, records => records.item_from())
    }

    /// Number of bytes that have been parsed. The rest is the beginning of a record whose end has not been read yet.
    pub fn used_bytes(&self) -> usize {
        either!(self, records => records.used_bytes())
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Item<'a>;

    #[inline]
    fn next(&mut self) -> Option<Item<'a>> {
        either!(self, records => records.next())
    }
}
