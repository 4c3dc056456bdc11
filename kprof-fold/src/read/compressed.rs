//! Decompresses inputs that were compressed with gzip or zstd. Stage: read, before all forms.
//!
//! In: a file or a stream. Out: a reader of its content, decompressed if its first bytes say so; its name does not
//! matter. Other compressions and text in UTF-16 are named in an error. Several gzip members or zstd frames, one after
//! the other, are one content. Memory: the window of the compression, at most 100 MiB; a profile compressed with the
//! usual levels needs up to 8 MiB.

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

const GZIP: [u8; 3] = [0x1f, 0x8b, 8];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// What is not read: its first bytes, and what to do.
const OTHERS: [(&[u8], &str); 7] = [
    (b"\xfd7zXZ", "is compressed by xz: `xz -dc FILE | kprof-fold ... -` reads it"),
    (b"BZh", "is compressed by bzip2: `bzip2 -dc FILE | kprof-fold ... -` reads it"),
    (b"\x04\x22\x4d\x18", "is compressed by lz4: `lz4 -dc FILE | kprof-fold ... -` reads it"),
    (b"PK\x03\x04", "is a zip archive: unpack it, and give the file in it"),
    (b"7z\xbc\xaf", "is a 7z archive: unpack it, and give the file in it"),
    (b"\xff\xfe", "is text in UTF-16: write it again in UTF-8"),
    (b"\xfe\xff", "is text in UTF-16: write it again in UTF-8"),
];
/// What some editors and shells write before text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Number of bytes that tell what a file is.
const HEAD_BYTES: u64 = 5;

/// A reader whose first bytes were read already to detect the compression. It returns them again, then the rest.
type Peeked<R> = Chain<Cursor<Vec<u8>>, R>;

/// The content of `reader`, decompressed if it is compressed.
///
/// # Errors
/// Errors of the reader; if it is something else that is not read.
pub fn open<R: Read + 'static>(mut reader: R) -> io::Result<Box<dyn Read>> {
    let mut head = Vec::new();
    reader.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    if let Some((_, what)) = OTHERS.iter().find(|(first, _)| head.starts_with(first)) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, *what));
    }
    if head.starts_with(BYTE_ORDER_MARK) {
        head.drain(..BYTE_ORDER_MARK.len());
    }
    let is_gzip = head.starts_with(&GZIP);
    let is_zstd = head.starts_with(&ZSTD);
    let whole = Cursor::new(head).chain(reader);
    Ok(match (is_gzip, is_zstd) {
        (true, _) => Box::new(Hinted("gzip", MultiGzDecoder::new(whole))),
        (_, true) => Box::new(Hinted("zstd", Zstd::new(whole)?)),
        _ => Box::new(whole),
    })
}

/// Adds to an error of the decompression the command that reads what comes before the damage.
struct Hinted<R>(&'static str, R);

impl<R: Read> Read for Hinted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1.read(buffer).map_err(|error| {
            let tool = self.0;
            let todo = format!("`{tool} -dc FILE | kprof-fold ... -` reads what comes before the damage");
            io::Error::new(error.kind(), format!("{tool}: {error} (damaged or truncated; {todo})"))
        })
    }
}

/// An empty frame, with which the decoder is initialised. A decoder refuses windows of more than 100 MiB only in frames
/// after its first one.
const EMPTY_FRAME: [u8; 9] = [0x28, 0xb5, 0x2f, 0xfd, 0, 0, 1, 0, 0];

/// A file of zstd frames, one after the other.
struct Zstd<R> {
    source: BufReader<Peeked<R>>,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: Read> Zstd<R> {
    fn new(source: Peeked<R>) -> io::Result<Self> {
        let mut decoder = FrameDecoder::new();
        decoder.init(&EMPTY_FRAME[..]).map_err(io::Error::other)?;
        Ok(Self { source: BufReader::new(source), decoder, is_in_frame: false })
    }

    /// Goes to the next frame; returns false at the end of the file.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.is_in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.is_in_frame = false;
        let told = self.decoder.get_checksum_from_data();
        if told.is_some() && told != self.decoder.get_calculated_checksum() {
            return Err(io::Error::other("the checksum does not match the content"));
        }
        Ok(())
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_in_frame && !self.next_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let some = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, some).map_err(io::Error::other)?;
            }
            match self.decoder.read(buffer)? {
                0 => self.end_frame()?,
                got => return Ok(got),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).expect("memory takes everything");
        encoder.finish().expect("memory takes everything")
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        compress_to_vec(content, CompressionLevel::Fastest)
    }

    fn read(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        open(Cursor::new(bytes))?.read_to_end(&mut content).map(|_| content)
    }

    #[test]
    fn what_is_not_compressed_is_left_as_it_is() {
        for content in [&b""[..], b"a", b"# kprof-profile 1\n", &GZIP[..2], &ZSTD[..3]] {
            assert_eq!(read(content.to_vec()).expect("is read"), content);
        }
    }

    #[test]
    fn several_members_and_frames_are_one_content() {
        let lines = b"a 0 1 ffffffff80001000\n".repeat(100_000);
        let skipped = [&0x184d_2a50u32.to_le_bytes()[..], &3u32.to_le_bytes(), b"abc"].concat();
        for bytes in [
            gzip(&lines),
            [gzip(&lines[..1000]), gzip(&lines[1000..])].concat(),
            zstd(&lines),
            [zstd(&lines[..1000]), skipped, zstd(b""), zstd(&lines[1000..])].concat(),
        ] {
            assert!(bytes.len() < lines.len() / 2 && read(bytes).expect("is read") == lines);
        }
    }

    #[test]
    fn damage_is_an_error_that_says_what_to_do() {
        for (tool, bytes) in [("gzip", gzip(&b"abc\n".repeat(1000))), ("zstd", zstd(&b"abc\n".repeat(1000)))] {
            let cut = bytes[..bytes.len() - 5].to_vec();
            let error = read(cut).expect_err("is cut").to_string();
            assert!(error.starts_with(tool) && error.contains(&format!("{tool} -dc")), "{error}");
            let mut damaged = bytes.clone();
            *damaged.last_mut().expect("is not empty") ^= 1;
            assert!(read(damaged).is_err(), "{tool}: the last byte belongs to a checksum or a length");
        }
    }

    #[test]
    fn a_window_of_gigabytes_is_refused() {
        // Frame headers that ask for windows of 3 TiB and of 256 MiB, and the beginning of a block.
        for window in [0xff, 0x90] {
            let bytes = [&ZSTD[..], &[0, window], &[1, 0, 0]].concat();
            let error = read(bytes).expect_err("is too large").to_string();
            assert!(error.to_lowercase().contains("window"), "{error}");
        }
    }
}
