//! The calls of functions with probes that are in progress: when each began.
//!
//! In: the beginning and the end of a call, identified by the address of its return address on the stack, which no
//! other call has at the same time. Out: when the call began. Runs in: the breakpoint handler, interrupts off. A table
//! of sets of four, without locks: whoever reads or fills an entry holds it meanwhile.
//!
//! An end counts only if its own beginning was seen. So every beginning that is not noted (its point is off, the call
//! does not meet the conditions) removes what an earlier call has left at the same stack address, and so does every
//! end. The removal of a probe removes its calls. A call that is not seen to end, because its task was killed, leaves
//! its entry: in a full set the oldest call gives way.

use core::sync::atomic::{AtomicU64, Ordering};
use kprof::format::event::MAX_ARGUMENTS;

const WAYS: usize = 4;
/// Not an address of a return address: somebody reads or fills the entry.
const HELD: u64 = 1;

/// Four calls whose stack addresses belong to the same set.
#[repr(align(32))]
pub(super) struct CallSet {
    /// The address of each call's return address; 0 while the entry is free; [`HELD`].
    stack: [AtomicU64; WAYS],
    /// [`super::probe::Probe::owner`] of its probe when it began.
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

/// A call's entry, which its holder reads or fills.
struct Entry<'a> {
    stack: &'a AtomicU64,
    owner: &'a AtomicU64,
    begun_tsc: &'a AtomicU64,
    arguments: &'a [AtomicU64; MAX_ARGUMENTS],
}

impl CallSet {
    #[cfg(test)]
    pub(super) fn is_free(&self) -> bool {
        self.stack.iter().all(|stack| stack.load(Ordering::Relaxed) == 0)
    }

    #[inline(always)]
    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let entries = self.stack.iter().zip(&self.owner).zip(self.begun_tsc.iter().zip(&self.arguments));
        entries.map(|((stack, owner), (begun_tsc, arguments))| Entry { stack, owner, begun_tsc, arguments })
    }
}

impl Entry<'_> {
    /// Holds the entry, if it is that of this stack address, or free (0).
    #[inline(always)]
    fn hold(&self, stack: u64) -> bool {
        // Acquire: sees what the last holder has stored.
        self.stack.load(Ordering::Relaxed) == stack
            && self.stack.compare_exchange(stack, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Ends the holding: the entry is that of this stack address, or free (0).
    #[inline(always)]
    fn release(&self, stack: u64) {
        self.stack.store(stack, Ordering::Release);
    }
}

/// Notes that a call has begun, and its arguments, if there are any. Returns the owner of the call that has no room any
/// more and whose end will not count: the oldest call of a full set.
#[inline(always)]
pub(super) fn begin(calls: &'static [CallSet], stack: u64, owner: u64, now_tsc: u64, arguments: &[u64]) -> Option<u64> {
    let Some(set) = set(calls, stack) else { return Some(owner) };
    // A call with this address that was not seen to end, such as one that has panicked, is over.
    let room = set.entries().find(|entry| entry.hold(stack)).or_else(|| set.entries().find(|entry| entry.hold(0)));
    let (entry, evicted) = match room {
        Some(entry) => (entry, None),
        None => {
            let Some(entry) = evict(set).and_then(|index| set.entries().nth(index)) else { return Some(owner) };
            let evicted = entry.owner.load(Ordering::Relaxed);
            (entry, Some(evicted))
        }
    };
    entry.begun_tsc.store(now_tsc, Ordering::Relaxed);
    entry.arguments.iter().zip(arguments).for_each(|(place, argument)| place.store(*argument, Ordering::Relaxed));
    entry.owner.store(owner, Ordering::Relaxed);
    entry.release(stack);
    evicted
}

/// Holds the entry of the oldest call. Returns its index; `None` if somebody else holds it, or has ended it.
#[cold]
#[inline(never)]
fn evict(set: &CallSet) -> Option<usize> {
    let begun = |(_, entry): &(usize, Entry<'_>)| entry.begun_tsc.load(Ordering::Relaxed);
    let (index, oldest) = set.entries().enumerate().min_by_key(begun)?;
    let stack = oldest.stack.load(Ordering::Relaxed);
    (stack != HELD && oldest.hold(stack)).then_some(index)
}

/// Removes the call at this stack address, which ends or is over. Returns when it began, and copies its arguments, if
/// it is one of this owner.
#[inline(always)]
pub(super) fn end(calls: &'static [CallSet], stack: u64, owner: u64, arguments: &mut [u64]) -> Option<u64> {
    let entry = set(calls, stack)?.entries().find(|entry| entry.hold(stack))?;
    let is_mine = entry.owner.load(Ordering::Relaxed) == owner;
    let begun_tsc = entry.begun_tsc.load(Ordering::Relaxed);
    arguments.iter_mut().zip(entry.arguments).for_each(|(to, place)| *to = place.load(Ordering::Relaxed));
    entry.release(0);
    is_mine.then_some(begun_tsc)
}

/// Removes the calls of all owners whose probes were removed: their ends will not be seen.
pub(super) fn forget(calls: &'static [CallSet], is_gone: impl Fn(u64) -> bool) {
    let is_over = |entry: &Entry<'_>| is_gone(entry.owner.load(Ordering::Relaxed));
    for entry in calls.iter().flat_map(CallSet::entries).filter(is_over) {
        let stack = entry.stack.load(Ordering::Relaxed);
        // Somebody may have ended it, and another call has the entry.
        if stack > HELD && entry.hold(stack) {
            entry.release(if is_over(&entry) { 0 } else { stack });
        }
    }
}
