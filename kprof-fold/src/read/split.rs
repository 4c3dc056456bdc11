//! Splits sample lines into their fields, and takes lines in groups. Stage: read, the inner loop.
//!
//! In: a line `<task> <cpu> <tsc> <rip> <caller>...`. Out: its fields; the stack stays text, with its hash. The
//! addresses are only checked when the stack is new.

use super::blocks::MAX_LINE_BYTES;
use super::hex::{BadNumber, digit, hex64, number_and_space};
use super::lines::Lines;
use crate::stacks::{self, TOUCHED};

/// The name of a malformed field, and what is wrong with it.
pub type BadField = (&'static str, BadNumber);

/// The fields of a line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    /// The task as written in the line (escaped).
    pub task: &'a [u8],
    /// CPU number.
    pub cpu: u32,
    /// Time stamp counter.
    pub tsc: u64,
    /// Everything after the time stamp.
    pub stack: &'a [u8],
    /// Hash of `stack`.
    pub hash: u64,
}

/// Splits a line.
///
/// # Errors
/// The first of task, CPU and TSC that is missing or malformed.
pub fn split(line: &[u8]) -> Result<Parts<'_>, BadField> {
    quick(line).map_or_else(|| thorough(line), Ok)
}

/// Splits the common kind of line: a sample without long fields, with addresses after the time stamp and no CR at the
/// end.
#[inline(always)]
fn quick(line: &[u8]) -> Option<Parts<'_>> {
    if line.first() == Some(&b'#') || line.last() == Some(&b'\r') || line.len() > MAX_LINE_BYTES {
        return None;
    }
    let space = short_task(line)?;
    let (task, rest) = (&line[..space], &line[space + 1..]);
    let (cpu, rest) = match rest {
        // CPUs are below 16 on most machines.
        [one, b' ', rest @ ..] if digit(*one) < 16 => (u32::from(digit(*one)), rest),
        _ => {
            let (cpu, rest) = number_and_space(rest)?;
            (u32::try_from(cpu).ok()?, rest)
        }
    };
    let (tsc, stack) = number_and_space(rest)?;
    Some(Parts { task, cpu, tsc, stack, hash: stacks::hash(stack) })
}

/// Splits any line.
#[cold]
fn thorough(line: &[u8]) -> Result<Parts<'_>, BadField> {
    let missing = |field| (field, BadNumber::Empty);
    let space = memchr::memchr(b' ', line).ok_or(missing("cpu"))?;
    let (task, rest) = (&line[..space], &line[space + 1..]);
    if task.is_empty() {
        return Err(missing("task"));
    }
    let number = |text, name, next| -> Result<_, BadField> {
        let space = memchr::memchr(b' ', text);
        let value = hex64(&text[..space.unwrap_or(text.len())]).map_err(|bad| (name, bad))?;
        let space = space.ok_or((next, BadNumber::Empty))?;
        Ok((value, &text[space + 1..]))
    };
    let (cpu, rest) = number(rest, "cpu", "tsc")?;
    let cpu = u32::try_from(cpu).map_err(|_| ("cpu", BadNumber::TooLarge))?;
    let (tsc, stack) = number(rest, "tsc", "first address")?;
    Ok(Parts { task, cpu, tsc, stack, hash: stacks::hash(stack) })
}

/// Index of the first space, searched eight bytes at a time. It must be among the first 64 bytes and not at index 0.
#[inline(always)]
fn short_task(line: &[u8]) -> Option<usize> {
    match first_space(line.first_chunk::<8>()?) {
        None => longer_task(line),
        space => space.filter(|space| *space > 0),
    }
}

fn longer_task(line: &[u8]) -> Option<usize> {
    let eights = line.as_chunks::<8>().0.iter().take(8).enumerate();
    eights.skip(1).find_map(|(number, eight)| first_space(eight).map(|space| 8 * number + space))
}

#[inline(always)]
fn first_space(eight: &[u8; 8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let differs = u64::from_le_bytes(*eight) ^ (ONES * b' ' as u64);
    let zero_byte = differs.wrapping_sub(ONES) & !differs & (ONES << 7);
    (zero_byte != 0).then(|| zero_byte.trailing_zeros() as usize / 8)
}

/// Why a group takes no more lines.
pub enum Filled<'a> {
    /// The group is full.
    Full,
    /// No line is left.
    End,
    /// This line is not of the common kind and has to be parsed by the slow path. It is not in the group.
    Odd(&'a [u8]),
}

/// A few lines that have been split but not yet counted. There is an array for each field, so that each field is stored
/// only once.
#[derive(Default)]
pub struct Group<'a> {
    lines: [&'a [u8]; TOUCHED],
    task_bytes: [usize; TOUCHED],
    cpus: [u32; TOUCHED],
    tscs: [u64; TOUCHED],
    stacks: [&'a [u8]; TOUCHED],
    hashes: [u64; TOUCHED],
    len: usize,
}

impl<'a> Group<'a> {
    /// Takes lines until the group is full, no line is left, or a line is not of the common kind. That line is
    /// returned.
    #[inline(never)]
    pub fn fill(&mut self, lines: &mut Lines<'a>) -> Filled<'a> {
        // A local copy, because it can stay in registers.
        let mut ahead = lines.clone();
        let (mut len, mut filled) = (0, Filled::Full);
        while len < TOUCHED {
            let Some(line) = ahead.next() else {
                filled = Filled::End;
                break;
            };
            let Some(Parts { task, cpu, tsc, stack, hash }) = quick(line) else {
                filled = Filled::Odd(line);
                break;
            };
            (self.lines[len], self.task_bytes[len]) = (line, task.len());
            self.cpus[len] = cpu;
            self.tscs[len] = tsc;
            self.stacks[len] = stack;
            self.hashes[len] = hash;
            len += 1;
        }
        (self.len, *lines) = (len, ahead);
        filled
    }

    /// The hashes of the stacks.
    pub fn hashes(&self) -> &[u64; TOUCHED] {
        &self.hashes
    }

    /// How many lines there are.
    pub fn taken(&self) -> usize {
        self.len
    }

    /// The stack of one of the lines.
    #[inline(always)]
    pub fn stack(&self, at: usize) -> &'a [u8] {
        self.stacks[at % TOUCHED]
    }

    /// The whole text of one of the lines.
    pub fn line(&self, at: usize) -> &'a [u8] {
        self.lines[at % TOUCHED]
    }

    /// The fields of one of the lines.
    #[inline(always)]
    pub fn parts(&self, at: usize) -> Parts<'a> {
        let at = at % TOUCHED;
        let (task, cpu, tsc) = (&self.lines[at][..self.task_bytes[at]], self.cpus[at], self.tscs[at]);
        Parts { task, cpu, tsc, stack: self.stacks[at], hash: self.hashes[at] }
    }
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
        assert_eq!(cut(b" 1 2 3"), Err(("task", BadNumber::Empty)));
    }

    #[test]
    fn the_quick_way_finds_what_the_thorough_way_finds() {
        let parts = |parts: Parts<'_>| (parts.task.to_vec(), parts.cpu, parts.tsc, parts.stack.to_vec(), parts.hash);
        let (mut quick_ones, fields) =
            (0, ["", "c", "12345678", "a b", "\x1f", "fedcba9876543210", "10000000000000000", "g"]);
        for task in [&fields[..], &["123456789012345678901234567890", "\u{a0}!"]].concat() {
            for (cpu, tsc) in fields.iter().flat_map(|cpu| fields.iter().map(move |tsc| (cpu, tsc))) {
                for stack in ["", "1", "ffffffff80201000 ffffffff80202000", " ", "no number at all"] {
                    let line = format!("{task} {cpu} {tsc} {stack}");
                    for line in [&line[..], line.trim_end(), &line[..line.len() / 2]] {
                        let Some(quick) = quick(line.as_bytes()) else { continue };
                        quick_ones += 1;
                        assert_eq!(Ok(parts(quick)), thorough(line.as_bytes()).map(parts), "{line:?}");
                    }
                }
            }
        }
        assert!(quick_ones > 100, "{quick_ones}");
    }
}
