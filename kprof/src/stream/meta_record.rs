//! A copy of a record of the meta stream.
//!
//! In: the ring and a position. Out: the kind, the header and the text. Runs in: any, a panic handler too; takes no
//! lock. The producer may overwrite the record meanwhile; then the copy has words of another record.

use crate::format::record::{Header, Kind, MetaHeader};
use crate::ring::Ring;

/// The longest text of a meta record in bytes. A longer one is truncated at a character boundary.
pub const MAX_TEXT: usize = crate::format::command::MAX_NAME;

/// The copy.
pub struct MetaRecord {
    /// What the record is.
    pub kind: Kind,
    /// Its words before the text.
    pub header: MetaHeader,
    text: heapless::Vec<u8, MAX_TEXT>,
}

impl MetaRecord {
    /// Copies the record at this position. `None` if the word there is not the first of a record.
    pub fn copy(ring: &Ring, at: u64) -> Option<Self> {
        let kind = Header::decode(ring.word(at)).ok()?.kind;
        let header = MetaHeader::read(|word| ring.word(at.wrapping_add(word as u64)));
        Some(Self { kind, header, text: text(ring, at) })
    }

    /// The text as bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.text
    }

    /// The text; empty if it is damaged.
    pub fn text(&self) -> &str {
        core::str::from_utf8(&self.text).unwrap_or_default()
    }
}

/// The first `N` bytes of the text of the record at this position.
pub(crate) fn text<const N: usize>(ring: &Ring, at: u64) -> heapless::Vec<u8, N> {
    let word = |number: usize| ring.word(at.wrapping_add(number as u64));
    let length = (word(MetaHeader::AT.text_bytes) as usize).min(N);
    let words = (MetaHeader::WORDS..MetaHeader::WORDS.wrapping_add(length.div_ceil(8))).map(word);
    let mut text = heapless::Vec::new();
    text.extend(words.flat_map(u64::to_le_bytes).take(length));
    text
}
