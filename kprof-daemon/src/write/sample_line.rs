//! The sample lines of the text form.
//!
//! ```text
//! sh 1 5fd0a2c1 ffffffff80201a2b ffffffff80203c4d ffffffff80241000 ffffffff8024c020
//! └ prefix ┘└┬─┘└── first ─────┘└── callers, as text from the table ──────────────┘
//!           low half of the TSC
//! ```
//!
//! In: samples. Out: whole lines, appended to a buffer. Runs in: user process, the hot path of the daemon: numbers are
//! formatted by hand. A profile has the same callers again and again, so their text is kept and copied. Only buffers
//! that are reused are allocated.

use super::body::Body;
use crate::read::{Sample, Stack};
use kprof_format::marker::Marker;
use kprof_format::text::{Hex, eight_digits};

/// A space and sixteen digits.
const WORD_BYTES: usize = 17;

/// Writes the lines of samples.
#[derive(Debug, Default)]
pub struct SampleLines {
    digits: Digits,
    callers: Callers,
    /// For text that is put into the cache.
    new: Body,
}

/// Cache of the last eight digits of addresses.
#[derive(Debug)]
struct Digits(Box<[(u32, [u8; 8]); 1 << DIGITS_BITS]>);

const DIGITS_BITS: u32 = 9;

impl Default for Digits {
    fn default() -> Self {
        Self(Box::new([(0, eight_digits(0)); 1 << DIGITS_BITS]))
    }
}

impl Digits {
    #[inline(always)]
    fn of(&mut self, number: u32) -> &[u8; 8] {
        let place = (number ^ number >> DIGITS_BITS) % (1 << DIGITS_BITS);
        let known = &mut self.0[place as usize];
        if known.0 != number {
            *known = (number, eight_digits(number));
        }
        &known.1
    }

    /// Writes one word with a space before it. There must be room for [`WORD_BYTES`].
    #[inline(always)]
    fn put(&mut self, out: &mut Body, word: u64) {
        if word >> 32 == 0xffff_ffff {
            // Nearly every word is a kernel address, which begins with these eight digits.
            let mut text = *b" ffffffff        ";
            text[9..].copy_from_slice(self.of(word as u32));
            out.put(&text, WORD_BYTES);
        } else {
            put_any(out, word);
        }
    }
}

/// Cache of the text of all callers of a stack.
#[derive(Debug)]
struct Callers(Box<[Text; 1 << CALLERS_BITS]>);

const CALLERS_BITS: u32 = 10;
/// Stacks with more callers are formatted each time, so that the cache takes at most two megabytes.
const MAX_CALLERS: usize = 64;

/// Callers, and their text up to the end of the line.
#[derive(Clone, Debug, Default)]
struct Text {
    words: Vec<u64>,
    /// The text in blocks, because these are copied faster than an unknown number of bytes.
    blocks: Vec<[u8; BLOCK_BYTES]>,
    /// How many bytes of the last block are not part of the text.
    surplus: usize,
}

const BLOCK_BYTES: usize = 64;

impl Default for Callers {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| Text::default())))
    }
}

impl Callers {
    /// The cache entry for these callers. It is chosen by the innermost three callers, which differ most, and by the
    /// outermost two, which may be a program's.
    #[inline(always)]
    fn place(&mut self, callers: &[[u8; 8]]) -> &mut Text {
        let mix = |sum: u64, word: &[u8; 8]| (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let inner = callers.iter().take(3).fold(callers.len() as u64, mix);
        let sum = callers.iter().rev().take(2).fold(inner, mix);
        &mut self.0[(sum >> (u64::BITS - CALLERS_BITS)) as usize]
    }
}

impl Text {
    #[inline(always)]
    fn is_of(&self, callers: &[[u8; 8]]) -> bool {
        let words = || callers.iter().map(|bytes| u64::from_le_bytes(*bytes));
        self.words.len() == callers.len() && !self.blocks.is_empty() && words().eq(self.words.iter().copied())
    }

    #[cold]
    fn set(&mut self, callers: &[[u8; 8]], digits: &mut Digits, text: &mut Body) {
        self.words.clear();
        self.words.extend(callers.iter().map(|bytes| u64::from_le_bytes(*bytes)));
        text.clear();
        text.make_room(callers.len() * WORD_BYTES + 1 + BLOCK_BYTES);
        self.words.iter().for_each(|word| digits.put(text, *word));
        text.put(b"\n", 1);
        self.surplus = text.bytes().len().next_multiple_of(BLOCK_BYTES) - text.bytes().len();
        text.put(&[0; BLOCK_BYTES], self.surplus);
        self.blocks.clear();
        self.blocks.extend_from_slice(text.bytes().as_chunks().0);
    }
}

impl SampleLines {
    /// Writes one sample whose beginning is already in the line.
    #[inline]
    pub fn put(&mut self, out: &mut Body, sample: &Sample<'_>) {
        let callers = sample.stack.callers.whole();
        out.make_room((2 + callers.len()) * WORD_BYTES + BLOCK_BYTES);
        put_low_half(out, sample.tsc);
        self.digits.put(out, sample.stack.first);
        if callers.len() > MAX_CALLERS {
            callers.iter().for_each(|bytes| self.digits.put(out, u64::from_le_bytes(*bytes)));
            return out.put(b"\n", 1);
        }
        let text = self.callers.place(callers);
        if !text.is_of(callers) {
            text.set(callers, &mut self.digits, &mut self.new);
        }
        let (last, others) = text.blocks.split_last().unwrap_or((&[b'\n'; BLOCK_BYTES], &[]));
        others.iter().for_each(|block| out.put(block, BLOCK_BYTES));
        out.put(last, BLOCK_BYTES - text.surplus);
    }
}

/// The beginning of a line: the name of the task, the CPU, and the upper half of the TSC. Most lines have it in common
/// with the previous line.
#[derive(Debug)]
pub struct Prefix {
    text: Vec<u8>,
    /// A copy of `text`, if it fits into a block.
    block: [u8; BLOCK_BYTES],
    /// The task and the upper half of the TSC for which the text is valid.
    of: Option<(u64, u64)>,
}

impl Default for Prefix {
    fn default() -> Self {
        Self { text: Vec::new(), block: [0; BLOCK_BYTES], of: None }
    }
}

impl Prefix {
    /// Whether the prefix is valid for this task at this time.
    #[inline]
    pub fn is_of(&self, task: u64, tsc: u64) -> bool {
        self.of == Some((task, tsc >> 32))
    }

    /// Makes the prefix invalid, so that it is composed again for the next line.
    pub fn forget(&mut self) {
        self.of = None;
    }

    /// Composes the prefix for this task. If the task had another name before or gets one later, the prefix is valid
    /// for one line only.
    pub fn set(&mut self, (task, name, is_its_only_name): (u64, &[u8], bool), cpu: u32, tsc: u64) {
        self.text.clear();
        self.text.extend_from_slice(name);
        let upper = Some(tsc >> 32).filter(|upper| *upper != 0);
        for number in [u64::from(cpu)].into_iter().chain(upper) {
            self.text.push(b' ');
            self.text.extend_from_slice(Hex::new(number).as_bytes());
        }
        if let Some(block) = self.block.get_mut(..self.text.len()) {
            block.copy_from_slice(&self.text);
        }
        self.of = is_its_only_name.then_some((task, tsc >> 32));
    }

    /// Writes the prefix.
    #[inline(always)]
    pub fn put(&self, out: &mut Body) {
        if self.text.len() <= BLOCK_BYTES {
            out.make_room(BLOCK_BYTES);
            out.put(&self.block, self.text.len());
        } else {
            out.extend(&self.text);
        }
    }
}

/// Writes the lower half of the TSC, after the upper half. There must be room for [`WORD_BYTES`].
#[inline]
fn put_low_half(out: &mut Body, tsc: u64) {
    let digits = u64::from_be_bytes(eight_digits(tsc as u32));
    if tsc >> 32 != 0 {
        return out.put(&digits.to_be_bytes(), 8);
    }
    let zeros = (tsc as u32 | 1).leading_zeros() / 4;
    let mut text = *b"         ";
    // The block begins with the first significant digit. The bytes after the last digit are not part of the line.
    text[1..].copy_from_slice(&(digits << (8 * zeros)).to_be_bytes());
    out.put(&text, text.len() - zeros as usize);
}

/// Writes the rest of a line as Redox's tools expect it.
pub fn plain(out: &mut Body, sample: &Sample<'_>) {
    out.make_room(WORD_BYTES);
    put_low_half(out, sample.tsc);
    for word in without_markers(sample.stack) {
        out.make_room(WORD_BYTES + 1);
        put_any(out, word);
    }
    out.extend(b"\n");
}

/// A stack as Redox's tools expect it: without markers, and without candidates, because those tools cannot decide about
/// them.
pub fn without_markers(stack: Stack<'_>) -> impl Iterator<Item = u64> {
    let mut is_candidate = false;
    stack.iter().filter(move |word| {
        let marker = Marker::decode(*word);
        let is_kept = marker.is_none() && !is_candidate;
        is_candidate = marker == Some(Marker::Candidate);
        is_kept
    })
}

/// Writes one word with a space before it. There must be room for [`WORD_BYTES`].
fn put_any(out: &mut Body, number: u64) {
    let digits = Hex::new(number);
    let zeros = digits.leading_zeros();
    let mut text = *b"                 ";
    let significant = u128::from_be_bytes(*digits.all()) << (8 * zeros);
    text[1..].copy_from_slice(&significant.to_be_bytes());
    out.put(&text, WORD_BYTES - zeros);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Words;

    fn line(sample: &Sample<'_>) -> String {
        let all = [1, sample.tsc].into_iter().chain(sample.stack.iter());
        all.map(|word| format!(" {word:x}")).chain(["\n".into()]).collect()
    }

    #[test]
    fn every_line_is_what_plain_formatting_gives_whatever_stood_before_it() {
        let stacks: [&[u64]; 9] = [
            &[],
            &[0xffff_ffff_8020_0000],
            &[0xffff_ffff_8020_1000, 0xffff_ffff_8020_0000],
            &[5, 0, 0xffff_ffff_8020_0000],
            &[5, 0, 0x5555_5555_0000, u64::MAX],
            &[6, 0, 0x5555_5555_0000, u64::MAX],
            &[0, 0x5555_5555_0000, u64::MAX],
            &[u64::MAX],
            &[0xf, 0xff, 0x100, 0x1_0000_0000],
        ];
        let (mut lines, mut out, mut expected) = (SampleLines::default(), Body::default(), String::new());
        let mut prefix = Prefix::default();
        for (before, after) in (0..stacks.len() * stacks.len()).map(|pair| (pair / stacks.len(), pair % stacks.len())) {
            for callers in [stacks[before], stacks[after]] {
                let bytes: Vec<[u8; 8]> = callers.iter().map(|word| word.to_le_bytes()).collect();
                let stack = Stack { first: 0xffff_ffff_8021_2345, callers: Words::new(bytes.as_flattened()) };
                let tsc = [0x5fd0_a2c1, 0x12_0000_a2c1, 0xffff_ffff][(before + after) % 3];
                let sample = Sample { tick: 0, tsc, task: 0, stack, is_snapshot: false };
                prefix.set((0, b"a name", true), 1, tsc);
                prefix.put(&mut out);
                lines.put(&mut out, &sample);
                expected = expected + "a name" + &line(&sample);
            }
        }
        assert_eq!(String::from_utf8_lossy(out.bytes()), expected);
    }

    #[test]
    fn without_markers_no_candidate_is_left_either() {
        let callers =
            [Marker::Facts(Default::default()).encode(), 2, Marker::Candidate.encode(), 3, 4].map(u64::to_le_bytes);
        let stack = Stack { first: 1, callers: Words::new(callers.as_flattened()) };
        assert_eq!(without_markers(stack).collect::<Vec<_>>(), [1, 2, 4]);
    }
}
