//! The frame record: the two words that a frame pointer leads to, and what an entry stub leaves above them.
//!
//! In: a frame pointer, as it is in its register. Out: addresses. Pure. Every processor has the same order (lowest
//! address first: the caller's frame pointer, the return address), but the frame pointer may lead to the record's
//! beginning or to its end. Entry stubs build a record too, with a marker in the place of the return address; what they
//! have saved of the interrupted code (`entry`) begins directly above it.

pub(crate) use super::here::record::code_address;
use super::here::record::{ALIGN, BELOW};
use core::ops::Range;

/// The bytes of a record.
const BYTES: u64 = 16;
/// The lowest bits of a frame pointer, which are 0.
pub(crate) const UNALIGNED: u64 = ALIGN - 1;
/// The number of these bits.
pub(crate) const ALIGN_SHIFT: u32 = ALIGN.trailing_zeros();

/// The address of the caller's frame pointer.
#[inline(always)]
pub(crate) const fn next_at(frame: u64) -> u64 {
    frame.wrapping_sub(BELOW)
}

/// The address of the return address.
#[inline(always)]
pub(crate) const fn return_at(frame: u64) -> u64 {
    frame.wrapping_sub(BELOW).wrapping_add(8)
}

/// The address of what an entry stub has saved above this record.
#[inline(always)]
pub(crate) const fn saved_at(frame: u64) -> u64 {
    frame.wrapping_sub(BELOW).wrapping_add(BYTES)
}

/// The frame pointer of a record that begins at `address`.
#[inline(always)]
pub(crate) const fn frame_at(address: u64) -> u64 {
    address.wrapping_add(BELOW)
}

/// The greatest frame pointer whose record lies in the range, which ends at a multiple of 8.
#[inline(always)]
pub(crate) const fn highest(range: &Range<u64>) -> u64 {
    let highest = frame_at(range.end.wrapping_sub(BYTES));
    if ALIGN > 8 { highest & !UNALIGNED } else { highest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_record_ends_where_the_range_does() {
        let (range, highest) = (0x1000..0x2000, highest(&(0x1000..0x2000)));
        assert_eq!((next_at(highest), return_at(highest), saved_at(highest)), (0x1ff0, 0x1ff8, range.end));
        assert_eq!((frame_at(next_at(highest)), highest & UNALIGNED), (highest, 0));
        assert_eq!(1 << ALIGN_SHIFT, UNALIGNED + 1);
    }
}
