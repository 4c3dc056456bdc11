//! What comes from user mode: its instruction and its frames. Stage: unwind.
//!
//! In: words that a program has chosen, so they may be anything. Out: addresses of the user half, or 0, which is
//! nowhere. Runs in: NMI. Every such word goes through [`user_word`] before it is written into a record: a program that
//! jumps to an address that looks like a marker, or like kernel code, must not be able to write either into a stack.
//!
//! The chain of frames is read by the kernel's hook that never faults. It must be aligned and rise; the depth limit
//! bounds it. A word that cannot be read, or that is nowhere, ends it as its root: user code without frame pointers is
//! the rule.

use super::{Memory, Stop, Walk};
use crate::format::marker::TruncationReason;
use crate::kernel::Kernel;

/// No user address is at or above this: user addresses have 47 bits, with five-level paging 56 (Intel SDM volume 3,
/// 4.1).
///
/// The greater bound is right for both. With four levels nothing between the two is mapped, so nothing there was
/// executed; and a word there has bit 63 clear, so that no reader takes it for kernel code or for a marker.
const USER_END: u64 = 1 << 56;

/// Whether code with this code segment is the user's: its privilege level is not the kernel's.
#[inline(always)]
pub(crate) const fn is_user(cs: u64) -> bool {
    cs & 3 != 0
}

/// A word that user mode has chosen, as it may stand in a record: itself in the user half, else 0.
#[inline(always)]
pub(crate) const fn user_word(word: u64) -> u64 {
    if word < USER_END { word } else { 0 }
}

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Follows the user's chain from `frame`.
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
