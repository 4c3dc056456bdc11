//! The binary form of the sample file: framed chunks, each of which can be read by itself.
//!
//! ```text
//! offset bytes                          all numbers little endian; the table of docs/format.md, version 1
//!   0     8    89 6b 70 72 6f 66 0d 0a  magic: no text begins so, and a text transfer damages it visibly
//!   8     1    version: 1
//!   9     1    kind: 1 lines, 2 samples
//!  10     2    0
//!  12     4    bytes of the payload
//!  16     4    samples in the payload (kind 2), else 0
//!  20     4    CRC-32/ISO-HDLC over bytes 8 to 19 and the payload
//!  24     .    payload
//!              kind 1: `#` lines of the text form
//!              kind 2: varint bytes of lines, lines (the batch line first), then the samples (see `samples`)
//! ```
//!
//! In: bytes. Out: chunks, or the position and kind of the damage. Runs in: any; no allocation. A chunk that does not
//! match its checksum is discarded as a whole. The next chunk is found by its magic.

use super::checksum::Crc32;

/// The bytes that every chunk begins with.
pub const MAGIC: [u8; 8] = *b"\x89kprof\r\n";
/// The version written by this crate.
pub const VERSION: u8 = 1;
/// Bytes before the payload.
pub const HEADER_BYTES: usize = 24;
/// The greatest payload in bytes. It exists so that a damaged length does not make a reader wait for gigabytes.
pub const MAX_PAYLOAD_BYTES: u32 = 16 << 20;

/// The kinds of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChunkKind {
    /// `#` lines of the text form: header, meta batches, accounts.
    Lines = 1,
    /// One batch of one CPU.
    Samples = 2,
}

/// One chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The kind of the content.
    pub kind: ChunkKind,
    /// The number of samples in the chunk.
    pub samples: u32,
    /// The content.
    pub payload: &'a [u8],
}

/// Why the bytes do not begin with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadChunk {
    /// The bytes end before the chunk does.
    Incomplete {
        /// Bytes from the chunk's beginning to its end.
        needs_bytes: usize,
    },
    /// The bytes do not begin with the magic.
    Magic,
    /// Written by a newer version of this crate.
    Version(u8),
    /// The stated length is greater than [`MAX_PAYLOAD_BYTES`].
    Length(u32),
    /// A kind that this version does not know. The chunk is complete and can be skipped.
    Kind {
        /// The unknown number.
        kind: u8,
        /// Bytes from the chunk's beginning to its end.
        bytes: usize,
    },
    /// The checksum does not match, so the content is not what was written.
    Checksum,
}

impl<'a> Chunk<'a> {
    /// The chunk at the beginning of `bytes`, and the bytes after it.
    ///
    /// # Errors
    /// [`BadChunk`]; continue at the offset that [`find`] returns.
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), BadChunk> {
        let magic = &bytes[..bytes.len().min(MAGIC.len())];
        if magic != &MAGIC[..magic.len()] {
            return Err(BadChunk::Magic);
        }
        let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(BadChunk::Incomplete { needs_bytes: HEADER_BYTES });
        };
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if header[8] != VERSION {
            return Err(BadChunk::Version(header[8]));
        }
        let length = word(12);
        if length > MAX_PAYLOAD_BYTES {
            return Err(BadChunk::Length(length));
        }
        let total = HEADER_BYTES + length as usize;
        let Some((payload, rest)) = rest.split_at_checked(length as usize) else {
            return Err(BadChunk::Incomplete { needs_bytes: total });
        };
        if Crc32::default().with(&header[8..20]).with(payload).end() != word(20) {
            return Err(BadChunk::Checksum);
        }
        let kind = match header[9] {
            1 => ChunkKind::Lines,
            2 => ChunkKind::Samples,
            kind => return Err(BadChunk::Kind { kind, bytes: total }),
        };
        Ok((Self { kind, samples: word(16), payload }, rest))
    }

    /// The header of this chunk; the payload follows it.
    ///
    /// # Panics
    /// When the payload is greater than [`MAX_PAYLOAD_BYTES`].
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        assert!(length <= MAX_PAYLOAD_BYTES, "a chunk of {length} bytes");
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8] = VERSION;
        header[9] = self.kind as u8;
        header[12..16].copy_from_slice(&length.to_le_bytes());
        header[16..20].copy_from_slice(&self.samples.to_le_bytes());
        let crc = Crc32::default().with(&header[8..20]).with(self.payload).end();
        header[20..].copy_from_slice(&crc.to_le_bytes());
        header
    }
}

/// Offset of the next magic at or after `from`, where reading can continue after damage.
pub fn find(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(MAGIC.len()).position(|window| window == MAGIC).map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chunk of lines in its own buffer: 24 + 7 bytes.
    fn sample() -> [u8; 31] {
        let chunk = Chunk { kind: ChunkKind::Lines, samples: 0, payload: b"# boot\n" };
        let mut bytes = [0; 31];
        bytes[..24].copy_from_slice(&chunk.header());
        bytes[24..].copy_from_slice(chunk.payload);
        bytes
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = sample();
        assert!(Chunk::split(&good).is_ok());
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Chunk::split(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_beginning_says_how_much_is_missing() {
        let good = sample();
        for length in 0..good.len() {
            let needs_bytes = if length < HEADER_BYTES { HEADER_BYTES } else { good.len() };
            assert_eq!(Chunk::split(&good[..length]), Err(BadChunk::Incomplete { needs_bytes }));
        }
        assert_eq!(find(&good, 0), Some(0));
        assert_eq!(find(&good, 1), None);
    }
}
