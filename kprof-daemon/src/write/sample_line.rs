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
use crate::read::Sample;
use crate::read::framed::may_hide_record;
use crate::read::framed::plain::{Head, Plain};
use kprof_format::samples::{hash, is_same};
use kprof_format::text::{Hex, eight_digits};

/// A space and sixteen digits.
const WORD_BYTES: usize = 17;

/// Writes the lines of samples.
#[derive(Debug, Default)]
pub struct SampleLines {
    callers: Callers,
    /// For text that is put into the cache.
    new: Body,
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
    words: Vec<[u8; 8]>,
    /// The text in blocks, because these are copied faster than an unknown number of bytes. None: nothing is cached.
    blocks: Vec<[u8; BLOCK_BYTES]>,
    /// Length of the text in bytes; the bytes after it are not part of the line.
    length: usize,
}

const BLOCK_BYTES: usize = 64;

impl Default for Callers {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| Text::default())))
    }
}

impl Callers {
    /// The cache entry for these callers.
    #[inline(always)]
    fn place(&mut self, callers: &[[u8; 8]]) -> &mut Text {
        &mut self.0[(hash(callers) >> (u64::BITS - CALLERS_BITS)) as usize]
    }
}

impl Text {
    #[inline(always)]
    fn is_of(&self, callers: &[[u8; 8]]) -> bool {
        !self.blocks.is_empty() && is_same(callers, &self.words)
    }

    #[cold]
    fn set(&mut self, callers: &[[u8; 8]], text: &mut Body) {
        self.words.clear();
        self.words.extend_from_slice(callers);
        text.clear();
        callers.iter().for_each(|bytes| put_word(text, u64::from_le_bytes(*bytes)));
        text.extend(b"\n");
        self.length = text.bytes().len();
        text.extend(&[0; BLOCK_BYTES][..self.length.next_multiple_of(BLOCK_BYTES) - self.length]);
        self.blocks.clear();
        self.blocks.extend_from_slice(text.bytes().as_chunks().0);
    }
}

impl SampleLines {
    /// Writes one sample.
    pub fn put(&mut self, out: &mut Body, prefix: &Prefix, sample: &Sample<'_>) {
        let callers = sample.stack.callers.whole();
        if callers.len() > MAX_CALLERS || prefix.text.len() > PREFIX_BYTES {
            return put_long(out, prefix, *sample);
        }
        let text = self.callers.place(callers);
        if !text.is_of(callers) {
            text.set(callers, &mut self.new);
        }
        Self::put_line(text, out, prefix, sample.tsc, sample.stack.first);
    }

    /// Writes one sample, unless its callers may hide the beginning of a record. Returns whether it was written.
    #[inline(always)]
    pub fn put_plain(&mut self, out: &mut Body, prefix: &Prefix, plain: Plain<'_>) -> bool {
        let text = self.callers.place(plain.callers);
        if text.is_of(plain.callers) && prefix.text.len() <= PREFIX_BYTES {
            Self::put_line(text, out, prefix, plain.head.tsc(), plain.head.address());
            return true;
        }
        self.put_unknown(out, prefix, plain.head, plain.callers)
    }

    /// The same for callers whose text is not in the cache.
    #[cold]
    #[inline(never)]
    fn put_unknown(&mut self, out: &mut Body, prefix: &Prefix, head: Head<'_>, callers: &[[u8; 8]]) -> bool {
        let is_put = !may_hide_record(callers);
        if is_put {
            self.put(out, prefix, &Plain { head, callers }.sample());
        }
        is_put
    }

    #[inline(always)]
    fn put_line(text: &Text, out: &mut Body, prefix: &Prefix, tsc: u64, first: u64) {
        let mut line = Line { room: out.room(), length: 0 };
        line.put(&prefix.block, prefix.text.len());
        let (low, length) = low_half(tsc);
        line.put(&low, length);
        if first >> 32 == 0xffff_ffff {
            // Most samples are of kernel code, whose addresses begin with these eight digits.
            let mut word = *b" ffffffff        ";
            word[9..].copy_from_slice(&digits_of(first as u32));
            line.put(&word, WORD_BYTES);
        } else {
            let (word, length) = word_text(first);
            line.put(&word, length);
        }
        let places = line.room[line.length..].as_chunks_mut().0;
        places.iter_mut().zip(&text.blocks).for_each(|(place, block)| *place = *block);
        let length = line.length + text.length;
        out.advance(length);
    }
}

/// The longest line, with the rest of its last block.
const LINE_BYTES: usize = PREFIX_BYTES + 2 * WORD_BYTES + (1 + MAX_CALLERS * WORD_BYTES).next_multiple_of(BLOCK_BYTES);

/// A line that is being written. Its room is of a fixed size, so that a block needs one check.
struct Line<'a> {
    room: &'a mut [u8; LINE_BYTES],
    length: usize,
}

impl Line<'_> {
    /// Adds the first `length` bytes of a block.
    #[inline(always)]
    fn put<const BLOCK: usize>(&mut self, block: &[u8; BLOCK], length: usize) {
        self.room[self.length..self.length + BLOCK].copy_from_slice(block);
        self.length += length;
    }
}

/// Writes one sample that is too long for a line of fixed size.
#[cold]
fn put_long(out: &mut Body, prefix: &Prefix, sample: Sample<'_>) {
    put_beginning(out, prefix, sample.tsc);
    sample.stack.iter().for_each(|word| put_word(out, word));
    out.extend(b"\n");
}

fn put_beginning(out: &mut Body, prefix: &Prefix, tsc: u64) {
    out.extend(&prefix.text);
    let (low, length) = low_half(tsc);
    out.extend(&low[..length]);
}

/// The beginning of a line: the name of the task, the CPU, and the upper half of the TSC. Most lines have it in common
/// with the previous line.
#[derive(Debug)]
pub struct Prefix {
    text: Vec<u8>,
    /// A copy of `text`, if it fits.
    block: [u8; PREFIX_BYTES],
    /// The task and the upper half of the TSC for which the text is valid.
    of: Option<(u64, u64)>,
}

/// Most prefixes are shorter: a name of some letters and two numbers.
const PREFIX_BYTES: usize = 32;

impl Default for Prefix {
    fn default() -> Self {
        Self { text: Vec::new(), block: [0; PREFIX_BYTES], of: None }
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
}

/// The two digits of every byte: reading them takes half as many instructions as computing them.
static DIGITS: [[u8; 2]; 256] = {
    let (mut all, mut byte) = ([[0; 2]; 256], 0);
    while byte < all.len() {
        let [.., high, low] = eight_digits(byte as u32);
        (all[byte], byte) = ([high, low], byte + 1);
    }
    all
};

/// The digits of a number.
#[inline(always)]
fn digits_of(number: u32) -> [u8; 8] {
    let [a, b, c, d] = number.to_be_bytes().map(|byte| u16::from_le_bytes(DIGITS[usize::from(byte)]));
    (u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32 | u64::from(d) << 48).to_le_bytes()
}

/// The lower half of the TSC, after the upper half: a block, and the length of the text at its beginning.
#[inline(always)]
fn low_half(tsc: u64) -> ([u8; 9], usize) {
    let digits = u64::from_be_bytes(digits_of(tsc as u32));
    let mut text = *b"         ";
    if tsc >> 32 != 0 {
        text[..8].copy_from_slice(&digits.to_be_bytes());
        return (text, 8);
    }
    let zeros = (tsc as u32 | 1).leading_zeros() / 4;
    // The block begins with the first significant digit. The bytes after the last digit are not part of the line.
    text[1..].copy_from_slice(&(digits << (8 * zeros)).to_be_bytes());
    (text, 9 - zeros as usize)
}

/// One word with a space before it: a block, and the length of the text at its beginning.
fn word_text(word: u64) -> ([u8; WORD_BYTES], usize) {
    let digits = Hex::new(word);
    let zeros = digits.leading_zeros();
    let mut text = *b"                 ";
    let significant = u128::from_be_bytes(*digits.all()) << (8 * zeros);
    text[1..].copy_from_slice(&significant.to_be_bytes());
    (text, WORD_BYTES - zeros)
}

/// Writes one word with a space before it.
fn put_word(out: &mut Body, word: u64) {
    let (text, length) = word_text(word);
    *out.room() = text;
    out.advance(length);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::framed::Framed;
    use crate::read::{Stack, Words};
    use kprof_format::record::{Kind, SampleHeader};

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
                lines.put(&mut out, &prefix, &sample);
                expected = expected + "a name" + &line(&sample);
            }
        }
        assert_eq!(String::from_utf8_lossy(out.bytes()), expected);
    }

    #[test]
    fn a_line_of_any_length_fits_whatever_the_name_and_the_number_of_callers() {
        let (mut lines, mut out, mut expected) = (SampleLines::default(), Body::default(), String::new());
        for name in [1, 28, 29, 30, 31, 32, 33, 100].map(|length| "n".repeat(length)) {
            for count in [0, 1, MAX_CALLERS - 1, MAX_CALLERS, MAX_CALLERS + 1, 300] {
                let callers: Vec<[u8; 8]> = (1..=count as u64).map(|word| (u64::MAX - word).to_le_bytes()).collect();
                let stack = Stack { first: u64::MAX >> 4, callers: Words::of(&callers) };
                let sample = Sample { tick: 0, tsc: u32::MAX.into(), task: 0, stack, is_snapshot: false };
                let mut prefix = Prefix::default();
                prefix.set((0, name.as_bytes(), true), 1, sample.tsc);
                lines.put(&mut out, &prefix, &sample);
                expected = expected + &name + &line(&sample);
            }
        }
        assert_eq!(String::from_utf8_lossy(out.bytes()), expected);
    }

    #[test]
    fn a_sample_with_a_long_name_has_its_whole_line_although_its_callers_are_known() {
        let mut words = Vec::new();
        for _ in 0..3 {
            let header =
                SampleHeader { position: words.len() as u64, tsc: 5, address: 0xf00, ..SampleHeader::default() };
            words.extend(header.record(Kind::Sample, &[0xf01, 0xf02]));
        }
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let (mut lines, mut out, mut expected) = (SampleLines::default(), Body::default(), String::new());
        let mut names = ["short".to_owned(), "n".repeat(PREFIX_BYTES), "short".to_owned()].into_iter();
        let run = Framed::new(&bytes, Some(0)).each_plain(|plain| {
            let (mut prefix, name) = (Prefix::default(), names.next().unwrap());
            prefix.set((0, name.as_bytes(), true), 1, 5);
            expected = format!("{expected}{name} 1 5 f00 f01 f02\n");
            lines.put_plain(&mut out, &prefix, plain)
        });
        assert_eq!(run.map(|run| run.samples), Some(3));
        assert_eq!(String::from_utf8_lossy(out.bytes()), expected);
    }

    #[test]
    fn a_prefix_is_valid_for_its_task_and_its_upper_half_of_the_tsc_only() {
        let mut prefix = Prefix::default();
        let is_of = |prefix: &Prefix| {
            [(7, 0), (7, 5 << 32), (7, 6 << 32), (8, 5 << 32)].map(|(task, tsc)| prefix.is_of(task, tsc))
        };
        for (tsc, expected) in [(5 << 32, [false, true, false, false]), (0, [true, false, false, false])] {
            prefix.set((7, b"sh", true), 1, tsc);
            assert_eq!(is_of(&prefix), expected);
        }
        prefix.set((7, b"sh", false), 1, 0);
        assert_eq!(is_of(&prefix), [false; 4], "the task has another name at another time");
    }
}
