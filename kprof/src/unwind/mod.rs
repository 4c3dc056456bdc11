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
mod stop;
mod user;

use crate::format::marker::{CutReason, Facts, Marker};
use crate::hooks::{Kernel, Registers};
use crate::ring::{Full, Sink};
use core::ops::Range;
pub(crate) use stop::Stop;

/// Reads of memory whose addresses the unwinder has checked.
pub(crate) trait Memory: Copy {
    /// The stack word at `address`.
    ///
    /// # Safety
    /// `address` is a multiple of 8 and the word lies in a range that [`Kernel::stack_range`] declared.
    unsafe fn stack(&self, address: u64) -> u64;

    /// Eight bytes of code from `address`, little endian.
    ///
    /// # Safety
    /// All eight bytes are kernel text by `Config::text` or [`Kernel::is_text`].
    unsafe fn code(&self, address: u64) -> u64;
}

/// What the walk found besides the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walked {
    /// The stack passes an interrupt or exception entry.
    pub(crate) in_interrupt: bool,
}

/// One walk.
pub(crate) struct Walk<'a, 'r, K, M> {
    pub(crate) kernel: &'a K,
    pub(crate) memory: M,
    /// The main text range.
    pub(crate) text: (u64, u64),
    pub(crate) sink: &'a mut Sink<'r>,
    pub(crate) frames_left: usize,
    /// Walk the user's frames too.
    pub(crate) user_frames: bool,
    pub(crate) in_interrupt: bool,
}

/// How many times one walk may go from one stack to another.
const MOST_STACKS: usize = 8;

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Walks the whole stack of an interrupted kernel or user instruction. An error means that the sink is full; nothing of
    /// what it holds is a sample then.
    pub(crate) fn run(mut self, at: &Registers, facts: Facts) -> Result<Walked, Full> {
        self.sink.push(at.rip)?;
        if facts.0 != 0 {
            self.sink.push(Marker::Facts(facts).encode())?;
        }
        self.frames_left = self.frames_left.saturating_sub(1);
        let stop = if at.cs & 3 == 3 { self.user(at.rbp)? } else { self.kernel_stack(*at)? };
        if let Stop::Cut(reason) = stop {
            self.sink.push(Marker::Cut(Ok(reason)).encode())?;
        }
        Ok(Walked { in_interrupt: self.in_interrupt })
    }

    /// From border to border. `at.rip` has been pushed.
    fn kernel_stack(&mut self, mut at: Registers) -> Result<Stop, Full> {
        let mut stacks_left = MOST_STACKS;
        loop {
            let stop = match self.kernel.entry_frame(&at) {
                Some(frame) => border::of_entry_frame(frame, at.rbp),
                None => {
                    let Some(range) = self.stack_of(at.rsp) else { return Ok(Stop::Cut(CutReason::Range)) };
                    self.edge(&at, &range)?;
                    self.frames(&at, range, &mut stacks_left)?
                }
            };
            let Stop::Border { marker, rip_at, rbp } = stop else { return Ok(stop) };
            match self.cross(marker, rip_at, rbp, at.rcx)? {
                border::Crossed::Kernel(interrupted) => at = interrupted,
                border::Crossed::Ended(stop) => return Ok(stop),
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
        address.wrapping_sub(self.text.0) < self.text.1.wrapping_sub(self.text.0) || self.kernel.is_text(address)
    }

    /// The declared range around `address`, shrunk to what a careful reader may use of it.
    fn stack_of(&self, address: u64) -> Option<Range<u64>> {
        let range = self.kernel.stack_range(address)?;
        let (start, end) = (range.start.checked_add(7)? & !7, range.end & !7);
        (start < end && range.contains(&address)).then_some(start..end)
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

    /// Eight bytes of code from `address`, if all of them are kernel text.
    fn code(&self, address: u64) -> Option<[u8; 8]> {
        let last = address.checked_add(7)?;
        if !self.is_text(address) || !self.is_text(last) {
            return None;
        }
        // SAFETY: first and last byte are kernel text; text ranges are not shorter than an instruction apart, and pages of
        // text are mapped whole.
        Some(unsafe { self.memory.code(address) }.to_le_bytes())
    }
}
