//! The samples inside a chunk: differences to samples before, and the callers of each stack by number.
//!
//! ```text
//! sample:  control byte        bits 0 to 2: bytes of the TSC - 1; bits 3 to 5: bytes of the address - 1;
//!                              bit 6: the callers are new; bit 7: tick and task follow
//!          number              unless bit 6 is set: of callers that an earlier sample of this chunk has defined
//!          TSC                 zigzag(TSC - TSC of the sample before), little endian
//!          first address       zigzag(address - reference), little endian
//!          tick, task          if bit 7 is set: varint zigzag(tick - tick of the sample before), varint zigzag(task -
//!                              task of the sample before); otherwise the next tick and the same task
//!          new callers         if bit 6 is set: varint words, varint how many of them, at the outer end, are the same
//!                              as in the sample before; then the others, innermost first, each one varint v:
//!              v even: address = reference + unzigzag(v / 2)       reference: the address before it in this stack
//!              v odd:  v / 2 below 4096: the marker 0xfffffffffffff000 + v / 2
//!                      v / 2 = 4096: 8 bytes follow, the word itself
//! reference of a first address: the first address of the last sample with the same callers; of the sample before, if
//!          the callers are new
//! varint:  7 bits a byte, least first, bit 7 set on all but the last; at most 10 bytes
//! zigzag:  0, -1, 1, -2, ... as 0, 1, 2, 3, ...
//! ```
//!
//! New callers get the next number, from 0 on. If that would be 256, or if the callers, with a word for each first
//! address, would be more than 8192 words, all callers are forgotten first, those of the sample before too. At the
//! beginning of a chunk there are no callers, and tick, TSC, task and address before are 0.
//!
//! In: samples or bytes. Out: the other of the two. Runs in: any; no allocation, 70 KiB of state. Never trusts a count
//! or a number. A stack is mostly one that was there before but for its first address, so a sample takes few bytes and
//! few instructions.

mod reader;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::Reader;
pub use writer::{MAX_SAMPLE_BYTES, Writer};

use super::record::{MAX_WORDS, SampleHeader};

/// The greatest stack in words, the first address included.
pub const MAX_STACK_WORDS: usize = MAX_WORDS - SampleHeader::WORDS + 1;
/// The greatest number of bytes of a varint.
pub const MAX_VARINT_BYTES: usize = 10;
/// The value of `v / 2` that says that the word itself follows, as 8 bytes.
const LITERAL: u64 = 4096;
/// Bit of the control byte: the callers are new.
const NEW_CALLERS: u8 = 1 << 6;
/// Bit of the control byte: tick and task follow.
const TICK_AND_TASK: u8 = 1 << 7;

/// One sample without its stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// The stack has more words than a record can have, or shares more words than there are, or has callers of a number
    /// that no sample has defined.
    Words,
}

/// A hash of the callers of a stack, whose upper bits are the best ones. It is computed from the innermost three
/// callers, which differ most, and from the outermost one, which may be a program's.
#[inline(always)]
pub fn hash(callers: &[[u8; 8]]) -> u64 {
    let word = |bytes: &[u8; 8], turn: u32| u64::from_le_bytes(*bytes).rotate_left(turn);
    let sum = match callers {
        [a, b, c, .., z] => word(a, 0) ^ word(b, 16) ^ word(c, 32) ^ word(z, 48),
        few => few.iter().fold(few.len() as u64, |sum, bytes| sum.rotate_left(16) ^ word(bytes, 0)),
    };
    sum.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Whether two stacks have the same callers. Four words are compared at once, which takes a processor a few
/// instructions.
#[inline(always)]
pub fn is_same(new: &[[u8; 8]], old: &[[u8; 8]]) -> bool {
    let (new_bytes, old_bytes) = (new.as_flattened(), old.as_flattened());
    if new.len() != old.len() {
        return false;
    }
    match (new_bytes.last_chunk::<32>(), old_bytes.last_chunk::<32>()) {
        // The last four words are compared first. The others are whole chunks of four, and some of the last four again.
        (Some(new_end), Some(old_end)) => {
            let mut chunks = new_bytes.as_chunks::<32>().0.iter().zip(old_bytes.as_chunks::<32>().0);
            new_end == old_end && chunks.all(|(new, old)| new == old)
        }
        _ => new.iter().zip(old).all(|(new, old)| new == old),
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
pub fn varint(mut value: u64) -> ([u8; MAX_VARINT_BYTES], usize) {
    let (mut block, mut length) = ([0; MAX_VARINT_BYTES], 0);
    while value >= 0x80 {
        block[length] = value as u8 | 0x80;
        value >>= 7;
        length += 1;
    }
    block[length] = value as u8;
    (block, length + 1)
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
