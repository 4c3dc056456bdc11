//! The frame that an interrupt or exception leaves on the stack. Stage: capture.
//!
//! In: the stack pointer before the first block of a handler, and the guest's memory. Out: what was interrupted. Words
//! that only look like such a frame are told apart by the stack pointer in it, which is the one before the entry.

use super::block::{Machine, Past};
use super::decode::Ending;

/// What an entry has interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub rip: u64,
    pub rsp: u64,
    pub has_error_code: bool,
    pub is_from_user: bool,
    /// Whether the interrupted code used the same stack.
    pub is_on_same_stack: bool,
}

/// The entry whose frame is at `rsp`.
pub fn entry(rsp: u64, machine: &impl Machine) -> Option<Entry> {
    [false, true].into_iter().find_map(|has_error_code| {
        let frame = rsp + if has_error_code { 8 } else { 0 };
        // The processor aligns the stack before it pushes five words.
        if !(frame + 40).is_multiple_of(16) {
            return None;
        }
        let mut words = [0; 5];
        for (word, at) in words.iter_mut().zip((frame..).step_by(8)) {
            *word = machine.word(at)?;
        }
        let [rip, cs, rflags, rsp, ss] = words;
        let is_frame = cs != 0
            && cs < 0x1_0000
            && ss < 0x1_0000
            && rflags & 2 != 0
            && rflags & 1 << 3 == 0
            && rflags >> 22 == 0
            && matches!(cs & 3, 0 | 3);
        is_frame.then_some(Entry {
            rip,
            rsp,
            has_error_code,
            is_from_user: cs & 3 == 3,
            is_on_same_stack: frame + 40 == rsp & !15,
        })
    })
}

impl Entry {
    /// The entry of another handler, if this is an NMI that came before that one's first instruction: the frame of the
    /// other entry is then below this one.
    pub fn first(&self, machine: &impl Machine) -> Option<Self> {
        entry(self.rsp, machine).filter(|first| !first.is_from_user)
    }

    /// Whether the instruction that was interrupted had begun.
    pub fn repeats(&self, past: &Past) -> bool {
        let is_last = past.executed > 0 && self.rip == past.block.address(past.executed - 1);
        // An interrupt between two rounds of a repeated instruction, or of a jump to itself, has no error code.
        let is_next = !past.is_partial()
            && matches!(past.block.ending, Ending::Branch | Ending::Jump)
            && self.rip == past.block.target;
        is_last && (self.has_error_code || !is_next)
    }

    /// Whether it was raised by the interrupted code.
    pub fn is_exception(&self, past: &Past) -> bool {
        self.has_error_code || self.repeats(past)
    }

    /// Whether this can have come after `past`. What follows an indirect jump or a return is not known here.
    pub fn can_follow(&self, past: &Past) -> bool {
        let block = past.block;
        let is_within = || {
            (0..=past.executed)
                .any(|number| (number as usize) < block.lengths.len() && self.rip == block.address(number))
        };
        if past.is_partial() {
            return is_within();
        }
        match block.ending {
            Ending::Falls => self.rip == block.end || is_within(),
            Ending::Branch => self.rip == block.end || self.rip == block.target || is_within(),
            Ending::Jump | Ending::Call => self.rip == block.target || is_within(),
            _ => true,
        }
    }
}
