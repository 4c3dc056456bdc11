//! The samples inside a chunk: differences to the previous sample, as variable-length numbers.
//!
//! ```text
//! sample:  varint zigzag(tick    - tick of the sample before)      the one before the first has tick, TSC and
//!          varint zigzag(TSC     - TSC of the sample before)       task 0 and an empty stack; differences
//!          varint zigzag(task - task of the sample before)   wrap at 64 bits
//!          varint words of the stack
//!          varint how many of them, at the outer end, are the same as in the sample before
//!          the others, innermost first, each one varint v:
//!              v even: address = reference + unzigzag(v / 2)       reference: the address before it in this sample,
//!              v odd:  v / 2 below 4096: the marker 0xfffffffffffff000 + v / 2      for the first one that of the
//!                      v / 2 = 4096: 8 bytes follow, the word itself                sample before
//! varint:  7 bits a byte, least first, bit 7 set on all but the last; at most 10 bytes
//! zigzag:  0, -1, 1, -2, ... as 0, 1, 2, 3, ...
//! ```
//!
//! In: samples or bytes. Out: the other of the two. Runs in: any; no allocation, 8 KiB of state. Never trusts a count.

use super::marker::MARKER_PAGE;
use super::record::{MAX_WORDS, SAMPLE_HEADER_WORDS};

/// The greatest stack in words.
pub const MAX_STACK_WORDS: usize = MAX_WORDS - SAMPLE_HEADER_WORDS;
/// The size of the blocks that numbers are written into. The longest number fits, so a whole block can be copied,
/// whatever the length of the number.
pub const BLOCK_BYTES: usize = 16;
/// The value of `v / 2` that says that the word itself follows, as 8 bytes.
const LITERAL: u64 = 4096;

/// The previous sample, to which the differences of the next one refer, both when writing and when reading.
#[derive(Clone, Debug)]
pub struct Delta {
    tick: u64,
    tsc: u64,
    task: u64,
    first: u64,
    /// The stack. It ends at the end of the array, so that the outer part that two stacks share need not be moved.
    words: [u64; MAX_STACK_WORDS],
    start: usize,
}

/// One sample without its stack, which is [`Delta::stack`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Tick number of the CPU.
    pub tick: u64,
    /// TSC.
    pub tsc: u64,
    /// Task id.
    pub task: u64,
}

/// Why bytes are not a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSample {
    /// The bytes end in the middle of the sample.
    End,
    /// A number of more than 64 bits.
    Number,
    /// The stack has more words than a record can have, or none, or shares more words than there are.
    Words,
}

impl Default for Delta {
    fn default() -> Self {
        Self { tick: 0, tsc: 0, task: 0, first: 0, words: [0; MAX_STACK_WORDS], start: MAX_STACK_WORDS }
    }
}

impl Delta {
    /// Resets the state to that at the beginning of a chunk.
    pub fn reset(&mut self) {
        (self.tick, self.tsc, self.task, self.first, self.start) = (0, 0, 0, 0, MAX_STACK_WORDS);
    }

    /// The stack of the last sample read, innermost first.
    pub fn stack(&self) -> &[u64] {
        &self.words[self.start..]
    }

    /// Writes one sample as bytes. `put` is called with blocks, and for each with the number of its bytes that belong
    /// to the sample.
    ///
    /// # Panics
    /// When the stack is empty or longer than [`MAX_STACK_WORDS`]; no record can hold such a stack.
    #[inline]
    pub fn write(&mut self, times: Times, stack: &[u64], mut put: impl FnMut(&[u8; BLOCK_BYTES], usize)) {
        assert!((1..=MAX_STACK_WORDS).contains(&stack.len()), "a stack of {} words", stack.len());
        let common = stack.iter().rev().zip(self.stack().iter().rev()).take_while(|(new, old)| new == old).count();
        for (new, old) in [(times.tick, self.tick), (times.tsc, self.tsc), (times.task, self.task)] {
            put_varint(zigzag(new.wrapping_sub(old)), &mut put);
        }
        put_varint(stack.len() as u64, &mut put);
        put_varint(common as u64, &mut put);
        let mut reference = self.first;
        for &word in &stack[..stack.len() - common] {
            let difference = zigzag(word.wrapping_sub(reference));
            if word >= MARKER_PAGE {
                put_varint((word - MARKER_PAGE) << 1 | 1, &mut put);
            } else if difference >> 63 == 0 {
                put_varint(difference << 1, &mut put);
                reference = word;
            } else {
                put_varint(LITERAL << 1 | 1, &mut put);
                let mut block = [0; BLOCK_BYTES];
                block[..8].copy_from_slice(&word.to_le_bytes());
                put(&block, 8);
                reference = word;
            }
        }
        self.start = MAX_STACK_WORDS - stack.len();
        let changed = self.start..self.start + stack.len() - common;
        self.words[changed].copy_from_slice(&stack[..stack.len() - common]);
        self.follow(times);
    }

    /// Reads the sample at the beginning of `bytes` and moves `bytes` past it. `None` at the end of `bytes`.
    ///
    /// # Errors
    /// [`BadSample`]; nothing more can be read from this chunk then.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Option<Result<Times, BadSample>> {
        (!bytes.is_empty()).then(|| self.read_one(bytes))
    }

    fn read_one(&mut self, bytes: &mut &[u8]) -> Result<Times, BadSample> {
        let mut next = |old: u64| Ok(old.wrapping_add(unzigzag(take_varint(bytes)?)));
        let times = Times { tick: next(self.tick)?, tsc: next(self.tsc)?, task: next(self.task)? };
        let count = usize::try_from(take_varint(bytes)?).map_err(|_| BadSample::Words)?;
        let common = usize::try_from(take_varint(bytes)?).map_err(|_| BadSample::Words)?;
        if count == 0 || count > MAX_STACK_WORDS || common > count || common > self.stack().len() {
            return Err(BadSample::Words);
        }
        self.start = MAX_STACK_WORDS - count;
        let mut reference = self.first;
        for at in self.start..MAX_STACK_WORDS - common {
            let value = take_varint(bytes)?;
            self.words[at] = match (value & 1, value >> 1) {
                (0, difference) => reference.wrapping_add(unzigzag(difference)),
                (_, marker) if marker < LITERAL => MARKER_PAGE + marker,
                (_, LITERAL) => {
                    let (word, rest) = bytes.split_first_chunk().ok_or(BadSample::End)?;
                    *bytes = rest;
                    u64::from_le_bytes(*word)
                }
                _ => return Err(BadSample::Words),
            };
            if self.words[at] < MARKER_PAGE {
                reference = self.words[at];
            }
        }
        self.follow(times);
        Ok(times)
    }

    fn follow(&mut self, times: Times) {
        (self.tick, self.tsc, self.task) = (times.tick, times.tsc, times.task);
        self.first = self.stack().iter().copied().find(|word| *word < MARKER_PAGE).unwrap_or(0);
    }
}

/// The bytes of a number: a block, and how many bytes at its beginning belong to the number.
///
/// ```
/// use kprof_format::samples::varint;
/// let (block, length) = varint(300);
/// assert_eq!(block[..length], [0xac, 0x02]);
/// ```
#[inline]
pub fn varint(value: u64) -> ([u8; BLOCK_BYTES], usize) {
    if value < 0x80 {
        return (u128::from(value).to_le_bytes(), 1);
    }
    let bits = u64::BITS - value.leading_zeros();
    // Seven bits a byte, rounded up, without a division.
    let count = (bits as usize * 9 + 64) / 64;
    // The lower 56 bits are eight groups of seven bits. Each of the three steps divides every piece into two halves and
    // moves the upper half up. After the last step each group is in a byte of its own.
    let pairs = (value & 0x00ff_ffff_f000_0000) << 4 | value & 0x0fff_ffff;
    let fours = (pairs & 0x0fff_c000_0fff_c000) << 2 | pairs & 0x0000_3fff_0000_3fff;
    let groups = (fours & 0x3f80_3f80_3f80_3f80) << 1 | fours & 0x007f_007f_007f_007f;
    // Bit 7 is set in all bytes but the last one. The bytes after the last one do not belong to the number.
    let lower = groups | 0x8080_8080_8080_8080;
    if count <= 8 {
        return (u128::from(lower ^ 0x80 << (8 * count - 8)).to_le_bytes(), count);
    }
    let upper = value >> 56;
    let last = if count == 10 { upper & 0x7f | 0x80 | upper >> 7 << 8 } else { upper };
    ((u128::from(last) << 64 | u128::from(lower)).to_le_bytes(), count)
}

/// Passes the bytes of a number to `put`: a block, and how many of its bytes belong to the number.
#[inline]
fn put_varint(value: u64, put: &mut impl FnMut(&[u8; BLOCK_BYTES], usize)) {
    let (block, length) = varint(value);
    put(&block, length);
}

/// Reads a number and moves `bytes` past it.
///
/// # Errors
/// [`BadSample::End`] or [`BadSample::Number`].
pub fn take_varint(bytes: &mut &[u8]) -> Result<u64, BadSample> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(BadSample::End)?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(BadSample::Number);
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(BadSample::Number)
}

const fn zigzag(value: u64) -> u64 {
    value << 1 ^ ((value as i64) >> 63) as u64
}

const fn unzigzag(value: u64) -> u64 {
    value >> 1 ^ (value & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 0xffff_ffff_8020_0000;

    fn survive(samples: &[(Times, &[u64])]) -> usize {
        let (mut bytes, mut length) = ([0; 20_000], 0);
        let mut writer = Delta::default();
        for (times, stack) in samples {
            writer.write(*times, stack, |block, used| {
                bytes[length..length + used].copy_from_slice(&block[..used]);
                length += used;
            });
        }
        let (mut reader, mut rest) = (Delta::default(), &bytes[..length]);
        for (times, stack) in samples {
            assert_eq!(reader.read(&mut rest), Some(Ok(*times)));
            assert_eq!(reader.stack(), *stack);
        }
        assert_eq!(reader.read(&mut rest), None);
        // A truncated input reads as fewer samples or as an error, never as other samples.
        for end in 0..length.min(300) {
            let (mut reader, mut rest, mut count) = (Delta::default(), &bytes[..end], 0);
            while let Some(Ok(times)) = reader.read(&mut rest) {
                assert_eq!((times, reader.stack()), (samples[count].0, samples[count].1));
                count += 1;
            }
        }
        length
    }

    #[test]
    fn numbers_of_every_length_survive() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift, 0x9e37_79b9_7f4a_7c15 >> shift] {
                let (block, length) = varint(value);
                let mut bytes = &block[..length];
                assert_eq!((take_varint(&mut bytes), bytes), (Ok(value), &[][..]), "{value:x}");
                assert_eq!(length, ((u64::BITS - (value | 1).leading_zeros()) as usize).div_ceil(7), "{value:x}");
            }
        }
    }

    #[test]
    fn samples_of_every_shape_survive() {
        let times = |tick, tsc, task| Times { tick, tsc, task };
        let long = [K; MAX_STACK_WORDS];
        survive(&[
            (times(1, 100, 7), &[K, MARKER_PAGE + 1, K + 5, K + 900]),
            (times(2, 90, 7), &[K + 3, K + 900]),
            (times(u64::MAX, u64::MAX, u64::MAX), &[0]),
            (times(0, 0, 0), &[u64::MAX, MARKER_PAGE, 0x7fff_dead_beef, 1 << 63, 1 << 62, K]),
            (times(5, 1 << 63, 1), &long),
            (times(6, 0, 1), &long),
            (times(6, 0, 1), &[MARKER_PAGE + 0x121]),
            (times(7, 0, 1), &[K]),
        ]);
    }

    #[test]
    fn a_repeated_stack_costs_a_few_bytes() {
        let stack = [K + 0x1234, MARKER_PAGE + 1, K + 0x88, K + 0x4000, MARKER_PAGE + 0x300, K + 0x9999];
        let first = survive(&[(Times { tick: 1, tsc: 1 << 40, task: 3 }, &stack)]);
        let both = survive(&[
            (Times { tick: 1, tsc: 1 << 40, task: 3 }, &stack),
            (Times { tick: 2, tsc: (1 << 40) + 2_200_000, task: 3 }, &stack),
        ]);
        assert!(both - first <= 8, "{} bytes", both - first);
    }

    #[test]
    fn foreign_bytes_give_an_error_and_never_a_panic() {
        let mut state = 0x1234_5678_9abc_def0_u64;
        for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
            let mut bytes = [0; 40];
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8 & if state & 1 == 0 { 0x0f } else { 0xff };
            }
            let (mut reader, mut rest) = (Delta::default(), &bytes[..]);
            while let Some(Ok(_)) = reader.read(&mut rest) {
                assert!(!reader.stack().is_empty());
            }
        }
    }
}
