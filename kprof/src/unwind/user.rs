//! Walks user code: the address of the interrupted user instruction, and the user's frames. Stage: unwind.
//!
//! In: words that a program has chosen, so they can have any value. Out: addresses below [`USER_END`], or 0 for any
//! other word. Runs in: NMI. Every such word goes through [`user_word`] before it is written into a record: a program
//! that jumps to an address that looks like a marker, or like kernel code, must not be able to write either into a
//! stack.
//!
//! The chain of frames is read through a kernel hook that never faults. Frame addresses must be aligned and must
//! increase; the depth limit bounds their number. A word that cannot be read, or is no user address, ends the chain as
//! if it were the root, because most user code has no frame pointers.

use super::fast_path::TOO_DEEP;
use super::words::SYSCALL;
use super::{Memory, Stop, Walk};
use crate::arch::record;
use crate::format::marker::{Marker, TruncationReason};
use crate::kernel::Kernel;
use crate::sync::{AtomicU64, Ordering};

/// No user address is at or above this: user addresses have 47 bits, with five-level paging 56 (Intel SDM volume 3,
/// 4.1).
///
/// The larger bound is right for both. With four-level paging nothing between the two bounds is mapped, so no code
/// there was executed. A word in that range has bit 63 clear, so no reader mistakes it for kernel code or for a marker.
const USER_END: u64 = 1 << 56;

/// A word that user mode has chosen, in the form in which it may be recorded: unchanged if it is a user address, else
/// 0.
#[inline(always)]
pub(crate) const fn user_word(word: u64) -> u64 {
    if word < USER_END { word } else { 0 }
}

/// One frame of a program, if there is one at `frame`: the return address, and the caller's frame. `above` is the
/// lowest address that `frame` may have.
#[inline(always)]
fn user_frame<K: Kernel>(kernel: &K, frame: u64, above: u64) -> Option<(u64, u64)> {
    // The lowest three bits come out at the top, so one comparison refuses addresses that are too high or not aligned.
    if frame < above || frame.rotate_right(3) >= (USER_END - 16) >> 3 {
        return None;
    }
    let [next, address] = kernel.read_user_frame(record::next_at(frame))?;
    let address = user_word(record::code_address(address));
    (address != 0).then_some((address, next))
}

/// The fast path: writes the return addresses of a program's chain of frames to `places`, which are one more than
/// frames may be taken. Returns how many places are filled. If there is a frame too many, its place has the marker of a
/// truncated stack.
#[inline(always)]
pub(crate) fn user_frames<K: Kernel>(kernel: &K, mut frame: u64, places: &[AtomicU64]) -> usize {
    let (mut above, mut taken) = (1, 0_usize);
    for place in places {
        let Some((address, next)) = user_frame(kernel, frame, above) else { return taken };
        place.store(address, Ordering::Relaxed);
        taken = taken.wrapping_add(1);
        (above, frame) = (frame.wrapping_add(16), next);
    }
    if let Some(last) = places.last() {
        last.store(TOO_DEEP, Ordering::Relaxed);
    }
    taken
}

/// The most words of an entry: the stub, if it has no marker word; the marker; the user marker; the user's
/// instruction.
pub(crate) const ENTRY_PLACES: usize = 4;

/// An entry from user code, which ended a run of kernel frames. Most samples of kernel code end at one.
pub(crate) struct UserEntry {
    /// The return address in the entry stub, if the stub leaves no marker word.
    pub(super) stub: Option<u64>,
    pub(super) marker: u64,
    /// The interrupted instruction of the program.
    pub(super) pc: u64,
    /// The program's frame pointer.
    pub(super) fp: u64,
}

impl UserEntry {
    /// Whether the entry was an interrupt or an exception. (Otherwise it was a system call.)
    pub(crate) fn is_interrupt(&self) -> bool {
        self.marker < SYSCALL
    }

    /// How many frames [`write`](Self::write) adds to the record.
    #[inline(always)]
    pub(crate) fn frames(&self) -> usize {
        if self.stub.is_some() { 2 } else { 1 }
    }

    /// How many words [`write`](Self::write) writes.
    #[inline(always)]
    pub(crate) fn words(&self) -> usize {
        if self.stub.is_some() { ENTRY_PLACES } else { ENTRY_PLACES - 1 }
    }

    /// The fast path: writes the words of the entry and of the interrupted instruction. Returns the places after them.
    #[inline(always)]
    pub(crate) fn write<'p, const N: usize>(&self, places: &'p [AtomicU64; N]) -> &'p [AtomicU64] {
        let [stub, rest @ ..] = &places[..] else { return &[] };
        let rest = match self.stub {
            None => &places[..],
            Some(address) => {
                stub.store(address, Ordering::Relaxed);
                rest
            }
        };
        let [marker, user, pc, rest @ ..] = rest else { return &[] };
        marker.store(self.marker, Ordering::Relaxed);
        user.store(Marker::User.encode(), Ordering::Relaxed);
        pc.store(self.pc, Ordering::Relaxed);
        rest
    }

    /// The program's frame pointer, where the chain of its frames begins.
    #[inline(always)]
    pub(crate) fn fp(&self) -> u64 {
        self.fp
    }
}

impl<K: Kernel, M: Memory> Walk<'_, '_, K, M> {
    /// Follows the user's chain of frames, starting at `frame`.
    #[inline(never)]
    pub(super) fn user(&mut self, mut frame: u64) -> Stop {
        let mut above = 1;
        while self.user_frames
            && let Some((address, next)) = user_frame(self.kernel, frame, above)
        {
            if !self.push_frame(address) {
                return Stop::Truncated(TruncationReason::Depth);
            }
            (above, frame) = (frame.wrapping_add(16), next);
        }
        Stop::Root
    }
}
