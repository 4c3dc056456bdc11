//! The steps of a handler on its word: entering, taking a tick, leaving.
//!
//! In: entering, taking, leaving; NMIs that come inside a handler. Out: whose tick it is. Runs in: NMI on the CPU
//! itself (with the trigger `published`: the sampler CPU, which then is the only one to enter). Others read.
//!
//! ```text
//!   bits 63..2: the newest tick taken      bits 1..0: 0 nobody is at work
//!                                                     1 ENTERED: one tick, if there is one, is this handler's to take
//!                                                     2 TAKEN: it has taken what it takes
//!                         enter: +1                   take: + one tick, + 1                leave: -2
//! ```
//!
//! Each step of a handler is one addition in one instruction, so whatever an NMI does to the word meanwhile is kept,
//! and the number of ticks taken never goes back. An NMI that comes inside a handler takes what is there beyond the one
//! tick that a handler in the state ENTERED has yet to take. So each tick has exactly one taker, at whatever
//! instruction it comes.

use crate::state::progress::{ENTERED, STATE, TAKEN, TICK};
use crate::state::slot::CpuSlot;
use crate::sync::Ordering;
use crate::x86_64::add::add_in_one;

/// Lets one handler in; it must [`leave`]. `false`: one is at work on this CPU, so this NMI came inside it.
#[inline(always)]
pub(super) fn enter(slot: &CpuSlot) -> bool {
    let is_free = !slot.handler.progress.is_busy();
    if is_free {
        add_in_one!(slot: CpuSlot, handler.progress, 1);
    }
    is_free
}

/// The number of the one tick that is there, to be taken by [`take_one`]; `None`: there is none, or more than one.
#[inline(always)]
pub(super) fn one(slot: &CpuSlot) -> Option<u64> {
    let number = slot.handler.progress.seen().wrapping_add(1);
    // Acquire: what the sampler set up before it raised the number is seen.
    (slot.sampler.tick.load(Ordering::Acquire) == number).then_some(number)
}

/// Takes the tick that [`one`] has found: an NMI that came since has left it to this handler.
#[inline(always)]
pub(super) fn take_one(slot: &CpuSlot) {
    // One tick and one state.
    add_in_one!(slot: CpuSlot, handler.progress, 5);
    add_in_one!(slot: CpuSlot, handler.counters.taken, 1);
}

/// Takes the newest tick, where there is none, or more than one; gives its number.
#[cold]
#[inline(never)]
pub(super) fn take_newest(slot: &CpuSlot) -> Option<u64> {
    // From here on an NMI inside leaves nothing to this handler; what came before is found by the look that follows.
    add_in_one!(slot: CpuSlot, handler.progress, 1);
    take_inside(slot)
}

/// Takes all ticks that are there, but for the one that a handler that has only entered has yet to take: one is taken,
/// by whoever calls this, the others were coalesced.
#[inline(never)]
pub(super) fn take_inside(slot: &CpuSlot) -> Option<u64> {
    let progress = &slot.handler.progress.0;
    loop {
        let word = progress.get_acquire();
        let taken = (word / TICK).wrapping_add(u64::from(word & STATE == ENTERED));
        let newest = slot.sampler.tick.load(Ordering::Acquire);
        if newest <= taken {
            return None;
        }
        let ticks = newest.wrapping_sub(taken);
        // Another round only after an NMI inside has taken ticks between the look and this: fewer than were sent.
        if progress.replace(word, word.wrapping_add(ticks.wrapping_mul(TICK))) {
            slot.handler.counters.coalesced.fetch_add(ticks.wrapping_sub(1));
            add_in_one!(slot: CpuSlot, handler.counters.taken, 1);
            return Some(newest);
        }
    }
}

/// Lets the next one in.
#[inline(always)]
pub(super) fn leave(slot: &CpuSlot) {
    add_in_one!(slot: CpuSlot, handler.progress, -2);
}

/// The same for a handler that has taken nothing.
pub(super) fn leave_untaken(slot: &CpuSlot) {
    add_in_one!(slot: CpuSlot, handler.progress, -1);
}

const _: () = assert!(TICK + 1 == 5 && TAKEN == 2 && ENTERED == 1, "the numbers that are added above");
