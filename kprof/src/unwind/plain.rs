//! The plain part of a walk, which is nearly all of it: frames with nothing special about them, in the fewest
//! instructions.
//!
//! In: registers or a judged frame pointer, and places in the ring. Out: return addresses in these places, and where the
//! plain part ended. Context: NMI. Everything that is not plain is left to the careful walk, which starts where this
//! stopped and finds the reason: nothing here decides anything but "go on".

use super::Memory;
use super::frame_pointer::bound;
use crate::format::marker::Marker;
use crate::hooks::{Kernel, Registers};
use crate::sync::{AtomicU64, Ordering};
use core::ops::Range;

/// Frames taken by one round of the loop.
pub(crate) const ROUND: usize = 4;
/// A distance of this many words or more is none: the address lies outside, or is misaligned.
const NO_DISTANCE: u64 = 1 << 60;

/// The markers of entries lie side by side: interrupts, exceptions, syscall.
const FIRST_ENTRY: u64 = Marker::Interrupt(0).encode();
const SYSCALL: u64 = Marker::Syscall.encode();
const _: () = assert!(SYSCALL - FIRST_ENTRY == 0x200, "256 interrupts, 256 exceptions, then the syscall");

/// A run of plain frames.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// How many places were filled.
    pub(crate) taken: usize,
    /// The last good frame; bit 0 is set if its return address was taken, so that only its saved rbp is left to judge.
    last: u64,
}

impl Run {
    /// The frame to go on with and what it must not lie below.
    #[inline(always)]
    pub(super) fn next<M: Memory>(&self, memory: M) -> (u64, u64) {
        let last = self.last & !1;
        // SAFETY: `last` is a judged frame.
        if self.last & 1 == 1 { (unsafe { memory.stack(last) }, last + 8) } else { (last, last) }
    }

    /// Where the run has come to the frame of an entry stub, and that has interrupted user code: the marker, the user's
    /// instruction, and whether it was an interrupt or exception. Most samples end so.
    #[inline(always)]
    pub(crate) fn entry_from_user<M: Memory>(&self, memory: M, range: &Range<u64>) -> Option<(u64, u64, bool)> {
        let frame = self.last;
        // The two words of the frame, the five of the hardware's above.
        if frame & 1 == 1 || range.end - frame < 8 * 7 {
            return None;
        }
        // SAFETY: `frame` is a judged frame, so aligned and in the range, which has five more words above it.
        let [marker, rip, cs] = [8, 16, 24].map(|offset| unsafe { memory.stack(frame + offset) });
        let is_entry = (FIRST_ENTRY..=SYSCALL).contains(&marker);
        (is_entry && cs & 3 == 3 && rip != 0).then_some((marker, rip, marker < SYSCALL))
    }

    /// Whether the run has come to the root: the last frame was taken, and its saved rbp is 0.
    #[inline(always)]
    pub(crate) fn at_root<M: Memory>(&self, memory: M) -> bool {
        self.next(memory).0 == 0
    }
}

/// The distance of a frame from the topmost place that one can have, in words.
///
/// One comparison of it stands for three: a frame that does not rise has no smaller distance, one above the range has
/// wrapped around to a huge one, a misaligned one has its low bits turned to the top.
#[inline(always)]
fn distance(top: u64, frame: u64) -> u64 {
    top.wrapping_sub(frame).rotate_right(3)
}

/// The innermost frames of interrupted kernel code and the stack they are on; `None` if the very beginning is special.
#[inline(always)]
pub(crate) fn innermost<K: Kernel, M: Memory>(
    kernel: &K,
    memory: M,
    text: (u64, u64),
    at: &Registers,
    places: &[[AtomicU64; ROUND]],
) -> Option<(Run, Range<u64>)> {
    if kernel.entry_frame(at).is_some() {
        return None;
    }
    let range = kernel.stack_range(at.rsp)?;
    let top = bound(&range);
    let lowest = distance(top, at.rsp);
    let words_left = distance(top, at.rbp);
    // rbp must not lie below rsp, and rsp must be good itself.
    if words_left > lowest || lowest >= NO_DISTANCE || at.rsp < range.start {
        return None;
    }
    // SAFETY: aligned, not below the range, and at least 16 bytes below its end.
    let word = unsafe { memory.stack(at.rsp) };
    // In a prologue or epilogue, perhaps: the careful walk looks closer.
    if word == at.rbp || word.wrapping_sub(text.0) < text.1.wrapping_sub(text.0) || kernel.is_text(word) {
        return None;
    }
    // SAFETY: `words_left` is the distance of a frame that is aligned and in the range: it is not above that of rsp.
    let run = unsafe { run_from(kernel, memory, at.rbp, top, text, places) };
    Some((run, range))
}

/// Goes on from a frame that `judge` has found good in `range`.
pub(super) fn run<K: Kernel, M: Memory>(
    kernel: &K,
    memory: M,
    text: (u64, u64),
    frame: u64,
    range: &Range<u64>,
    places: &[AtomicU64],
) -> Run {
    // SAFETY: `frame` was judged.
    unsafe { run_from(kernel, memory, frame, bound(range), text, places.as_chunks().0) }
}

/// The loop: twelve instructions a frame. A function of its own, so that all it needs stays in registers.
///
/// # Safety
/// Both words of `frame` are aligned words of a declared stack range whose topmost frame place is `top`.
#[inline(never)]
unsafe fn run_from<K: Kernel, M: Memory>(
    kernel: &K,
    memory: M,
    mut frame: u64,
    top: u64,
    (text_start, text_end): (u64, u64),
    rounds: &[[AtomicU64; ROUND]],
) -> Run {
    let text_bytes = text_end.wrapping_sub(text_start);
    let mut words_left = distance(top, frame);
    for (round, places) in rounds.iter().enumerate() {
        for (index, place) in places.iter().enumerate() {
            // SAFETY: by the caller's word for the first; each further one is as close to the top as the comparison
            // below demands, so aligned, in the range and above the one before.
            let (next, address) = unsafe { (memory.stack(frame), memory.stack(frame + 8)) };
            // Stored before it is judged, which saves a register: a place that is not counted is free space still.
            place.store(address, Ordering::Relaxed);
            if address.wrapping_sub(text_start) >= text_bytes || kernel.border(address, frame).is_some() {
                return Run { taken: round * ROUND + index, last: frame };
            }
            let left = distance(top, next);
            if left >= words_left {
                return Run { taken: round * ROUND + index + 1, last: frame | 1 };
            }
            (frame, words_left) = (next, left);
        }
    }
    Run { taken: rounds.len() * ROUND, last: frame }
}
