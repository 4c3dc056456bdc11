//! Turns the interrupted registers into a list of return addresses, innermost first, across every entry frame.
//!
//! In: registers, the kernel's answers about stacks and code, memory. Out: addresses and markers, pushed into a sink.
//! Runs in: NMI. Every read of a stack is inside a range that the kernel declared, and every frame address is aligned.
//! Within one range the walk only goes upward, and it takes at most `depth` frames. Anything that breaks these rules
//! ends the walk with a reason that the reader sees. Never faults, never loops, never guesses a caller.
//!
//! ```text
//! registers ─► innermost_caller (prologue, epilogue) ─► frame_pointer (one step per frame) ─► root | truncated
//!     ▲                                                        │ marker word
//!     └── interrupted registers ◄── entry_frame (hardware) ◄───┘            └─► user (by read_user)
//! ```
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

mod compiled_entry;
mod direct;
mod entry_frame;
mod fast_path;
mod frame_pointer;
mod innermost_caller;
mod stacks;
mod stop;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod user;
mod words;

use crate::arch::record;
use crate::arch::view::NO_CODE;
use crate::format::marker::{Marker, TruncationReason};
use crate::kernel::{Kernel, Registers};
use crate::ring::Sink;
use core::ops::Range;
pub use direct::Direct;
pub(crate) use fast_path::callers;
pub(crate) use fast_path::{Cursor, FrameCache, ROUND, StackBounds, go_on, innermost};
pub(crate) use stacks::Stacks;
pub(crate) use stop::Stop;
pub(crate) use text::{Text, TextCell};
pub(crate) use user::{ENTRY_PLACES, user_frames, user_word};

/// Reads memory at addresses that the unwinder has checked.
pub trait Memory: Copy {
    /// The stack word at `address`.
    ///
    /// # Safety
    /// `address` is a multiple of 8 and the word lies in a range that [`Kernel::stack_range`] declared.
    unsafe fn stack(&self, address: u64) -> u64;

    /// Eight bytes of a stack, starting at `address`.
    ///
    /// # Safety
    /// They lie in a range that [`Kernel::stack_range`] declared.
    unsafe fn stack_unaligned(&self, address: u64) -> u64;

    /// Eight bytes of code, starting at `address`, little endian.
    ///
    /// # Safety
    /// The first and the last of them are kernel text by [`crate::Config::text`] or [`Kernel::is_text`].
    unsafe fn code(&self, address: u64) -> u64;
}

/// The state of one walk.
pub(crate) struct Walk<'a, 'r, K, M> {
    pub(crate) kernel: &'a K,
    pub(crate) memory: M,
    /// The main text range.
    pub(crate) text: Text,
    pub(crate) sink: Sink<'r>,
    pub(crate) frames_left: usize,
    /// Bytes of code that this walk may still search for a prologue (it starts at [`MAX_SCANNED`]).
    pub(crate) scan_left: u64,
    /// The stacks that this walk has left.
    pub(crate) stacks: Stacks,
    /// Whether to walk the user's frames too.
    pub(crate) user_frames: bool,
    /// Set by the walk: the stack passes an interrupt or exception entry.
    pub(crate) in_interrupt: bool,
}

/// The most bytes of code that one walk searches to see whether a function has built a frame. Apart from that, a walk
/// decodes only a few bytes at each entry frame. Each byte costs some tens of instructions.
pub(crate) const MAX_SCANNED: u64 = 512;

/// An empty range, used where the kernel declared none.
const NOWHERE: Range<u64> = !7..!7;

/// Whether a declared range is valid: it contains the address that was asked for, ends at a multiple of 8, and has room
/// for a frame. Both the fast path and the slow path check this, so no word of an empty or invalid range is ever read.
#[inline(always)]
fn is_straight(range: &Range<u64>, address: u64) -> bool {
    // If the kernel finds a stack by rounding the address down to the stack's size, the compiler can prove all of this
    // except that the range does not wrap.
    let bytes = range.end.wrapping_sub(range.start);
    range.start < range.end && range.end & 7 == 0 && bytes >= 16 && address.wrapping_sub(range.start) < bytes
}

// Functions that the rare parts of a walk share are not inlined, so that there is one copy of each. The fast path has
// its own.
impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Walks the stack of an interrupted instruction. The sink already holds that instruction and its facts. If the
    /// sink turns out to be full, its contents are not a sample and must be discarded.
    pub(crate) fn run(&mut self, at: &Registers) {
        let stop = if at.from_user { self.user(at.fp) } else { self.innermost(at) };
        self.go_on(stop);
    }

    /// A walk that begins at the frame of an entry stub: it pushes the stub's marker, then the interrupted frames.
    /// `frame` is the stub's frame pointer.
    pub(crate) fn continue_after_entry(&mut self, frame: u64) {
        let mut stop = Stop::Truncated(TruncationReason::Range);
        let (next_at, return_at) = (record::next_at(frame), record::return_at(frame));
        if self.holds(&self.stack_of(next_at), next_at, 16) {
            // SAFETY: aligned words of a declared stack.
            let [fp, marker] = [next_at, return_at].map(|address| unsafe { self.memory.stack(address) });
            stop = words::not_text(marker, frame, fp);
        }
        self.go_on(stop);
    }

    /// The address of the user's instruction, from the frame of an entry stub that was entered from user mode.
    pub(crate) fn user_pc_of(&self, frame: u64) -> Option<u64> {
        let address = record::saved_at(frame);
        // SAFETY: an aligned word of a declared stack.
        self.holds(&self.stack_of(address), address, 8).then(|| user_word(unsafe { self.memory.stack(address) }))
    }

    /// A walk along the callers of running code, from the frame of one of its functions. `frame` may be any value.
    pub(crate) fn callers_of(&mut self, frame: u64) {
        let range = self.stack_of(record::next_at(frame));
        let stop = match range == NOWHERE {
            // The code that asks has no frame pointer, and its registers were not saved.
            _ if self.kernel.unwind_table().is_some() => Stop::Truncated(TruncationReason::NoRule),
            true => Stop::Truncated(TruncationReason::Range),
            false => self.frames((frame, frame), range, true),
        };
        self.go_on(stop);
    }

    /// Finishes a walk that the fast path began on the stack around `sp`. The frames of the fast path are in the sink
    /// already.
    pub(crate) fn finish(&mut self, cursor: Cursor, sp: u64) {
        let stop = self.frames(cursor.next(self.memory), self.stack_of(sp), false);
        self.go_on(stop);
    }

    /// The frames of interrupted kernel code, up to an entry frame or the end.
    #[inline(never)]
    fn innermost(&mut self, at: &Registers) -> Stop {
        let is_entry = self.kernel.is_entry_code(at.pc);
        if is_entry && let Some(stop) = self.of_entry_code(at) {
            return stop;
        }
        if let Some(entry) = self.kernel.compiled_entry(at.pc)
            && let Some(stop) = self.in_compiled_entry(entry, at)
        {
            return stop;
        }
        let range = self.stack_of(at.sp);
        if range == NOWHERE {
            return Stop::Truncated(TruncationReason::Range);
        }
        if !is_entry && let Some(table) = self.kernel.unwind_table() {
            return self.by_table(table, at, range);
        }
        if let Some(stop) = self.innermost_caller(at, &range) {
            return stop;
        }
        self.frames((at.fp, record::frame_at(at.sp)), range, true)
    }

    /// Continues across entry frames until the walk ends.
    fn go_on(&mut self, mut stop: Stop) {
        while let Stop::Entry { marker, saved } = stop {
            stop = self.cross(marker, saved);
        }
        if let Stop::Truncated(reason) = stop {
            self.sink.push(Marker::Truncated(Ok(reason)).encode());
        }
    }

    /// Adds a frame, if the limit allows one more.
    #[inline(never)]
    fn push_frame(&mut self, address: u64) -> bool {
        let fits = self.frames_left > 0;
        if fits {
            self.frames_left = self.frames_left.saturating_sub(1);
            self.sink.push(address);
        }
        fits
    }

    /// Whether `address` is kernel code. Inlined, for the checks that nearly every walk makes.
    #[inline(always)]
    fn is_text(&self, address: u64) -> bool {
        self.text.contains(address) || self.kernel.is_text(address)
    }

    /// Whether `address` is kernel code. Not inlined, for the checks that few walks make.
    #[inline(never)]
    fn is_code(&self, address: u64) -> bool {
        self.is_text(address)
    }

    /// The declared range around `address`, or [`NOWHERE`].
    #[inline(never)]
    fn stack_of(&self, address: u64) -> Range<u64> {
        self.kernel.stack_range(address).filter(|range| is_straight(range, address)).unwrap_or(NOWHERE)
    }

    /// Whether the `bytes` bytes starting at `address` are aligned words of `range`.
    #[inline(always)]
    fn holds(&self, range: &Range<u64>, address: u64, bytes: u64) -> bool {
        address & 7 == 0 && range.contains(&address) && range.end.wrapping_sub(address) >= bytes
    }

    /// Eight bytes of code, starting at `address`. [`NO_CODE`] if they are not kernel code.
    #[inline(never)]
    fn code(&self, address: u64) -> [u8; 8] {
        let missing = address.wrapping_add(8).saturating_sub(self.text.end());
        let from = if (1..8).contains(&missing) { address.wrapping_sub(missing) } else { address };
        if !self.is_code(address) || !self.is_code(from) || !self.is_code(from.wrapping_add(7)) {
            return NO_CODE;
        }
        // SAFETY: the first and the last byte are kernel text, and `Kernel` promises (`is_text`, `Config::text`) that
        // every page that contains kernel text is mapped as a whole.
        let bytes = unsafe { self.memory.code(from) };
        let skipped = address.wrapping_sub(from) as u32;
        bytes.wrapping_shr(skipped.wrapping_mul(8)).to_le_bytes()
    }
}
