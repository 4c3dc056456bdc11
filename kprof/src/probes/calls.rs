//! The calls of functions with probes that are in progress: when each began.
//!
//! In: the beginning and the end of a call, identified by the address of its return address on the stack, which no
//! other call has at the same time. Out: when the call began. Runs in: the breakpoint handler, interrupts off. A table
//! of sets of four, without locks: only the thread whose stack it is uses the entry of an address.

use crate::format::event::MAX_ARGUMENTS;
use core::sync::atomic::{AtomicU64, Ordering};

const WAYS: usize = 4;

/// Four calls whose stack addresses belong to the same set.
#[repr(align(32))]
pub(super) struct CallSet {
    /// The address of each call's return address; 0 while the entry is free.
    stack: [AtomicU64; WAYS],
    /// [`super::Probe::owner`] of its probe when it began.
    owner: [AtomicU64; WAYS],
    begun_tsc: [AtomicU64; WAYS],
    /// The arguments that its record gets, if its probe asks for some.
    arguments: [[AtomicU64; MAX_ARGUMENTS]; WAYS],
}

impl CallSet {
    pub(super) const fn new() -> Self {
        Self {
            stack: [const { AtomicU64::new(0) }; WAYS],
            owner: [const { AtomicU64::new(0) }; WAYS],
            begun_tsc: [const { AtomicU64::new(0) }; WAYS],
            arguments: [const { [const { AtomicU64::new(0) }; MAX_ARGUMENTS] }; WAYS],
        }
    }
}

#[inline(always)]
fn set(calls: &'static [CallSet], stack: u64) -> Option<&'static CallSet> {
    let hash = (stack >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    calls.get(hash as usize & calls.len().wrapping_sub(1))
}

/// Notes that a call has begun, and its arguments, if there are any. `false` if there is no room.
#[inline(always)]
pub(super) fn begin(calls: &'static [CallSet], stack: u64, owner: u64, now_tsc: u64, arguments: &[u64]) -> bool {
    let Some(set) = set(calls, stack) else { return false };
    let entries = || set.stack.iter().zip(&set.owner).zip(set.begun_tsc.iter().zip(&set.arguments));
    let fill = |of: &AtomicU64, begun: &AtomicU64, places: &[AtomicU64]| {
        begun.store(now_tsc, Ordering::Relaxed);
        places.iter().zip(arguments).for_each(|(place, argument)| place.store(*argument, Ordering::Relaxed));
        of.store(owner, Ordering::Relaxed);
        true
    };
    // A call with this address that was not seen to end, such as one that has panicked, is over.
    if let Some(((_, of), (begun, places))) = entries().find(|((at, _), _)| at.load(Ordering::Relaxed) == stack) {
        return fill(of, begun, places);
    }
    // Another CPU may take the entry at the same time.
    let take = |at: &AtomicU64| at.compare_exchange(0, stack, Ordering::Acquire, Ordering::Relaxed).is_ok();
    entries().find(|((at, _), _)| take(at)).is_some_and(|((_, of), (begun, places))| fill(of, begun, places))
}

/// Takes the call that ends, if its beginning was seen. Returns when it began, and copies its arguments.
#[inline(always)]
pub(super) fn end(calls: &'static [CallSet], stack: u64, owner: u64, arguments: &mut [u64]) -> Option<u64> {
    let set = set(calls, stack)?;
    let mut entries = set.stack.iter().zip(&set.owner).zip(set.begun_tsc.iter().zip(&set.arguments));
    let ((at, of), (begun, places)) = entries.find(|((at, _), _)| at.load(Ordering::Relaxed) == stack)?;
    let is_mine = of.load(Ordering::Relaxed) == owner;
    let begun_tsc = begun.load(Ordering::Relaxed);
    if is_mine {
        arguments.iter_mut().zip(places).for_each(|(argument, place)| *argument = place.load(Ordering::Relaxed));
        // Release: whoever takes the entry after that does not write the arguments before they are read.
        at.store(0, Ordering::Release);
    }
    is_mine.then_some(begun_tsc)
}

/// Forgets all calls. Only while no function has a probe.
pub(super) fn forget(calls: &'static [CallSet]) {
    calls.iter().flat_map(|set| &set.stack).for_each(|at| at.store(0, Ordering::Relaxed));
}
