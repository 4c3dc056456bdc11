//! Follows the chain of frame pointers, one step at a time.
//!
//! ```text
//!   higher   │ ...                    │
//!            │ caller's frame pointer │ ◄─ next
//!            │ ...                    │
//!            │ return address         │   or a marker word: an entry stub's, and what the entry has saved is above
//!   frame    │ saved frame pointer ───┼──► next
//!   lower    │ locals                 │
//! ```
//!
//! (On riscv64 the frame pointer leads to the end of this pair: `arch/record.rs`.)
//!
//! In: a word that is claimed to be a frame pointer. Out: return addresses, and why the chain ended. Runs in: NMI. A
//! step reads two words, both inside the declared range. The next pointer must be aligned, and must lie either above
//! this frame or in another stack in use.

use super::entry_frame::is_unmarked_entry;
use super::fast_path::{self, SHORT_ROUND};
use super::stacks::bound;
use super::stop::Saved;
use super::words::{not_text, word_of};
use super::{Memory, NOWHERE, Stop, Walk};
use crate::arch::record;
use crate::format::marker::TruncationReason;
use crate::kernel::{CallerEntryFrame, Kernel};
use crate::ring::WORD_SHIFT;
use core::ops::Range;

/// Where the chain goes after a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next frame pointer is valid, and in the same stack.
    Here,
    /// The next frame pointer lies outside this stack: in another one, or in none.
    Elsewhere,
    /// The next frame pointer is 0: this frame is the outermost.
    Root,
    /// The next frame pointer is invalid, for this reason.
    Truncated(TruncationReason),
}

/// Checks the next frame pointer without reading memory. `above` is the lowest address it may have.
#[inline(always)]
pub(crate) fn judge(next: u64, above: u64, range: &Range<u64>) -> Next {
    if next == 0 {
        Next::Root
    } else if next & record::UNALIGNED != 0 {
        Next::Truncated(TruncationReason::Alignment)
    } else if next < record::frame_at(range.start) || next > bound(range) {
        Next::Elsewhere
    } else if next < above {
        Next::Truncated(TruncationReason::Loop)
    } else {
        Next::Here
    }
}

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Follows the chain from `frame`, on the stack `range`, to an entry frame, to the root, or to where it is
    /// truncated.
    ///
    /// Runs of ordinary frames are taken by the loop of `fast_path`. A frame that this loop does not take is handled
    /// here: either it gives the reason why the walk ends, or it is taken and the next run starts. `fresh` says that no
    /// run has ended at `frame`.
    #[inline(never)]
    pub(super) fn frames(
        &mut self,
        (mut frame, mut above): (u64, u64),
        mut range: Range<u64>,
        mut fresh: bool,
    ) -> Stop {
        loop {
            match judge(frame, above, &range) {
                Next::Here if fresh && self.frames_left >= SHORT_ROUND => {
                    let places = self.sink.contiguous(self.frames_left);
                    // SAFETY: `judge` returned `Here`, and every range of a walk comes from `stack_of`, so
                    // `is_straight` has accepted it.
                    let run = unsafe { fast_path::run(self.kernel, self.memory, self.text, frame, &range, places) };
                    let taken = run.end.wrapping_sub(places.as_ptr().addr()) >> WORD_SHIFT;
                    self.sink.advance(taken);
                    self.frames_left = self.frames_left.saturating_sub(taken);
                    (frame, above) = run.cursor.next(self.memory);
                    fresh = false;
                }
                Next::Here => {
                    // SAFETY: `judge` returned `Here`, so the frame is aligned and its two words lie in the range.
                    let [next, address] = [record::next_at(frame), record::return_at(frame)]
                        .map(|address| unsafe { self.memory.stack(address) });
                    let address = record::code_address(address);
                    if let Some(stop) = self.return_address(address, frame, next) {
                        return stop;
                    }
                    (above, frame, fresh) = (frame.wrapping_add(8), next, true);
                }
                Next::Root => return Stop::Root,
                Next::Truncated(reason) => return Stop::Truncated(reason),
                Next::Elsewhere => {
                    let other = self.stack_of(frame);
                    // A frame pointer in the last words of this range is reported as `Elsewhere`, because no whole
                    // frame fits there, but its range is the same one.
                    if other == NOWHERE || other.start == range.start {
                        return Stop::Truncated(TruncationReason::Range);
                    }
                    if let Err(reason) = self.stacks.change(&range, &other) {
                        return Stop::Truncated(reason);
                    }
                    (above, range, fresh) = (record::frame_at(other.start), other, true);
                }
            }
        }
    }

    /// Takes one return address: pushes it, or returns why the run of frames ends here.
    #[inline(always)]
    fn return_address(&mut self, address: u64, frame: u64, next: u64) -> Option<Stop> {
        if !self.is_text(address) {
            return Some(not_text(address, frame, next));
        }
        if !self.push_frame(address) {
            return Some(Stop::Truncated(TruncationReason::Depth));
        }
        if is_unmarked_entry(self.kernel, address) { self.unmarked_entry(address, Some(frame), next) } else { None }
    }

    /// Ends a run at an entry that leaves no marker word. `None`: this is no entry after all. `frame` is the frame of
    /// the function that the entry has called, if it is known, and `next` the frame pointer that this function saves.
    #[inline(never)]
    pub(super) fn unmarked_entry(&self, address: u64, frame: Option<u64>, next: u64) -> Option<Stop> {
        if let Some(entry) = self.kernel.compiled_entry(address) {
            return self.compiled_entry(entry, next);
        }
        let entry = frame.and_then(|frame| self.kernel.caller_entry_frame(address, frame));
        let Some(CallerEntryFrame { marker, saved_at, fp_at }) = entry else {
            return Some(Stop::Truncated(TruncationReason::Entry));
        };
        let fp = if frame == Some(fp_at) { Some(next) } else { self.word(&self.stack_of(fp_at), fp_at) };
        Some(match fp {
            Some(fp) => Stop::Entry { marker: word_of(marker), saved: Saved::At { address: saved_at, fp } },
            None => Stop::Truncated(TruncationReason::Range),
        })
    }
}
