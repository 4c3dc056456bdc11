//! Columns: numbers as bytes, for the page's script to read. Stage: output, part of the page.
//!
//! In: columns of numbers and a text. Out: one Base64 text that has all of them, compressed with zlib, which every
//! browser can undo (`DecompressionStream("deflate")`). The script's other half is `data.js`.
//!
//! ```text
//! u32 length | bytes | u32 length | bytes ...        little-endian; the first piece is the text (JSON)
//! ```
//!
//! The numbers of a column are LEB128: seven bits in a byte, the lowest first, the top bit set if more follow.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use kprof_format::samples::varint;
use std::io::{self, Write};

/// A column of numbers.
#[derive(Debug, Default)]
pub struct Column(Vec<u8>);

impl Column {
    /// Appends a number.
    pub fn push(&mut self, number: u64) {
        let (block, length) = varint(number);
        self.0.extend_from_slice(&block[..length]);
    }
}

impl FromIterator<u64> for Column {
    fn from_iter<T: IntoIterator<Item = u64>>(numbers: T) -> Self {
        let mut column = Self::default();
        numbers.into_iter().for_each(|number| column.push(number));
        column
    }
}

/// Compresses the text and the columns and encodes them.
///
/// # Errors
/// If a piece has 4 GiB or more.
pub fn pack(text: &str, columns: &[Column]) -> io::Result<String> {
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    for piece in std::iter::once(text.as_bytes()).chain(columns.iter().map(|column| &column.0[..])) {
        let length = u32::try_from(piece.len()).map_err(io::Error::other)?;
        zlib.write_all(&length.to_le_bytes())?;
        zlib.write_all(piece)?;
    }
    Ok(STANDARD.encode(zlib.finish()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn every_number_takes_seven_bits_a_byte() {
        let column: Column = [0, 127, 128, 300, u64::from(u32::MAX)].into_iter().collect();
        assert_eq!(column.0, [0, 0x7f, 0x80, 1, 0xac, 2, 0xff, 0xff, 0xff, 0xff, 15]);
    }

    #[test]
    fn the_pieces_come_back_with_their_lengths() {
        let packed = STANDARD.decode(pack("{}", &[[1, 2].into_iter().collect(), Column::default()]).unwrap()).unwrap();
        let mut bytes = Vec::new();
        flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [2, 0, 0, 0, b'{', b'}', 2, 0, 0, 0, 1, 2, 0, 0, 0, 0]);
    }
}
