//! The fast path of a walk: ordinary frames, with as few instructions as possible. Nearly all frames are ordinary.
//!
//! In: registers or a checked frame pointer, and free words of the ring. Out: return addresses in these words, and
//! where the fast path ended. Runs in: NMI. Everything else is left to the slow path, which starts where this one
//! stopped and finds the reason. The only decision made here is whether to go on.

use super::entry_frame::is_unmarked_entry;
use super::stacks::bound;
use super::user::{UserEntry, user_word};
use super::words::{FIRST_ENTRY, SYSCALL, word_of};
use super::{Memory, Text, TextCell, is_straight};
use crate::arch::{caller, entry, record};
use crate::format::marker::{Marker, TruncationReason};
use crate::kernel::{CallerEntryFrame, Kernel, Registers};
use crate::ring::WORD_SHIFT;
use crate::sync::{AtomicU64, Ordering};
use core::ops::Range;
use core::{ptr, slice};

/// Frames per round of the loop, for the run at the beginning of a sample.
pub(crate) const ROUND: usize = 16;
const _: () = assert!(ROUND.is_power_of_two());
/// Frames per round for the later runs of the slow path, further out on the stack.
pub(super) const SHORT_ROUND: usize = 4;

/// The result of a run over ordinary frames.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// The address just after the last word that was filled.
    pub(crate) end: usize,
    /// Where the run ended.
    pub(crate) cursor: Cursor,
    /// The word that ended the run: a saved frame pointer, or a word where a return address was expected.
    last: u64,
    /// The bounds of the stack that the run was on.
    pub(crate) bounds: StackBounds,
}

impl Run {
    /// Whether the run has reached the root of the stack: the saved frame pointer or the return address is 0.
    #[inline(always)]
    pub(crate) fn at_root(&self) -> bool {
        self.last == 0
    }
}

/// Where a run ended: the address of its last valid frame. Bit 0 ([`TAKEN`]) is set if the return address of that frame
/// was taken, so that only its saved frame pointer is still to be checked. Bit 1 ([`STUB`]) is set if that address is
/// in an entry stub that leaves no marker word. Bit 2 ([`FULL`]) is set if the run has filled all its places.
#[derive(Clone, Copy)]
pub(crate) struct Cursor(u64);

const TAKEN: u64 = 1;
const STUB: u64 = 2;
const FULL: u64 = 4;
const _: () = assert!(record::UNALIGNED & 7 == TAKEN | STUB | FULL, "the bits that no frame's address has");

impl Cursor {
    #[inline(always)]
    fn frame(self) -> u64 {
        self.0 & !(TAKEN | STUB | FULL)
    }

    /// Whether the run ended only because all its places were full.
    #[inline(always)]
    pub(crate) fn has_more(self) -> bool {
        self.0 & FULL != 0
    }

    /// The frame to continue with, and the lowest address it may have.
    #[inline(always)]
    pub(super) fn next<M: Memory>(self, memory: M) -> (u64, u64) {
        let last = self.frame();
        // SAFETY: only `run_from` makes a `Cursor`, and `last` is the last frame that it found valid: an aligned word
        // of the range.
        let next = || unsafe { memory.stack(record::next_at(last)) };
        if self.0 & TAKEN != 0 { (next(), last.wrapping_add(8)) } else { (last, last) }
    }

    /// If the run ended at the frame of an entry stub that was entered from user code: what the stub has saved.
    #[inline(always)]
    pub(crate) fn user_entry<K: Kernel, M: Memory>(
        self,
        kernel: &K,
        memory: M,
        bounds: StackBounds,
    ) -> Option<UserEntry> {
        if self.0 & TAKEN != 0 {
            return None;
        }
        let frame = self.frame();
        // SAFETY: only `run_from` makes a `Cursor`: both words of the frame are aligned words of the range.
        let address = record::code_address(unsafe { memory.stack(record::return_at(frame)) });
        let (stub, marker, saved_at, fp_at) = if self.0 & STUB != 0 {
            if kernel.compiled_entry(address).is_some() {
                return None;
            }
            let CallerEntryFrame { marker, saved_at, fp_at } = kernel.caller_entry_frame(address, frame)?;
            // The word with the frame pointer must lie between the stub's record and what the entry has saved.
            if !(record::next_at(frame)..=saved_at).contains(&fp_at) || fp_at & 7 != 0 {
                return None;
            }
            (Some(address), word_of(marker), saved_at, fp_at)
        } else if (FIRST_ENTRY..=SYSCALL).contains(&address) {
            (None, address, record::saved_at(frame), record::next_at(frame))
        } else {
            return None;
        };
        // The last two words that the entry has saved must lie where a record above the stub's could be. `saved_at`
        // must not be below the stub's record, and so is in the range too.
        let last_two = record::frame_at(saved_at.wrapping_add(entry::BYTES - 16));
        if saved_at < record::next_at(frame) || bounds.height(last_two) <= bounds.height(frame) {
            return None;
        }
        // SAFETY: the checks above show that all of these are aligned words of the range.
        let pc = entry::user_pc(|offset| unsafe { memory.stack(saved_at.wrapping_add(offset)) })?;
        // SAFETY: as above.
        let fp = unsafe { memory.stack(fp_at) };
        Some(UserEntry { stub, marker, pc: user_word(pc), fp })
    }
}

/// Turns the address of a frame into a height, so that one comparison checks alignment, range and order.
///
/// The highest address that a frame can have gets the height [`u64::MAX`]; each word below it is one less. An address
/// above the range gets a height far below those of all frames of the range. So does a misaligned address, because its
/// low bits are rotated to the top. The next frame is therefore valid if and only if its height is greater than that of
/// the one before.
#[derive(Clone, Copy)]
pub(crate) struct StackBounds {
    origin: u64,
}

/// No frame of a stack of up to 16 GiB has a smaller height.
const LOWEST: u64 = !0 << 31;

impl StackBounds {
    #[inline(always)]
    fn of(range: &Range<u64>) -> Self {
        Self { origin: !bound(range) }
    }

    #[inline(always)]
    fn height(self, frame: u64) -> u64 {
        self.origin.wrapping_add(frame).rotate_right(record::ALIGN_SHIFT)
    }
}

/// Takes the innermost frames of interrupted kernel code, on the stack that contains its stack pointer. `None` if the
/// first frame already needs the slow path.
#[inline(always)]
pub(crate) fn innermost<K: Kernel, M: Memory>(
    kernel: &K,
    memory: M,
    text: &TextCell,
    at: &Registers,
    places: &[[AtomicU64; ROUND]],
    cache: &FrameCache,
) -> Option<Run> {
    if kernel.is_entry_code(at.pc) || kernel.compiled_entry(at.pc).is_some() {
        return None;
    }
    let range = kernel.stack_range(at.sp)?;
    let bounds = StackBounds::of(&range);
    // The frame pointer must be valid, and its record not below the stack pointer. The loads between the conditions
    // keep the compiler from merging them, so that each is one branch.
    if record::next_at(at.fp) < at.sp {
        return None;
    }
    let start = text.start();
    if !is_straight(&range, at.sp) {
        return None;
    }
    if bounds.height(at.fp) < LOWEST {
        return None;
    }
    // SAFETY: the stack pointer is not below the range and not above the record, which is at least 16 bytes below its
    // end.
    let word = caller::first_word(at, |sp| Some(unsafe { memory.stack_unaligned(sp) }))?;
    // This may be a prologue or epilogue: the slow path examines it.
    if caller::is_saved_frame_pointer(at, word) {
        return None;
    }
    let text = Text { start, bytes: text.bytes() };
    if text.contains(word) || kernel.is_text(word) {
        return None;
    }
    // SAFETY: the frame pointer is aligned, and its record is not below the range and ends within it.
    Some(unsafe { run_from(kernel, memory, at.fp, bounds, text, places, Some(cache)) })
}

/// Takes the callers of running code, starting at the frame of one of its functions. `None` if the first frame already
/// needs the slow path. `frame` may be any value.
#[inline(always)]
pub(crate) fn callers<K: Kernel, M: Memory>(
    kernel: &K,
    memory: M,
    text: &TextCell,
    frame: u64,
    places: &[[AtomicU64; ROUND]],
) -> Option<Run> {
    if kernel.unwind_table().is_some() {
        return None;
    }
    let range = kernel.stack_range(record::next_at(frame))?;
    let bounds = StackBounds::of(&range);
    if !is_straight(&range, record::next_at(frame)) || bounds.height(frame) < LOWEST {
        return None;
    }
    // SAFETY: the frame pointer is aligned, and its record begins and ends within the range: by the height, and because
    // the range contains the record's first word.
    Some(unsafe { run_from(kernel, memory, frame, bounds, text.get(), places, None) })
}

/// Goes on after a run that had no place left. `frames_left` frames may still be taken, fewer than a round. Returns how
/// many places are filled, and the run; `None` instead of it if there is a frame too many: then its place has the
/// marker of a truncated stack.
#[inline(always)]
pub(crate) fn go_on<K: Kernel, M: Memory>(
    kernel: &K,
    memory: M,
    text: Text,
    (cursor, bounds): (Cursor, StackBounds),
    places: &[AtomicU64; ROUND],
    frames_left: usize,
) -> (usize, Option<Run>) {
    // SAFETY: only `run_from` makes a `Cursor`: both words of the frame are aligned words of the range of the bounds.
    let run = unsafe { run_from(kernel, memory, cursor.frame(), bounds, text, slice::from_ref(places), None) };
    let taken = run.end.wrapping_sub(places.as_ptr().addr()) >> WORD_SHIFT;
    // `frames_left` itself, so that the compiler sees that it is a place; unless the depth is being changed just now,
    // and then the stack may be truncated earlier.
    let last = frames_left & (ROUND - 1);
    match places.get(last).filter(|_| taken > last) {
        Some(place) => {
            place.store(TOO_DEEP, Ordering::Relaxed);
            (last.wrapping_add(1), None)
        }
        None => (taken, Some(run)),
    }
}

/// The marker of a stack that has more frames than a sample may have.
pub(super) const TOO_DEEP: u64 = Marker::Truncated(Ok(TruncationReason::Depth)).encode();

/// Takes further frames, starting at `frame`.
///
/// # Safety
/// `judge` has returned `Next::Here` for `frame` in `range`, and `is_straight` has accepted `range`.
#[inline(never)]
pub(super) unsafe fn run<K: Kernel, M: Memory>(
    kernel: &K,
    memory: M,
    text: Text,
    frame: u64,
    range: &Range<u64>,
    places: &[AtomicU64],
) -> Run {
    // SAFETY: by the caller's promise, both words of the frame are aligned words of the range.
    unsafe {
        let places = places.as_chunks::<SHORT_ROUND>().0;
        run_from(kernel, memory, frame, StackBounds::of(range), text, places, None)
    }
}

/// For frames at which earlier walks on this CPU began a round: the frames that they had reached at its end. These are
/// only guesses; checking one costs one comparison.
///
/// The address of each frame is loaded from the frame before it, so the processor waits for one load after the other.
/// The outer frames are mostly the same as in an earlier walk of this stack. If the guess is right, the address is
/// taken from this cache: the value is the same, but it does not depend on the chain of loads. The processor predicts
/// the comparison, so the loads of the next round overlap with those of this one.
pub(crate) struct FrameCache {
    /// The frame at which the present round began. In memory, because keeping it in the round would take a register.
    start: AtomicU64,
    pub(super) ends: [AtomicU64; GUESSES],
}

/// A kilobyte for each CPU.
const GUESSES: usize = 128;
/// Leaves the upper bits of a hash, as many as a place needs.
const HASH_SHIFT: u32 = u32::BITS - GUESSES.ilog2();

impl FrameCache {
    pub(crate) const fn new() -> Self {
        Self { start: AtomicU64::new(0), ends: [const { AtomicU64::new(0) }; GUESSES] }
    }

    /// A round begins at this frame.
    #[inline(always)]
    fn begin(&self, frame: u64) {
        self.start.store(frame, Ordering::Relaxed);
    }

    /// The guess for the end of the present round.
    #[inline(always)]
    fn end(&self) -> &AtomicU64 {
        let start = self.start.load(Ordering::Relaxed) as u32;
        // The upper bits of a product depend on all bits of the address.
        let place = start.wrapping_mul(0x9e37_79b1) >> HASH_SHIFT;
        let [first, ..] = &self.ends;
        // The place is always in range; `first` only avoids a panic path.
        self.ends.get(place as usize).unwrap_or(first)
    }
}

/// The loop: ten instructions per frame, and about ten more per round.
///
/// # Safety
/// Both words of `frame` are aligned words of the declared stack range that `bounds` was made from.
#[inline(always)]
unsafe fn run_from<K: Kernel, M: Memory, const R: usize>(
    kernel: &K,
    memory: M,
    mut frame: u64,
    bounds: StackBounds,
    text: Text,
    rounds: &[[AtomicU64; R]],
    cache: Option<&FrameCache>,
) -> Run {
    let mut height = bounds.height(frame);
    if let Some(cache) = cache {
        cache.begin(frame);
    }
    // The end is kept as an address, because a count would take another register.
    let address_of = |place: &AtomicU64| ptr::from_ref(place).addr();
    let mut end = rounds.as_ptr().addr();
    for places in rounds {
        for place in places {
            // SAFETY: the first frame is covered by the caller's promise. Each further frame has a greater height than
            // the one before, so it is aligned, in the range and above that one.
            let (next, address) =
                unsafe { (memory.stack(record::next_at(frame)), memory.stack(record::return_at(frame))) };
            let address = record::code_address(address);
            // Stored before it is checked, which saves a register. A word that is not counted is still free space.
            place.store(address, Ordering::Relaxed);
            if !text.contains(address) {
                // SAFETY: as above. Read again, because keeping it would take another register.
                let last = record::code_address(unsafe { memory.stack(record::return_at(frame)) });
                return Run { end: address_of(place), cursor: Cursor(frame), last, bounds };
            }
            if is_unmarked_entry(kernel, address) {
                return Run { end: address_of(place), cursor: Cursor(frame | STUB), last: frame, bounds };
            }
            let next_height = bounds.height(next);
            if next_height <= height {
                let end = address_of(place).wrapping_add(size_of_val(place));
                return Run { end, cursor: Cursor(frame | TAKEN), last: next, bounds };
            }
            (frame, height) = (next, next_height);
        }
        end = places.as_ptr_range().end.addr();
        if let Some(cache) = cache {
            let guess = cache.end();
            if guess.load(Ordering::Relaxed) == frame {
                // Only the handler of this CPU writes it, so this load gives the same value as the one above.
                frame = guess.load(Ordering::Relaxed);
                height = bounds.height(frame);
            } else {
                guess.store(frame, Ordering::Relaxed);
            }
            cache.begin(frame);
        }
    }
    Run { end, cursor: Cursor(frame | FULL), last: frame, bounds }
}
