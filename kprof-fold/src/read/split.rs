//! A sample line, cut into its parts, and lines in groups. Stage: read, the inner loop.
//!
//! In: a line `<context> <cpu> <tsc> <rip> <caller>...`. Out: its fields; the stack stays text, with its hash. Whether
//! the addresses are well-formed is decided where the stack is new.

use super::hex::{BadNumber, digit, hex64};
use crate::stacks::{self, TOUCHED};

/// A field that is not as it must be.
pub type BadField = (&'static str, BadNumber);

/// The parts of a line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    /// Context as it stands there.
    pub context: &'a [u8],
    /// CPU number.
    pub cpu: u32,
    /// Time stamp counter.
    pub tsc: u64,
    /// Everything behind the time stamp.
    pub stack: &'a [u8],
    /// Hash of `stack`.
    pub hash: u64,
}

/// Cuts a line.
///
/// # Errors
/// The first of context, cpu and tsc that is missing or malformed.
#[inline]
pub fn split(line: &[u8]) -> Result<Parts<'_>, BadField> {
    let missing = |field| (field, BadNumber::Empty);
    let space = find_space(line).ok_or(missing("cpu"))?;
    let (context, rest) = (&line[..space], &line[space + 1..]);
    if context.is_empty() {
        return Err(missing("context"));
    }
    let (cpu, rest) = number(rest, "cpu", "tsc")?;
    let cpu = u32::try_from(cpu).map_err(|_| ("cpu", BadNumber::TooLarge))?;
    let (tsc, stack) = number(rest, "tsc", "first address")?;
    Ok(Parts { context, cpu, tsc, stack, hash: stacks::hash(stack) })
}

/// The number up to the next space, and what is behind it: in one pass where it has up to 16 digits.
#[inline]
fn number<'a>(text: &'a [u8], name: &'static str, next: &'static str) -> Result<(u64, &'a [u8]), BadField> {
    // CPUs are below 16 on most machines.
    if let [one, b' ', rest @ ..] = text
        && digit(*one) < 16
    {
        return Ok((u64::from(digit(*one)), rest));
    }
    let mut value = 0;
    for (at, byte) in text.iter().take(17).enumerate() {
        let digit = digit(*byte);
        if digit > 15 {
            if *byte == b' ' && at > 0 {
                return Ok((value, &text[at + 1..]));
            }
            break;
        }
        value = value << 4 | u64::from(digit);
    }
    slow_number(text, name, next)
}

#[cold]
fn slow_number<'a>(text: &'a [u8], name: &'static str, next: &'static str) -> Result<(u64, &'a [u8]), BadField> {
    let space = memchr::memchr(b' ', text);
    let value = hex64(&text[..space.unwrap_or(text.len())]).map_err(|bad| (name, bad))?;
    let space = space.ok_or((next, BadNumber::Empty))?;
    Ok((value, &text[space + 1..]))
}

/// A few lines that have been cut and not yet counted.
#[derive(Default)]
pub struct Group<'a> {
    parts: [Parts<'a>; TOUCHED],
    hashes: [u64; TOUCHED],
    len: usize,
}

impl<'a> Group<'a> {
    /// Adds a line; true if the group is full then.
    #[inline]
    pub fn push(&mut self, parts: Parts<'a>) -> bool {
        self.hashes[self.len] = parts.hash;
        self.parts[self.len] = parts;
        self.len += 1;
        self.len == TOUCHED
    }

    /// The hashes of the stacks.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes[..self.len]
    }

    /// The lines.
    pub fn parts(&self) -> &[Parts<'a>] {
        &self.parts[..self.len]
    }

    /// Empties the group.
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

/// Place of the first space; fields are short, so eight bytes at a time without a call.
#[inline]
fn find_space(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut at = 0;
    while let Some(eight) = bytes[at..].first_chunk::<8>() {
        let differs = u64::from_le_bytes(*eight) ^ (ONES * b' ' as u64);
        let zero_byte = differs.wrapping_sub(ONES) & !differs & (ONES << 7);
        if zero_byte != 0 {
            return Some(at + zero_byte.trailing_zeros() as usize / 8);
        }
        at += 8;
        if at >= 64 {
            return memchr::memchr(b' ', &bytes[at..]).map(|found| at + found);
        }
    }
    bytes[at..].iter().position(|byte| *byte == b' ').map(|found| at + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_at_a_space_and_nothing_else() {
        let cut = |text: &'static [u8]| split(text).map(|parts| (parts.cpu, parts.tsc, parts.stack));
        assert_eq!(cut(b"c f 10 20 30"), Ok((15, 16, &b"20 30"[..])));
        assert_eq!(cut(b"c 0000000000000000001 ffffffffffffffff 2"), Ok((1, u64::MAX, &b"2"[..])));
        assert_eq!(cut(b"c 1 10000000000000000 2"), Err(("tsc", BadNumber::TooLarge)));
        assert_eq!(cut(b"c 100000000 1 2"), Err(("cpu", BadNumber::TooLarge)));
        assert_eq!(cut(b"c 1g 1 2"), Err(("cpu", BadNumber::NotHex)));
        assert_eq!(cut(b"c  1 2"), Err(("cpu", BadNumber::Empty)));
        assert_eq!(cut(b"c 1 2"), Err(("first address", BadNumber::Empty)));
        assert_eq!(cut(b"c 1"), Err(("tsc", BadNumber::Empty)));
        assert_eq!(cut(b"c"), Err(("cpu", BadNumber::Empty)));
        assert_eq!(cut(b" 1 2 3"), Err(("context", BadNumber::Empty)));
    }

    #[test]
    fn the_first_space_is_found_at_every_place() {
        for len in 0..150 {
            for at in 0..=len {
                let mut bytes = vec![b'!'; len];
                bytes[at..].fill(b' ');
                assert_eq!(find_space(&bytes), (at < len).then_some(at), "{len} {at}");
            }
        }
        assert_eq!(find_space(b"\x1f\x21\xa0\x00\x20"), Some(4));
    }
}
