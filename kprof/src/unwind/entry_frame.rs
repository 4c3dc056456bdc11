//! Continues a walk across an entry stub: from the handler's frames to the interrupted code.
//!
//! ```text
//!   frame + 48 │ SS     │
//!   frame + 40 │ RSP    │
//!   frame + 32 │ RFLAGS │   the hardware frame; a syscall stub pushes the same five words
//!   frame + 24 │ CS     │
//!   frame + 16 │ RIP    │ ◄─ rip_at
//!   frame + 8  │ marker │   where a return address would be (instead of the hardware's error code)
//!   frame      │ rbp    │   of the interrupted code
//! ```
//!
//! In: a marker and the address of the hardware frame. Out: the marker, then the interrupted instruction, then either
//! the interrupted registers to continue with, or the end of the walk. Runs in: NMI. The five words are read only if
//! one declared stack contains all of them.

use super::user::{is_user, user_word};
use super::words::{SYSCALL, word_of};
use super::{Memory, NOWHERE, Stop, Walk};
use crate::format::marker::{Marker, TruncationReason};
use crate::kernel::{EntryFrame, Kernel, Registers};
use core::ops::Range;

/// How the walk continues after an instruction inside an entry stub. `None`: it follows the chain from rbp, as in any
/// other code.
pub(super) fn of_entry_frame(frame: Option<EntryFrame>, rbp: u64) -> Option<Stop> {
    let (marker, rip_at) = match frame {
        None => return Some(Stop::Truncated(TruncationReason::Entry)),
        Some(EntryFrame::Built) => return None,
        Some(EntryFrame::OnStack { marker, rip_at }) => (marker, Some(rip_at)),
        Some(EntryFrame::InRegisters { marker }) => (marker, None),
    };
    Some(Stop::Entry { marker: word_of(marker), rip_at, rbp })
}

/// Whether the return address of a frame lies in an entry stub that leaves no marker word. If so, the chain of frames
/// must not be followed past that frame.
#[inline(always)]
pub(super) fn is_unmarked_entry<K: Kernel>(kernel: &K, return_address: u64) -> bool {
    !K::MARKED_ENTRIES && kernel.is_entry_code(return_address)
}

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Crosses one entry: pushes its marker and the interrupted instruction, and finds out how the walk continues.
    /// `rcx` is the user's RIP if the stub still holds it in that register, and 0 if it is unknown.
    #[inline(never)]
    pub(super) fn cross(&mut self, marker: u64, rip_at: Option<u64>, rbp: u64, rcx: u64) -> Stop {
        self.enter(marker);
        let Some(rip_at) = rip_at else {
            return self.user_code_after_entry(&Registers { rip: rcx, rbp, ..Registers::default() });
        };
        let range = self.stack_of(rip_at);
        if !self.holds(&range, rip_at, 8 * 5) {
            return Stop::Truncated(TruncationReason::Range);
        }
        let word = |offset| rip_at.wrapping_add(offset);
        // SAFETY: `holds` has confirmed that these are aligned words of a range that came from `stack_of`.
        let [rip, cs, rflags, rsp] = [0, 8, 16, 24].map(|offset| unsafe { self.memory.stack(word(offset)) });
        let interrupted = Registers { rip, cs, rflags, rsp, rbp, rcx: 0 };
        if is_user(cs) {
            return self.user_code_after_entry(&interrupted);
        }
        if let Some(stop) = self.kernel_code_after_entry(&interrupted) {
            return stop;
        }
        match self.out_of(&range, rip_at, rsp) {
            Ok(()) => self.innermost(&interrupted),
            Err(reason) => Stop::Truncated(reason),
        }
    }

    /// Pushes an entry's marker.
    pub(super) fn enter(&mut self, marker: u64) {
        self.sink.push(marker);
        self.in_interrupt |= marker < SYSCALL;
    }

    /// The interrupted code is kernel code: pushes its instruction. Returns a reason if the walk must end here.
    pub(super) fn kernel_code_after_entry(&mut self, interrupted: &Registers) -> Option<Stop> {
        if !self.is_code(interrupted.rip) {
            return Some(Stop::Truncated(TruncationReason::NotText));
        }
        if self.push_frame(interrupted.rip) { None } else { Some(Stop::Truncated(TruncationReason::Depth)) }
    }

    /// Moves from the stack of a hardware frame to the stack of the interrupted code. That is either the same stack,
    /// above the hardware frame, or another one.
    fn out_of(&mut self, from: &Range<u64>, rip_at: u64, rsp: u64) -> Result<(), TruncationReason> {
        let to = self.stack_of(rsp);
        if to == NOWHERE {
            return Err(TruncationReason::Range);
        }
        if from.start != to.start {
            return self.stacks.change(from, &to);
        }
        if rsp > rip_at { Ok(()) } else { Err(TruncationReason::Loop) }
    }

    /// The interrupted code is user code: pushes the user marker, the user's instruction (0 if it is unknown or not a
    /// user address), and the user's frames if they were asked for.
    pub(super) fn user_code_after_entry(&mut self, interrupted: &Registers) -> Stop {
        self.sink.push(Marker::User.encode());
        if self.push_frame(user_word(interrupted.rip)) {
            self.user(interrupted.rbp)
        } else {
            Stop::Truncated(TruncationReason::Depth)
        }
    }
}
