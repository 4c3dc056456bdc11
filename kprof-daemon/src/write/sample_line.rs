//! The sample lines of the text form.
//!
//! ```text
//! sh 1 5fd0a2c1 ffffffff80201a2b ffffffff80203c4d ffffffff80241000 ffffffff8024c020
//! sh 1 5fe1131f ffffffff80209e7a ffffffff8020a111 ffffffff80241000 ffffffff8024c020
//!                                                 └─ as in the line before: copied ─┘
//! ```
//!
//! In: samples. Out: whole lines, appended to a buffer. Runs in: user process, the hot path of the daemon: numbers are
//! formatted by hand. The outer callers seldom change from one sample of a CPU to the next, so they are copied as text
//! from the previous line. Only buffers that are reused are allocated.

use crate::read::{Sample, Stack};
use kprof_format::marker::Marker;
use kprof_format::text::{Hex, eight_digits};

/// A space and sixteen digits.
const WORD_BYTES: usize = 17;

/// Writes the lines of one batch.
#[derive(Debug, Default)]
pub struct SampleLines {
    /// The callers of the previous line, as they were read.
    callers: Vec<u8>,
    /// Where that line ends in the output.
    end: usize,
    digits: Digits,
}

/// Cache of the last eight digits of addresses, because a profile has the same addresses again and again.
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
}

impl SampleLines {
    /// Begins a new batch, which has no previous line.
    pub fn begin(&mut self) {
        self.callers.clear();
    }

    /// Writes one sample whose [`prefix`] is already in the line.
    #[inline]
    pub fn put(&mut self, out: &mut Vec<u8>, sample: &Sample<'_>) {
        let callers = sample.stack.callers.whole();
        let shared = common_end(callers, self.callers.as_chunks().0);
        let (own, outer) = callers.split_at(callers.len() - shared);
        out.reserve((2 + callers.len()) * WORD_BYTES + 1);
        put_low_half(out, sample.tsc);
        let own = own.iter().map(|bytes| u64::from_le_bytes(*bytes));
        for word in [sample.stack.first].into_iter().chain(own) {
            if word >> 32 == 0xffff_ffff {
                // Nearly every word is a kernel address, which begins with these eight digits.
                let mut text = *b" ffffffff        ";
                text[9..].copy_from_slice(self.digits.of(word as u32));
                out.extend_from_slice(&text);
            } else {
                put_any(out, word);
            }
        }
        let text: usize = outer.iter().map(|bytes| WORD_BYTES - leading_zeros(u64::from_le_bytes(*bytes))).sum();
        if shared == 0 {
            out.push(b'\n');
        } else {
            out.extend_from_within(self.end - text - 1..self.end);
        }
        self.end = out.len();
        self.callers.clear();
        self.callers.extend_from_slice(callers.as_flattened());
    }
}

/// Writes the beginning of a line: the name of the task, the CPU, and the upper half of the TSC. Most lines have it in
/// common with the previous line.
pub fn prefix(out: &mut Vec<u8>, name: &[u8], cpu: u32, tsc: u64) {
    out.extend_from_slice(name);
    put_any(out, u64::from(cpu));
    if tsc >> 32 != 0 {
        put_any(out, tsc >> 32);
    }
}

/// Writes the lower half of the TSC, after the upper half.
#[inline]
fn put_low_half(out: &mut Vec<u8>, tsc: u64) {
    let digits = u64::from_be_bytes(eight_digits(tsc as u32));
    if tsc >> 32 != 0 {
        return out.extend_from_slice(&digits.to_be_bytes());
    }
    let zeros = (tsc as u32 | 1).leading_zeros() / 4;
    let mut text = *b"         ";
    // Writes eight bytes at once, beginning with the first significant digit, and then removes the surplus ones.
    text[1..].copy_from_slice(&(digits << (8 * zeros)).to_be_bytes());
    out.extend_from_slice(&text);
    out.truncate(out.len() - zeros as usize);
}

/// Writes the rest of a line as Redox's tools expect it.
pub fn plain(out: &mut Vec<u8>, sample: &Sample<'_>) {
    put_low_half(out, sample.tsc);
    without_markers(sample.stack).for_each(|word| put_any(out, word));
    out.push(b'\n');
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

/// The number of equal words at the ends of both slices.
fn common_end(one: &[[u8; 8]], other: &[[u8; 8]]) -> usize {
    one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}

/// How many leading zeros of the sixteen digits of `number` are not written.
fn leading_zeros(number: u64) -> usize {
    (number | 1).leading_zeros() as usize / 4
}

/// Writes one word with a space before it.
fn put_any(out: &mut Vec<u8>, number: u64) {
    out.push(b' ');
    out.extend_from_slice(Hex::new(number).as_bytes());
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
        let (mut lines, mut out, mut expected) = (SampleLines::default(), Vec::new(), String::new());
        for (before, after) in (0..stacks.len() * stacks.len()).map(|pair| (pair / stacks.len(), pair % stacks.len())) {
            if before == after {
                lines.begin();
            }
            for callers in [stacks[before], stacks[after]] {
                let bytes: Vec<[u8; 8]> = callers.iter().map(|word| word.to_le_bytes()).collect();
                let stack = Stack { first: 0xffff_ffff_8021_2345, callers: Words::new(bytes.as_flattened()) };
                let tsc = [0x5fd0_a2c1, 0x12_0000_a2c1, 0xffff_ffff][(before + after) % 3];
                let sample = Sample { tick: 0, tsc, task: 0, stack, is_snapshot: false };
                prefix(&mut out, b"a name", 1, tsc);
                lines.put(&mut out, &sample);
                expected = expected + "a name" + &line(&sample);
            }
        }
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn without_markers_no_candidate_is_left_either() {
        let callers =
            [Marker::Facts(Default::default()).encode(), 2, Marker::Candidate.encode(), 3, 4].map(u64::to_le_bytes);
        let stack = Stack { first: 1, callers: Words::new(callers.as_flattened()) };
        assert_eq!(without_markers(stack).collect::<Vec<_>>(), [1, 2, 4]);
    }
}
