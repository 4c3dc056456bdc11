//! From the interrupted registers to a stack, innermost first, across every border.
//!
//! In: registers, the kernel's facts, memory. Out: addresses and markers, pushed into a sink. Context: NMI. Reads only
//! inside ranges that the kernel declared, aligned, strictly upward in each, at most `depth` frames; whatever does not fit
//! ends the walk with a reason that the reader sees. Never faults, never loops, never guesses a caller.
//!
//! ```text
//! registers ─► edge (caller in prologue, epilogue) ─► frame_pointer (one step, again and again) ─► root | cut
//!     ▲                                                        │ marker word
//!     └── interrupted registers ◄── border (hardware frame) ◄──┘            └─► user (by read_user)
//! ```

mod border;
mod call;
mod edge;
mod frame_pointer;
mod plain;
mod stacks;
mod stop;
#[cfg(test)]
mod tests;
mod text;
mod user;

use crate::format::marker::{CutReason, Marker};
use crate::hooks::{Kernel, Registers};
use crate::ring::{Full, Sink};
use core::ops::Range;
pub(crate) use plain::{Before, ROUND, Stand, innermost};
pub(crate) use stacks::Stacks;
pub(crate) use stop::Stop;
pub(crate) use text::{Text, TextCell};

/// Reads of memory whose addresses the unwinder has checked.
pub(crate) trait Memory: Copy {
    /// The stack word at `address`.
    ///
    /// # Safety
    /// `address` is a multiple of 8 and the word lies in a range that [`Kernel::stack_range`] declared.
    unsafe fn stack(&self, address: u64) -> u64;

    /// The eight bytes of a stack from `address`.
    ///
    /// # Safety
    /// They lie in a range that [`Kernel::stack_range`] declared.
    unsafe fn stack_unaligned(&self, address: u64) -> u64;

    /// Eight bytes of code from `address`, little endian.
    ///
    /// # Safety
    /// All eight bytes are kernel text by `Config::text` or [`Kernel::is_text`].
    unsafe fn code(&self, address: u64) -> u64;
}

/// One walk.
pub(crate) struct Walk<'a, 'r, K, M> {
    pub(crate) kernel: &'a K,
    pub(crate) memory: M,
    /// The main text range.
    pub(crate) text: Text,
    pub(crate) sink: Sink<'r>,
    pub(crate) frames_left: usize,
    /// The stacks left behind.
    pub(crate) stacks: Stacks,
    /// Walk the user's frames too.
    pub(crate) user_frames: bool,
    /// Set by the walk: the stack passes an interrupt or exception entry.
    pub(crate) in_interrupt: bool,
}

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Walks the stack of an interrupted instruction, which is in the sink already, with its facts. An error means that
    /// the sink is full; nothing of what it holds is a sample then.
    pub(crate) fn run(&mut self, at: &Registers) -> Result<(), Full> {
        let stop = if at.cs & 3 == 3 { self.user(at.rbp)? } else { self.innermost(at)? };
        self.go_on(stop, at.rcx)
    }

    /// A walk that begins at the frame of an entry stub: its marker, then what was interrupted.
    pub(crate) fn behind(&mut self, frame: u64) -> Result<(), Full> {
        let stop = match [0, 1].map(|index| self.word_of_frame(frame, index)) {
            [Some(rbp), Some(marker)] => frame_pointer::not_text(marker, frame, rbp),
            _ => Stop::Cut(CutReason::Range),
        };
        self.go_on(stop, 0)
    }

    /// The interrupted instruction in the frame of an entry stub.
    pub(crate) fn rip_of(&self, frame: u64) -> Option<u64> {
        self.word_of_frame(frame, 2)
    }

    fn word_of_frame(&self, frame: u64, index: u64) -> Option<u64> {
        let address = frame.checked_add(8 * index)?;
        self.word(&self.stack_of(address)?, address)
    }

    /// The rest of a walk whose plain beginning, on the stack `range`, is in the sink already.
    pub(crate) fn finish(&mut self, stand: Stand, range: Range<u64>) -> Result<(), Full> {
        let stop = self.frames(stand.next(self.memory), range, false)?;
        self.go_on(stop, 0)
    }

    /// The frames of interrupted kernel code, up to a border or the end.
    fn innermost(&mut self, at: &Registers) -> Result<Stop, Full> {
        if let Some(frame) = self.kernel.entry_frame(at) {
            return Ok(border::of_entry_frame(frame, at.rbp));
        }
        let Some(range) = self.stack_of(at.rsp) else { return Ok(Stop::Cut(CutReason::Range)) };
        self.edge(at, &range)?;
        self.frames((at.rbp, at.rsp), range, true)
    }

    /// From border to border, to the end.
    fn go_on(&mut self, mut stop: Stop, mut rcx: u64) -> Result<(), Full> {
        loop {
            match stop {
                Stop::Root => return Ok(()),
                Stop::Cut(reason) => return self.sink.push(Marker::Cut(Ok(reason)).encode()),
                Stop::Border { marker, rip_at, rbp } => match self.cross(marker, rip_at, rbp, rcx)? {
                    border::Crossed::Ended(end) => stop = end,
                    border::Crossed::Kernel(interrupted) => {
                        rcx = interrupted.rcx;
                        stop = self.innermost(&interrupted)?;
                    }
                },
            }
        }
    }

    /// Adds a frame, if the limit allows one more.
    #[inline(always)]
    fn push_frame(&mut self, address: u64) -> Result<Option<Stop>, Full> {
        if self.frames_left == 0 {
            return Ok(Some(Stop::Cut(CutReason::Depth)));
        }
        self.frames_left -= 1;
        self.sink.push(address)?;
        Ok(None)
    }

    /// Whether `address` is kernel code.
    #[inline(always)]
    fn is_text(&self, address: u64) -> bool {
        self.text.contains(address) || self.kernel.is_text(address)
    }

    /// The declared range around `address`.
    #[inline(always)]
    fn stack_of(&self, address: u64) -> Option<Range<u64>> {
        let range = self.kernel.stack_range(address)?;
        // Against a kernel that declares nonsense: no address of an empty or crooked range is ever read.
        let straight = range.end & 7 == 0 && range.contains(&address) && range.end - range.start >= 16;
        straight.then_some(range)
    }

    /// The stack word at `address`, if it is one of `range`.
    #[inline(always)]
    fn word(&self, range: &Range<u64>, address: u64) -> Option<u64> {
        if address & 7 != 0 || address < range.start || address > range.end.wrapping_sub(8) {
            return None;
        }
        // SAFETY: aligned, and inside a range that came from `stack_of`, whose ends are multiples of 8.
        Some(unsafe { self.memory.stack(address) })
    }

    /// Eight bytes of code from `address`; behind the end of the main text they are 0, which is no instruction looked for.
    fn code(&self, address: u64) -> Option<[u8; 8]> {
        let missing = (address.checked_add(8)?).saturating_sub(self.text.end());
        let from = if (1..8).contains(&missing) { address - missing } else { address };
        if !self.is_text(address) || !self.is_text(from) || !self.is_text(from.checked_add(7)?) {
            return None;
        }
        // SAFETY: first and last byte are kernel text; text ranges are not shorter than an instruction apart, and pages of
        // text are mapped whole.
        let bytes = unsafe { self.memory.code(from) };
        Some((bytes >> (8 * (address - from))).to_le_bytes())
    }
}
