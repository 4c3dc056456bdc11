//! Lines: splits a block at its line ends. Stage: read, the innermost loop.
//!
//! In: bytes. Out: each line without its LF. 64 bytes at a time are turned into a 64-bit word in which a bit is set for
//! each LF, so that short lines need no search of their own. Memory: none.

use wide::u8x16;

/// The whole lines of a block; bytes after its last LF are ignored.
#[derive(Clone)]
pub struct Lines<'a> {
    block: &'a [u8],
    /// Where the next line begins.
    from: usize,
    /// A bit for each LF among 64 bytes that has not been returned yet.
    ends: u64,
    /// Index of the byte of the lowest of these bits.
    base: usize,
    /// Index of the first byte that has not been searched.
    next: usize,
}

impl<'a> Lines<'a> {
    /// The lines of these bytes.
    pub fn of(block: &'a [u8]) -> Self {
        Self { block, from: 0, ends: 0, base: 0, next: 0 }
    }

    /// Bytes of the block up to the end of the last line that was returned.
    pub fn taken(&self) -> usize {
        self.from
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    #[inline(always)]
    fn next(&mut self) -> Option<&'a [u8]> {
        while self.ends == 0 {
            self.base = self.next;
            let rest = self.block.get(self.next..)?;
            self.ends = match rest.first_chunk() {
                Some(chunk) => ends(chunk),
                None if rest.is_empty() => return None,
                None => last_ends(rest),
            };
            self.next += 64;
        }
        let end = self.base + self.ends.trailing_zeros() as usize;
        self.ends &= self.ends - 1;
        let line = self.block.get(self.from..end)?;
        self.from = end + 1;
        Some(line)
    }
}

/// A bit for each LF of fewer than 64 bytes.
#[cold]
fn last_ends(rest: &[u8]) -> u64 {
    let mut chunk = [0; 64];
    chunk[..rest.len()].copy_from_slice(rest);
    ends(&chunk)
}

/// A bit for each LF.
#[inline]
fn ends(chunk: &[u8; 64]) -> u64 {
    let quarter = |at: usize| {
        let is_end = u8x16::new(chunk.as_chunks().0[at]).simd_eq(u8x16::splat(b'\n'));
        u64::from(is_end.to_bitmask()) << (16 * at)
    };
    quarter(0) | quarter(1) | quarter(2) | quarter(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_end_is_found_at_every_place_and_nothing_else() {
        for len in 0..200 {
            for at in 0..len {
                let mut bytes: Vec<u8> = (0..len).map(|n| [b'\x0b', b'\x8a', 0, b'\x0a' ^ 1][n % 4]).collect();
                bytes[at] = b'\n';
                bytes[len - 1 - at / 2] = b'\n';
                let mut expected: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
                expected.pop();
                assert_eq!(Lines::of(&bytes).collect::<Vec<_>>(), expected, "{len} {at}");
            }
        }
        assert_eq!(Lines::of(b"").count(), 0);
        assert_eq!(Lines::of(&[b'\n'; 150]).filter(|line| line.is_empty()).count(), 150);
    }
}
