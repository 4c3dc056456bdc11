//! Continues a walk across an entry stub: from the handler's frames to the interrupted code.
//!
//! ```text
//!                │ saved │   what the entry has saved of the interrupted code: `arch/*/entry.rs`
//!   record + 16  │ words │ ◄─ saved_at
//!   record + 8   │ marker│   where a return address would be
//!   record       │ fp    │   the interrupted code's frame pointer
//! ```
//!
//! In: a marker, and the address of the saved words or their values. Out: the marker, then the interrupted instruction,
//! then either the interrupted registers to continue with, or the end of the walk. Runs in: NMI. The saved words are
//! read only if one declared stack contains all of them.

use super::stop::Saved;
use super::user::user_word;
use super::words::{SYSCALL, word_of};
use super::{Memory, NOWHERE, Stop, Walk};
use crate::arch::entry;
use crate::format::marker::{Marker, TruncationReason};
use crate::kernel::{EntryFrame, Kernel, Registers};
use core::ops::Range;

/// Whether the return address of a frame lies in an entry that leaves no marker word, or may lie in one. If so, the
/// chain of frames must not be followed past that frame without a look at the entry.
#[inline(always)]
pub(super) fn is_unmarked_entry<K: Kernel>(kernel: &K, return_address: u64) -> bool {
    !K::MARKED_ENTRIES && kernel.is_entry_code(return_address) || kernel.compiled_entry(return_address).is_some()
}

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// How the walk continues after an instruction inside an entry stub. `None`: it follows the chain from the frame
    /// pointer, as in any other code.
    pub(super) fn of_entry_code(&self, at: &Registers) -> Option<Stop> {
        let (marker, saved) = match self.kernel.entry_frame(at) {
            None => return Some(Stop::Truncated(TruncationReason::Entry)),
            Some(EntryFrame::Built) => return None,
            Some(EntryFrame::OnStack { marker, saved_at }) => (marker, Saved::At { address: saved_at, fp: at.fp }),
            Some(EntryFrame::InRegisters { marker, interrupted }) => (marker, Saved::Values(interrupted)),
        };
        Some(Stop::Entry { marker: word_of(marker), saved })
    }

    /// Crosses one entry: pushes its marker and the interrupted instruction, and finds out how the walk continues.
    #[inline(never)]
    pub(super) fn cross(&mut self, marker: u64, saved: Saved) -> Stop {
        self.enter(marker);
        let (address, fp) = match saved {
            Saved::At { address, fp } => (address, fp),
            Saved::Values(interrupted) => return self.user_code_after_entry(&interrupted),
        };
        let range = self.stack_of(address);
        if !self.holds(&range, address, entry::BYTES) {
            return Stop::Truncated(TruncationReason::Range);
        }
        // SAFETY: `holds` has confirmed that these are aligned words of a range that came from `stack_of`.
        let interrupted = entry::interrupted(|offset| unsafe { self.memory.stack(address.wrapping_add(offset)) }, fp);
        if interrupted.from_user {
            return self.user_code_after_entry(&interrupted);
        }
        if let Some(stop) = self.kernel_code_after_entry(&interrupted) {
            return stop;
        }
        match self.out_of(&range, address, interrupted.sp) {
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
        if !self.is_code(interrupted.pc) {
            return Some(Stop::Truncated(TruncationReason::NotText));
        }
        if self.push_frame(interrupted.pc) { None } else { Some(Stop::Truncated(TruncationReason::Depth)) }
    }

    /// Moves from the stack of the saved words to the stack of the interrupted code. That is either the same stack,
    /// above these words, or another one.
    fn out_of(&mut self, from: &Range<u64>, saved_at: u64, sp: u64) -> Result<(), TruncationReason> {
        let to = self.stack_of(sp);
        if to == NOWHERE {
            return Err(TruncationReason::Range);
        }
        if from.start != to.start {
            return self.stacks.change(from, &to);
        }
        if sp > saved_at { Ok(()) } else { Err(TruncationReason::Loop) }
    }

    /// The interrupted code is user code: pushes the user marker, the user's instruction (0 if it is unknown or not a
    /// user address), and the user's frames if they were asked for.
    pub(super) fn user_code_after_entry(&mut self, interrupted: &Registers) -> Stop {
        self.sink.push(Marker::User.encode());
        if self.push_frame(user_word(interrupted.pc)) {
            self.user(interrupted.fp)
        } else {
            Stop::Truncated(TruncationReason::Depth)
        }
    }
}
