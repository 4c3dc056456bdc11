//! The user's frames, read by the kernel's hook that never faults.
//!
//! In: the user's rbp, which may be anything. Out: return addresses in the lower half. Context: NMI. The chain must be
//! aligned and rise; the depth limit bounds it. A word that cannot be read ends it as its root: user code without frame
//! pointers is the rule, not damage.

use super::{Memory, Stop, Walk};
use crate::format::marker::CutReason;
use crate::kernel::Kernel;

/// The first address that is not the user's.
const USER_END: u64 = 1 << 47;

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Follows the user's chain from `frame`.
    #[inline(never)]
    pub(super) fn user(&mut self, mut frame: u64) -> Stop {
        let mut above = 1;
        while self.user_frames && frame >= above && frame & 7 == 0 && frame < USER_END - 16 {
            let (Some(next), Some(address)) = (self.user_word(frame), self.user_word(frame + 8)) else {
                break;
            };
            if address == 0 || address >= USER_END {
                break;
            }
            if !self.push_frame(address) {
                return Stop::Cut(CutReason::Depth);
            }
            (above, frame) = (frame + 16, next);
        }
        Stop::Root
    }

    #[inline(never)]
    fn user_word(&self, address: u64) -> Option<u64> {
        self.kernel.read_user(address)
    }
}
