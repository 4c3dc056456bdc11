//! The plain part of a walk, which is nearly all of it: frames with nothing special about them, in the fewest
//! instructions.
//!
//! In: registers or a judged frame pointer, and places in the ring. Out: return addresses in these places, and where
//! the plain part ended. Runs in: NMI. Everything that is not plain is left to the slow path, which starts where
//! this stopped and finds the reason: nothing here decides anything but "go on".

use super::entry_frame::is_unmarked_entry;
use super::stacks::bound;
use super::user::{is_user, user_word};
use super::words::{FIRST_ENTRY, SYSCALL};
use super::{Memory, Text, TextCell, is_straight};
use crate::kernel::{Kernel, Registers};
use crate::sync::{AtomicU64, Ordering};
use core::ops::Range;
use core::ptr;

/// Frames taken by one round of the loop at the beginning of a sample.
pub(crate) const ROUND: usize = 16;
/// The same for the runs further out.
pub(super) const SHORT_ROUND: usize = 4;

/// A run of plain frames.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// The address behind the last place that was filled.
    pub(crate) end: usize,
    /// Where it ended.
    pub(crate) cursor: Cursor,
    /// The word that ended it: a saved rbp, or one in the place of a return address.
    last: u64,
    /// Its stack.
    pub(crate) bounds: StackBounds,
}

impl Run {
    /// Whether the run has come to the root: no frame pointer, or no return address.
    #[inline(always)]
    pub(crate) fn at_root(&self) -> bool {
        self.last == 0
    }
}

/// Where a run ended: the address of its last good frame; bit 0 is set if that one's return address was taken, so that
/// only its saved rbp is left to judge.
#[derive(Clone, Copy)]
pub(crate) struct Cursor(u64);

impl Cursor {
    /// The frame to go on with and what it must not lie below.
    #[inline(always)]
    pub(super) fn next<M: Memory>(self, memory: M) -> (u64, u64) {
        let last = self.0 & !1;
        // SAFETY: only `run_from` makes these: `last` is the last frame that it found good, an aligned word of the
        // range.
        if self.0 & 1 == 1 { (unsafe { memory.stack(last) }, last.wrapping_add(8)) } else { (last, last) }
    }

    /// Where the run has come to the frame of an entry stub, and that has interrupted user code: the marker, the user's
    /// instruction, and whether it was an interrupt or exception. Most samples end so.
    #[inline(always)]
    pub(crate) fn entry_from_user<M: Memory>(self, memory: M, bounds: StackBounds) -> Option<(u64, u64, bool)> {
        let frame = self.0;
        // The two words of the frame, the five of the hardware's above.
        if frame & 1 == 1 || bounds.end().wrapping_sub(frame) < 8 * 7 {
            return None;
        }
        // SAFETY: only `run_from` makes these: `frame` is aligned and in the range whose end `bounds` knows, which has
        // five more words above the frame's two.
        let [marker, rip, cs] = [8, 16, 24].map(|offset: u64| unsafe { memory.stack(frame.wrapping_add(offset)) });
        let is_entry = (FIRST_ENTRY..=SYSCALL).contains(&marker);
        (is_entry && is_user(cs)).then_some((marker, user_word(rip), marker < SYSCALL))
    }
}

/// Where a frame lies in a stack, as a number of which one comparison says all.
///
/// The topmost place that a frame can have is at [`u64::MAX`], each word below it is one less. What lies above the
/// range, or is misaligned (its low bits are turned to the top), comes out far below every frame of the range. So the
/// next frame is good if and only if it is higher than the one before.
#[derive(Clone, Copy)]
pub(crate) struct StackBounds {
    origin: u64,
}

/// No frame of a stack of up to 16 GiB is lower.
const LOWEST: u64 = !0 << 31;

impl StackBounds {
    #[inline(always)]
    fn of(range: &Range<u64>) -> Self {
        Self { origin: !bound(range) }
    }

    /// The end of the range.
    #[inline(always)]
    fn end(self) -> u64 {
        (!self.origin).wrapping_add(16)
    }

    #[inline(always)]
    fn height(self, frame: u64) -> u64 {
        self.origin.wrapping_add(frame).rotate_right(3)
    }
}

/// The innermost frames of interrupted kernel code, on the stack that rsp is in; `None` if the very beginning is
/// special.
#[inline(always)]
pub(crate) fn innermost<'g, K: Kernel, M: Memory>(
    kernel: &K,
    memory: M,
    text: &TextCell,
    at: &Registers,
    places: &[[AtomicU64; ROUND]],
    guess: impl Fn(usize) -> &'g AtomicU64,
) -> Option<Run> {
    if kernel.is_entry_code(at.rip) {
        return None;
    }
    let range = kernel.stack_range(at.rsp)?;
    let bounds = StackBounds::of(&range);
    // rbp must be good, and not below rsp. Loads between the conditions keep them apart, so that each is one branch.
    if at.rbp < at.rsp {
        return None;
    }
    let start = text.start();
    if !is_straight(&range, at.rsp) {
        return None;
    }
    let bytes = text.bytes();
    if bounds.height(at.rbp) < LOWEST {
        return None;
    }
    // SAFETY: rsp is not below the range and not above rbp, which is at least 16 bytes below its end.
    let word = unsafe { memory.stack_unaligned(at.rsp) };
    // In a prologue or epilogue, perhaps: the slow path looks closer.
    if word == at.rbp {
        return None;
    }
    let text = Text { start, bytes };
    if text.contains(word) || kernel.is_text(word) {
        return None;
    }
    // SAFETY: rbp is aligned, not below the range, and at least 16 bytes below its end.
    Some(unsafe { run_from(kernel, memory, at.rbp, bounds, text, places, |end| Some(guess(end))) })
}

/// Goes on from a frame.
///
/// # Safety
/// `judge` has found `frame` good in `range`, which is one that `is_straight` believes.
#[inline(never)]
pub(super) unsafe fn run<K: Kernel, M: Memory>(
    kernel: &K,
    memory: M,
    text: Text,
    frame: u64,
    range: &Range<u64>,
    places: &[AtomicU64],
) -> Run {
    // SAFETY: the caller's promise: so both words of the frame are aligned words of the range.
    unsafe {
        run_from::<_, _, SHORT_ROUND>(kernel, memory, frame, StackBounds::of(range), text, places.as_chunks().0, |_| {
            None
        })
    }
}

/// Where the last walk on this CPU stood at the end of each round: nobody's facts, a guess that costs a comparison.
///
/// Each frame is found in the one before, so the processor waits for one load after the other. Outer frames are mostly
/// those of the walk before. Where one is, its address is taken from here, which is the same number, but known at once:
/// by the processor's own guess of the comparison, the next round's loads begin beside this one's.
pub(crate) struct FrameCache {
    pub(super) frames: [AtomicU64; GUESSES],
}

const GUESSES: usize = 4;
const ROUND_BYTES_SHIFT: u32 = (8 * ROUND).ilog2();

impl FrameCache {
    pub(crate) const fn new() -> Self {
        Self { frames: [const { AtomicU64::new(0) }; GUESSES] }
    }

    /// The guess for the end of a round `bytes` behind the beginning of the record.
    #[inline(always)]
    pub(crate) fn after(&self, bytes: usize) -> &AtomicU64 {
        let [first, ..] = &self.frames;
        // There is one for every such number: no other is ever given.
        self.frames.get(bytes >> ROUND_BYTES_SHIFT & (GUESSES - 1)).unwrap_or(first)
    }
}

/// The loop: ten instructions a frame, and some ten a round.
///
/// # Safety
/// Both words of `frame` are aligned words of the declared stack range that `bounds` are of.
#[inline(always)]
unsafe fn run_from<'g, K: Kernel, M: Memory, const R: usize>(
    kernel: &K,
    memory: M,
    mut frame: u64,
    bounds: StackBounds,
    text: Text,
    rounds: &[[AtomicU64; R]],
    guess: impl Fn(usize) -> Option<&'g AtomicU64>,
) -> Run {
    let mut height = bounds.height(frame);
    // The end is said by its address: a count would take another register.
    let address_of = |place: &AtomicU64| ptr::from_ref(place).addr();
    let mut end = rounds.as_ptr().addr();
    for places in rounds {
        for place in places {
            // SAFETY: by the caller's word for the first; each further one is higher than the one before, so aligned,
            // in the range and above it.
            let (next, address) = unsafe { (memory.stack(frame), memory.stack(frame.wrapping_add(8))) };
            // Stored before it is judged, which saves a register: a place that is not counted is free space still.
            place.store(address, Ordering::Relaxed);
            if !text.contains(address) || is_unmarked_entry(kernel, address) {
                // SAFETY: as above. Read again: to keep it would take another register.
                let last = unsafe { memory.stack(frame.wrapping_add(8)) };
                return Run { end: address_of(place), cursor: Cursor(frame), last, bounds };
            }
            let next_height = bounds.height(next);
            if next_height <= height {
                let end = address_of(place).wrapping_add(size_of_val(place));
                return Run { end, cursor: Cursor(frame | 1), last: next, bounds };
            }
            (frame, height) = (next, next_height);
        }
        end = places.as_ptr_range().end.addr();
        if let Some(guess) = guess(end) {
            if guess.load(Ordering::Relaxed) == frame {
                // Only this CPU's handler writes it: still the same number.
                frame = guess.load(Ordering::Relaxed);
                height = bounds.height(frame);
            } else {
                guess.store(frame, Ordering::Relaxed);
            }
        }
    }
    Run { end, cursor: Cursor(frame), last: frame, bounds }
}
