//! Walks by the kernel's unwind table, if it gives one: for code without frame pointers.
//!
//! ```text
//!   caller's sp │ ...            │ ◄─ sp or fp and a distance: the rule of the instruction
//!          - 8  │ return address │
//!               │ saved fp       │ ◄─ below the caller's sp, by a distance of the rule
//!   sp          │ locals         │
//! ```
//!
//! In: registers of kernel code, the table. Out: return addresses, and why the walk ended: at an entry, the root, or
//! truncated. Runs in: NMI. The table only proposes addresses: each is checked as in a chain of frame pointers. It must
//! be an aligned word of a declared stack and lie above the last one, or in another stack in use; and what it holds
//! must be kernel code. So a wrong table can neither fault nor loop. Code that the table does not describe ends the
//! walk: nothing shows that its frame pointer is one. Interrupted assembly is an exception: where its own code says how
//! it returns (`arch/*/caller.rs`), the walk goes on.
//!
//! Entry stubs are crossed by their own frame, whose address is in the frame pointer as it was in the stub, or as the
//! kernel describes them ([`Kernel::caller_entry_frame`]). Entries that the compiler has made are recognized by what
//! the processor has pushed; of which kind they are is not known.

use super::stop::Saved;
use super::words::{not_text, word_of};
use super::{Memory, NOWHERE, Stop, Walk};
use crate::arch::record;
use crate::format::marker::{Marker, TruncationReason};
use crate::format::unwind::{Base, Saved as SavedFrame};
use crate::kernel::{Kernel, Registers, UnwindTable};
use core::ops::Range;

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// The frames of interrupted kernel code, on the stack `range`, up to an entry frame or the end.
    #[inline(never)]
    pub(super) fn by_table(&mut self, table: &UnwindTable, at: &Registers, mut range: Range<u64>) -> Stop {
        // A return address is looked up one byte lower: a call that never returns may be the last of its function.
        let (mut sp, mut fp) = (at.sp, Some(at.fp));
        let mut rule = table.rule_at(at.pc, |address| self.two_bytes(address));
        if rule.base == Base::None {
            rule = self.rule_by_code(at, &range);
        }
        loop {
            let above = match (rule.base, fp) {
                (Base::Stack(bytes), _) => sp.wrapping_add(bytes.into()),
                (Base::Frame(bytes), Some(fp)) => fp.wrapping_add(bytes.into()),
                (Base::Outermost, _) => return Stop::Root,
                (Base::Frame(_), None) | (Base::None, _) => return Stop::Truncated(TruncationReason::NoRule),
            };
            let place = above.wrapping_sub(8);
            if !self.holds(&range, place, 8) {
                match self.other_stack(place, &range) {
                    Ok(other) => (sp, range) = (other.start, other),
                    Err(reason) => return Stop::Truncated(reason),
                }
            } else if place < sp {
                return Stop::Truncated(TruncationReason::Loop);
            }
            fp = match rule.frame {
                SavedFrame::Same => fp,
                SavedFrame::Lost => None,
                // In an epilogue it is no longer on the stack, but in its register.
                SavedFrame::Below(bytes) if above.wrapping_sub(bytes.into()) < sp => fp,
                SavedFrame::Below(bytes) => self.word(&range, above.wrapping_sub(bytes.into())),
            };
            // SAFETY: `holds` has confirmed, here or in `other_stack`, that this is an aligned word of `range`, which
            // came from `stack_of`.
            let address = record::code_address(unsafe { self.memory.stack(place) });
            let is_text = self.is_text(address);
            // Below what the processor pushes is nothing, or an error code of 32 bits, which is no code address.
            let saved_at = if is_text { place } else { place.wrapping_add(8) };
            if (is_text || address >> 32 == 0)
                && let Some(stop) = self.unknown_entry(saved_at, fp, &range)
            {
                return stop;
            }
            if !is_text {
                return not_text(address, record::frame_at(place.wrapping_sub(8)), fp.unwrap_or(0));
            }
            if !self.push_frame(address) {
                return Stop::Truncated(TruncationReason::Depth);
            }
            if self.kernel.is_entry_code(address) {
                return self.entry_by_table(address, above, fp, &range);
            }
            sp = above;
            rule = table.rule(address.wrapping_sub(1), |address| self.two_bytes(address));
        }
    }

    /// If the processor has pushed these words, the function was an entry that the compiler has made: its table has the
    /// distance to the words, and does not tell that they are no return address.
    #[inline(always)]
    fn unknown_entry(&self, saved_at: u64, fp: Option<u64>, range: &Range<u64>) -> Option<Stop> {
        let is_selector = |word: u64| word >> 16 == 0 && word >> 3 != 0;
        if !self.word(range, saved_at.wrapping_add(8)).is_some_and(is_selector) {
            return None;
        }
        let found = self.entry_at(Marker::Interrupt(0), saved_at, fp.unwrap_or(0))?;
        Some(if fp.is_some() { found } else { Stop::Truncated(TruncationReason::Entry) })
    }

    /// Two bytes of code.
    fn two_bytes(&self, address: u64) -> [u8; 2] {
        let [first, second, ..] = self.code(address);
        [first, second]
    }

    /// The stack that has this word, if it is not `range` and may be changed to.
    #[inline(never)]
    fn other_stack(&mut self, place: u64, range: &Range<u64>) -> Result<Range<u64>, TruncationReason> {
        let other = self.stack_of(place);
        match () {
            () if place & 7 != 0 => Err(TruncationReason::Alignment),
            () if other == NOWHERE || other.start == range.start => Err(TruncationReason::Range),
            () if !self.holds(&other, place, 8) => Err(TruncationReason::Range),
            () => self.stacks.change(range, &other).map(|()| other),
        }
    }

    /// Ends a run at a stub, whose code has `address`. `above` is the stub's stack pointer after the call that it has
    /// made, and `fp` its frame pointer.
    #[inline(never)]
    fn entry_by_table(&self, address: u64, above: u64, fp: Option<u64>, range: &Range<u64>) -> Stop {
        let missing = Stop::Truncated(TruncationReason::Entry);
        if K::MARKED_ENTRIES {
            let Some(frame) = fp.filter(|fp| record::next_at(*fp) >= above) else { return missing };
            let words = [record::next_at(frame), record::return_at(frame)].map(|at| self.word(range, at));
            let [Some(next), Some(marker)] = words else { return Stop::Truncated(TruncationReason::Range) };
            return match not_text(marker, frame, next) {
                // A stub has interrupted something.
                Stop::Root => missing,
                stop => stop,
            };
        }
        // Where the called function would have saved the frame pointer. It is known without being read.
        let called = record::frame_at(above.wrapping_sub(16));
        let Some(entry) = self.kernel.caller_entry_frame(address, called) else { return missing };
        let fp = if entry.fp_at == record::next_at(called) { fp } else { self.word(range, entry.fp_at) };
        let Some(fp) = fp else { return missing };
        Stop::Entry { marker: word_of(entry.marker), saved: Saved::At { address: entry.saved_at, fp } }
    }
}
