//! The user's frames, read by the kernel's hook that never faults.
//!
//! In: the user's rbp, which may be anything. Out: return addresses in the lower half. Context: NMI. The chain must be
//! aligned and rise; the depth limit bounds it. A word that cannot be read ends it as its root: user code without frame
//! pointers is the rule, not damage.

use super::{Memory, Stop, Walk};
use crate::hooks::Kernel;
use crate::ring::Full;

/// The first address that is not the user's.
const USER_END: u64 = 1 << 47;

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Follows the user's chain from `frame`.
    pub(super) fn user(&mut self, mut frame: u64) -> Result<Stop, Full> {
        if !self.user_frames {
            return Ok(Stop::Root);
        }
        let mut above = 1;
        while frame >= above && frame & 7 == 0 && frame < USER_END - 16 {
            let (Some(next), Some(address)) = (self.kernel.read_user(frame), self.kernel.read_user(frame + 8)) else {
                break;
            };
            if address == 0 || address >= USER_END {
                break;
            }
            if let Some(stop) = self.push_frame(address)? {
                return Ok(stop);
            }
            (above, frame) = (frame + 16, next);
        }
        Ok(Stop::Root)
    }
}
