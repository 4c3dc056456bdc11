//! Takes whole lines out of a stream of bytes. Stage: read, the very first step.
//!
//! In: any reader. Out: slices that hold whole lines, as many as one read brought. Memory: one block, which grows to
//! little more than 4 MiB for a long line and never further. A longer line is skipped, and its length is reported.
//!
//! ```text
//! |<- kept from last time ->|<-------- read() -------->|
//! |...rest of a line........|....\n......\n....\n......|
//! |<------------- handed out as one slice ----->|<rest>|
//! ```

use std::io::{self, Read};

/// Bytes asked for in one read.
pub const BLOCK_BYTES: usize = 64 * 1024;
/// The length of the longest line that is read, in bytes, without its line end.
pub const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

/// A piece of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Block<'a> {
    /// One or more lines, each with its LF.
    Lines(&'a [u8]),
    /// The last line of the stream, without an LF.
    Unfinished(&'a [u8]),
    /// One line of this many bytes was skipped because it is too long.
    TooLong(u64),
    /// The end of the stream.
    End,
}

/// The stream, split into lines.
pub struct Blocks<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Start of the bytes not handed out yet.
    start: usize,
    /// End of the bytes read.
    end: usize,
    /// Bytes after `start` already known to hold no LF.
    searched: usize,
    /// Length so far of the line that is being skipped.
    passing: Option<u64>,
    ended: bool,
    read_bytes: u64,
}

impl<R: Read> Blocks<R> {
    /// A stream whose first bytes are `head`, already taken from `reader`.
    pub fn new(head: Vec<u8>, reader: R) -> Self {
        let (end, read_bytes) = (head.len(), head.len() as u64);
        Self { reader, buffer: head, start: 0, end, searched: 0, passing: None, ended: false, read_bytes }
    }

    /// Bytes read from the stream so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// The next piece of the stream.
    ///
    /// # Errors
    /// Errors of the reader, except for an interrupted read, which is repeated.
    pub fn next_block(&mut self) -> io::Result<Block<'_>> {
        loop {
            if let Some(found) = memchr::memrchr(b'\n', &self.buffer[self.start + self.searched..self.end]) {
                if let Some(passed) = self.passing.take() {
                    let fresh = &self.buffer[self.start..self.end];
                    let first = memchr::memchr(b'\n', fresh).unwrap_or(0);
                    self.start += first + 1;
                    self.searched = 0;
                    return Ok(Block::TooLong(passed + first as u64));
                }
                let from = self.start;
                self.start += self.searched + found + 1;
                self.searched = 0;
                return Ok(Block::Lines(&self.buffer[from..self.start]));
            }
            self.searched = self.end - self.start;
            if self.searched > MAX_LINE_BYTES + 1 || self.passing.is_some() {
                *self.passing.get_or_insert(0) += self.searched as u64;
                (self.start, self.end, self.searched) = (0, 0, 0);
            }
            if self.ended {
                if let Some(passed) = self.passing.take() {
                    return Ok(Block::TooLong(passed));
                }
                let from = self.start;
                self.start = self.end;
                self.searched = 0;
                return Ok(if from == self.end { Block::End } else { Block::Unfinished(&self.buffer[from..self.end]) });
            }
            self.fill()?;
        }
    }

    /// Moves the remaining bytes to the front and reads once.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() < self.end + BLOCK_BYTES / 2 {
            let grown = (2 * self.buffer.len()).clamp(BLOCK_BYTES, MAX_LINE_BYTES + BLOCK_BYTES);
            self.buffer.resize(grown.max(self.end + BLOCK_BYTES / 2), 0);
        }
        // Reads no more than a block even if the buffer is larger, so that the new bytes are still in the cache when
        // they are parsed.
        let until = self.buffer.len().min(self.end + BLOCK_BYTES);
        let got = loop {
            match self.reader.read(&mut self.buffer[self.end..until]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.end += got;
        self.read_bytes += got as u64;
        self.ended = got == 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that gives at most `step` bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let take = self.1.min(to.len()).min(self.0.len());
            to[..take].copy_from_slice(&self.0[..take]);
            self.0 = &self.0[take..];
            Ok(take)
        }
    }

    /// Returns (bytes handed out, lengths of the skipped lines, whether the end was unfinished, largest buffer).
    fn drain(input: &[u8], step: usize) -> (Vec<u8>, Vec<u64>, bool, usize) {
        let mut blocks = Blocks::new(Vec::new(), Slow(input, step));
        let (mut out, mut long, mut unfinished, mut most) = (Vec::new(), Vec::new(), false, 0);
        loop {
            match blocks.next_block().unwrap() {
                Block::Lines(lines) => {
                    assert_eq!(lines.last(), Some(&b'\n'));
                    out.extend_from_slice(lines);
                }
                Block::Unfinished(rest) => {
                    out.extend_from_slice(rest);
                    unfinished = true;
                }
                Block::TooLong(bytes) => long.push(bytes),
                Block::End => return (out, long, unfinished, most),
            }
            most = most.max(blocks.buffer.len());
        }
    }

    #[test]
    fn whole_lines_come_out_however_small_the_reads_are() {
        let input = b"one\ntwo\n\nthree four\nlast";
        for step in 1..=input.len() {
            assert_eq!(drain(input, step), (input.to_vec(), vec![], true, BLOCK_BYTES));
        }
        assert_eq!(drain(b"", 1), (vec![], vec![], false, 0));
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over_without_being_held() {
        let mut input = b"first\n".to_vec();
        input.resize(input.len() + 50_000_000, b'x');
        input.extend_from_slice(b"\nlast\n");
        let (out, long, unfinished, most) = drain(&input, usize::MAX);
        assert_eq!((out, long, unfinished), (b"first\nlast\n".to_vec(), vec![50_000_000], false));
        assert!(most <= MAX_LINE_BYTES + 2 * BLOCK_BYTES, "{most}");
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_handed_out() {
        let mut input = vec![b'x'; MAX_LINE_BYTES];
        input.extend_from_slice(b"\ny\n");
        let (out, long, ..) = drain(&input, usize::MAX);
        assert_eq!((out.len(), long), (input.len(), vec![]));
    }
}
