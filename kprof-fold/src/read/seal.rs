//! The checksum of a batch of the text form, while the batch is being read. Stage: read.
//!
//! In: the id of the boot and the bytes of the batch, in pieces. Out: whether the bytes are those that were written.
//! Lines that end in CR LF, because the file went through a tool that changes line ends, are summed as they were
//! written, without CR.

use super::repair::repaired;
use kprof_format::checksum::Crc32;
use kprof_format::line::Checksum;

/// The checksum of the bytes so far.
#[derive(Clone, Debug, Default)]
pub struct Seal {
    sum: Crc32,
    bytes: u64,
    has_cr: bool,
}

impl Seal {
    /// The checksum of a batch of this boot, before its first line. `has_cr`: its lines end in CR LF.
    pub fn of(boot: &str, has_cr: bool) -> Self {
        Self { sum: Crc32::of_batch(boot), bytes: 0, has_cr }
    }

    /// Adds bytes. A CR LF must not be divided between two calls.
    pub fn add(&mut self, bytes: &[u8]) {
        if !self.has_cr {
            return self.put(bytes);
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            match line.strip_suffix(b"\r\n") {
                Some(text) => {
                    self.put(text);
                    self.put(b"\n");
                }
                None => self.put(line),
            }
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.sum.add(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// The first line of the batch as it was written, and the place of the byte that was damaged, if that byte is all
    /// that is wrong with the batch.
    pub fn repaired(&self, line: &[u8], written: Checksum) -> Option<(Vec<u8>, usize)> {
        repaired(line, self.bytes.checked_sub(line.len() as u64)?, self.sum.end() ^ written.0)
    }

    /// Whether this is the checksum of all bytes so far.
    pub fn is(&self, written: Checksum) -> bool {
        written.0 == self.sum.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_and_line_ends_make_no_difference_and_everything_else_does() {
        let sum = |boot: &str, has_cr, pieces: &[&[u8]]| {
            let mut seal = Seal::of(boot, has_cr);
            pieces.iter().for_each(|piece| seal.add(piece));
            seal
        };
        let written = Checksum(Crc32::of_batch("7").with(b"# batch\na 1\n").end());
        assert!(sum("7", false, &[b"# batch\na 1\n"]).is(written));
        assert!(sum("7", false, &[b"# bat", b"ch\na", b" 1\n"]).is(written));
        assert!(sum("7", true, &[b"# batch\r\n", b"a 1\r\n"]).is(written));
        assert!(!sum("8", false, &[b"# batch\na 1\n"]).is(written));
        assert!(!sum("7", false, &[b"# batch\r\na 1\r\n"]).is(written));
        assert!(!sum("7", true, &[b"# batch\r\na\r 1\r\n"]).is(written));
        assert!(!sum("7", false, &[b"# batch\na \0\n"]).is(written));
    }
}
