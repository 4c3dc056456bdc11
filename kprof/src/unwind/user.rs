//! Values that come from user mode: the instruction address and the user's frames. Stage: unwind.
//!
//! In: words that a program has chosen, so they can have any value. Out: addresses in the user half, or 0 for any other
//! word. Runs in: NMI. Every such word goes through [`user_word`] before it is written into a record: a program that
//! jumps to an address that looks like a marker, or like kernel code, must not be able to write either into a stack.
//!
//! The chain of frames is read through a kernel hook that never faults. Frame addresses must be aligned and must
//! increase; the depth limit bounds their number. A word that cannot be read, or is no user address, ends the chain as
//! if it were the root, because most user code has no frame pointers.

use super::{Memory, Stop, Walk};
use crate::format::marker::TruncationReason;
use crate::kernel::Kernel;

/// No user address is at or above this: user addresses have 47 bits, with five-level paging 56 (Intel SDM volume 3,
/// 4.1).
///
/// The larger bound is right for both. With four-level paging nothing between the two bounds is mapped, so no code
/// there was executed. A word in that range has bit 63 clear, so no reader mistakes it for kernel code or for a marker.
const USER_END: u64 = 1 << 56;

/// Whether this code segment belongs to user code: its privilege level is not 0.
#[inline(always)]
pub(crate) const fn is_user(cs: u64) -> bool {
    cs & 3 != 0
}

/// A word that user mode has chosen, in the form in which it may be recorded: unchanged if it is a user address, else
/// 0.
#[inline(always)]
pub(crate) const fn user_word(word: u64) -> u64 {
    if word < USER_END { word } else { 0 }
}

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Follows the user's chain of frames, starting at `frame`.
    #[inline(never)]
    pub(super) fn user(&mut self, mut frame: u64) -> Stop {
        let mut above = 1;
        while self.user_frames && frame >= above && frame & 7 == 0 && frame < USER_END - 16 {
            let (Some(next), Some(address)) = (self.read_user(frame), self.read_user(frame.wrapping_add(8))) else {
                break;
            };
            let address = user_word(address);
            if address == 0 {
                break;
            }
            if !self.push_frame(address) {
                return Stop::Truncated(TruncationReason::Depth);
            }
            (above, frame) = (frame.wrapping_add(16), next);
        }
        Stop::Root
    }

    #[inline(never)]
    fn read_user(&self, address: u64) -> Option<u64> {
        self.kernel.read_user(address)
    }
}
