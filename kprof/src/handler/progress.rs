//! The steps of a handler on its progress word: entering, taking a tick, leaving.
//!
//! In: calls to enter, take and leave; NMIs that arrive inside a handler. Out: which of the handlers takes which tick.
//! Runs in: NMI on the CPU itself (with the trigger `published`: the sampler CPU, which then is the only one to enter).
//! All other code only reads the word.
//!
//! ```text
//!   bits 63..2: the newest tick taken      bits 1..0: 0 no handler runs
//!                                                     1 ENTERED: this handler will take one tick, if there is one
//!                                                     2 TAKEN: it has taken its tick
//!                         enter: +1                   take: + one tick, + 1                leave: -2
//! ```
//!
//! Each step of a handler is one addition in one instruction. So no change that a nested NMI makes to the word is lost,
//! and the number of ticks taken never decreases. An NMI that arrives inside a handler leaves one tick to a handler in
//! the state ENTERED, which has yet to take it, and takes all others. So each tick is taken exactly once, at whatever
//! instruction an NMI arrives.

use crate::arch::add::add_in_one;
use crate::progress::{ENTERED, STATE, TAKEN, TICK};
use crate::slot::CpuSlot;
use crate::sync::Ordering;

/// Enters the handler; the caller must then [`leave`]. `false`: a handler runs on this CPU already, so this NMI arrived
/// inside it.
#[inline(always)]
pub(super) fn enter(slot: &CpuSlot) -> bool {
    let is_free = !slot.handler.progress.is_busy();
    if is_free {
        add_in_one!(slot: CpuSlot, handler.progress, 1);
    }
    is_free
}

/// The number of the pending tick if there is exactly one, to be taken by [`take_one`]. `None`: there is none, or more
/// than one.
#[inline(always)]
pub(super) fn one(slot: &CpuSlot) -> Option<u64> {
    // Acquire: sees what the sampler stored before it raised the number.
    let number = slot.sampler.tick.load(Ordering::Acquire);
    // The word of a handler that has entered and whose next tick is this one.
    let word = number.wrapping_mul(TICK).wrapping_sub(TICK - ENTERED);
    (slot.handler.progress.0.get() == word).then_some(number)
}

/// Takes the tick that [`one`] has found. An NMI that arrived since then has left this tick to the handler.
#[inline(always)]
pub(super) fn take_one(slot: &CpuSlot) {
    // Adds one tick (4), and moves the state from ENTERED to TAKEN (1).
    add_in_one!(slot: CpuSlot, handler.progress, 5);
    add_in_one!(slot: CpuSlot, handler.counters.taken, 1);
}

/// Takes all pending ticks, after `one` found none or more than one. Returns the number of the newest; the others count
/// as coalesced. `None`: no tick is pending.
#[cold]
#[inline(never)]
pub(super) fn take_newest(slot: &CpuSlot) -> Option<u64> {
    // From here on a nested NMI leaves no tick to this handler. Ticks that came before are found by the check that
    // follows.
    add_in_one!(slot: CpuSlot, handler.progress, 1);
    take_inside(slot)
}

/// Takes all pending ticks, except for the one that a handler in the state ENTERED has yet to take. The newest counts
/// as taken by the caller, the others as coalesced.
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
        // The loop repeats only if a nested NMI took ticks between the load and this. That can happen at most as often
        // as ticks were sent.
        if progress.replace(word, word.wrapping_add(ticks.wrapping_mul(TICK))) {
            slot.handler.counters.coalesced.fetch_add(ticks.wrapping_sub(1));
            add_in_one!(slot: CpuSlot, handler.counters.taken, 1);
            return Some(newest);
        }
    }
}

/// Lets the next handler enter.
#[inline(always)]
pub(super) fn leave(slot: &CpuSlot) {
    add_in_one!(slot: CpuSlot, handler.progress, -2);
}

/// Lets the next handler enter, after a handler that has taken no tick.
pub(super) fn leave_untaken(slot: &CpuSlot) {
    add_in_one!(slot: CpuSlot, handler.progress, -1);
}

const _: () = assert!(TICK + 1 == 5 && TAKEN == 2 && ENTERED == 1, "the numbers that are added above");
