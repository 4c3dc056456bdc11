//! Records the caller where the frame pointer is not that of the running function: in a prologue, in an epilogue, or in
//! a function without a frame. The rules are the processor's (`arch/*/caller.rs`).
//!
//! In: the interrupted registers, the stack in use. Out: a caller, or a candidate after marker 6, or nothing. Runs in:
//! NMI, once per sample and once per entry frame. A rule reads only what [`View`] gives it: words of the declared stack
//! and kernel code.

use super::entry_frame::is_unmarked_entry;
use super::{Memory, Stop, Walk};
use crate::arch::caller;
use crate::arch::view::{Innermost, View};
use crate::format::marker::Marker;
use crate::format::unwind::Rule;
use crate::kernel::{Kernel, Registers};
use core::ops::Range;

/// The memory that a walk may read for a rule.
struct Around<'w, 'a, 'r, K, M> {
    walk: &'w mut Walk<'a, 'r, K, M>,
    range: &'w Range<u64>,
}

impl<K: Kernel, M: Memory> View for Around<'_, '_, '_, K, M> {
    fn stack_word(&self, address: u64) -> Option<u64> {
        self.walk.word(self.range, address)
    }

    fn code(&self, address: u64) -> [u8; 8] {
        self.walk.code(address)
    }

    fn is_code(&self, address: u64) -> bool {
        self.walk.is_code(address)
    }

    fn may_search(&mut self, bytes: u64) -> bool {
        let left = self.walk.scan_left.checked_sub(bytes);
        self.walk.scan_left = left.unwrap_or(self.walk.scan_left);
        left.is_some()
    }
}

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Pushes the innermost caller or a candidate for it, if the frame pointer does not lead to it. Returns how the
    /// walk continues if this caller is an entry.
    #[inline(always)]
    pub(super) fn innermost_caller(&mut self, at: &Registers, range: &Range<u64>) -> Option<Stop> {
        let word = caller::first_word(at, |address| self.word(range, address))?;
        if !caller::is_saved_frame_pointer(at, word) && !self.is_text(word) {
            return None;
        }
        let (caller, is_sure) = self.push_innermost_caller(at, range, word)?;
        if !is_unmarked_entry(self.kernel, caller) {
            return None;
        }
        // The function that runs has no frame yet, or no longer: where it would be, is known if its caller is.
        let frame = if is_sure { caller::own_frame(at, word) } else { None };
        self.unmarked_entry(caller, frame, at.fp)
    }

    /// Returns what it has pushed, and whether that is surely the caller.
    #[cold]
    fn push_innermost_caller(&mut self, at: &Registers, range: &Range<u64>, word: u64) -> Option<(u64, bool)> {
        let (caller, is_sure) = match caller::find(&mut Around { walk: self, range }, at, word) {
            Innermost::None => return None,
            Innermost::Caller(caller) => (caller, true),
            Innermost::Candidate(candidate) => (candidate, false),
        };
        // If the frame limit is reached, the walk that follows reports it.
        if !is_sure && self.frames_left > 0 {
            self.sink.push(Marker::Candidate.encode());
        }
        self.push_frame(caller);
        Some((caller, is_sure))
    }

    /// How the caller is found in assembly that the unwind table does not describe.
    #[inline(never)]
    pub(super) fn rule_by_code(&mut self, at: &Registers, range: &Range<u64>) -> Rule {
        caller::rule_by_code(&mut Around { walk: self, range }, at).unwrap_or(Rule::NONE)
    }

    /// An aligned word of the range, which came from `stack_of`.
    #[inline(always)]
    pub(super) fn word(&self, range: &Range<u64>, address: u64) -> Option<u64> {
        // SAFETY: `holds` confirms that this is an aligned word of the range, and the range came from `stack_of`.
        self.holds(range, address, 8).then(|| unsafe { self.memory.stack(address) })
    }
}
