//! A breakpoint exception of a probe: counts the call that begins or ends, and emulates the instruction that the `int3`
//! replaces.
//!
//! In: what the exception has interrupted. Out: hits of the probe's point; the registers after the instruction. Runs
//! in: the breakpoint handler, interrupts off, never in an NMI. It must call no function that can have a probe, except
//! while the flag is set that a hit is in progress on this CPU: such a nested hit is only emulated, and its call is
//! counted as lost, once.

use super::asked::Registers;
use super::calls;
use super::memory::Memory;
use super::places::{self, Instruction, Place};
use super::probe::{Installed, Probe};
use crate::events::Events;
use crate::kernel::EventKernel;
use crate::points;
use crate::points::Point;
use crate::slot::EventSlot;
use core::sync::atomic::{Ordering, fence};
use kprof::Breakpoint;
use kprof::format::event::MAX_ARGUMENTS;
use kprof::internals::timestamp;

/// Handles a breakpoint exception in kernel code. `false`, with nothing changed, if it is not of a probe.
///
/// # Safety
/// As [`crate::Events::on_breakpoint`].
#[inline(always)]
pub(crate) unsafe fn on_breakpoint<K: EventKernel>(
    events: &'static Events<K>,
    at: &mut Breakpoint,
    registers: impl FnOnce() -> Registers,
) -> bool {
    let Some(Installed { memory, .. }) = events.state.probes.memory.get() else { return false };
    // Before the search: a place and its probe stay what they are until the flag is cleared. Interrupts are off, so
    // only code that is called from here finds it set.
    let Some(slot) = events.slot().filter(|slot| !slot.in_probe.swap(true, Ordering::SeqCst)) else {
        // SAFETY: the caller's promise.
        return events.state.guests.with(|| unsafe { lose(events, memory, at) });
    };
    let is_done = match places::find(memory.places, at.pc.wrapping_sub(1)) {
        Some(place) => {
            let (instruction, owner) = (place.instruction(), place.owner());
            // There is no owner if the `int3` was removed after this CPU had executed it.
            if let Some(probe) = memory.probe_of(owner) {
                let hit = Hit { events, memory, place, probe, owner, now: timestamp::read(), at };
                hit.count(slot, instruction, registers);
            }
            // SAFETY: the caller's promise.
            unsafe { emulate(at, instruction) };
            true
        }
        None => go_back(events, memory, at),
    };
    slot.in_probe.store(false, Ordering::Release);
    is_done
}

/// Sets the registers to what they are after the instruction.
///
/// # Safety
/// As [`crate::Events::on_breakpoint`].
#[inline(always)]
unsafe fn emulate(at: &mut Breakpoint, instruction: Instruction) {
    match instruction {
        Instruction::Push => {
            at.sp = at.sp.wrapping_sub(8);
            // SAFETY: by the caller's promise these eight bytes below the interrupted stack pointer are not in use.
            unsafe { (at.sp as *mut u64).write_volatile(at.fp) };
        }
        Instruction::Return => {
            // SAFETY: by the caller's promise the stack pointer is that of the interrupted kernel code. At this
            // instruction it points to the return address of the function.
            at.pc = unsafe { (at.sp as *const u64).read_volatile() };
            at.sp = at.sp.wrapping_add(8);
        }
        Instruction::Jump { target, .. } => at.pc = target,
    }
}

/// At a breakpoint without a place: goes back to the instruction, if it is there again, because a probe was removed
/// after this CPU had executed its `int3`. `false`, with nothing changed, if it is no breakpoint of a probe.
#[cold]
#[inline(never)]
fn go_back<K: EventKernel>(events: &Events<K>, memory: &Memory, at: &mut Breakpoint) -> bool {
    let address = at.pc.wrapping_sub(1);
    loop {
        let changes = memory.changes.load(Ordering::SeqCst);
        // In this order: an `int3` is there only while its place is in the table.
        let is_removed = changes > 0 && matches!(events.state.instruction_at(address), Ok(Some(_)));
        if is_removed || places::find(memory.places, address).is_some() {
            at.pc = address;
            return true;
        }
        if memory.changes.load(Ordering::SeqCst) == changes {
            return false;
        }
    }
}

/// A hit that cannot be counted, because it is inside another one, or on a CPU without a slot. Its call is lost once:
/// when it begins, or, if its beginning was counted, when it ends.
///
/// # Safety
/// As [`crate::Events::on_breakpoint`].
#[cold]
#[inline(never)]
unsafe fn lose<K: EventKernel>(events: &Events<K>, memory: &Memory, at: &mut Breakpoint) -> bool {
    let Some(place) = places::find(memory.places, at.pc.wrapping_sub(1)) else { return go_back(events, memory, at) };
    let (instruction, owner) = (place.instruction(), place.owner());
    if let Some(probe) = memory.probe_of(owner) {
        let has_begun = calls::end(memory.calls, at.sp, owner, &mut []).is_some();
        if probe.point.is_on() && (has_begun || instruction.begins()) {
            probe.point.lose(0);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { emulate(at, instruction) };
    true
}

/// Counts a call that may get a record. There is one for each type of arguments: see [`Events::record`].
#[inline(never)]
fn record<K: EventKernel, A: AsRef<[u64]> + ?Sized>(
    events: &'static Events<K>,
    point: &'static Point,
    weight: u64,
    at: &Breakpoint,
    arguments: &A,
) {
    // SAFETY: as in `on_breakpoint`, whose caller still holds the stack of the interrupted code.
    let return_address = unsafe { (at.sp as *const u64).read_volatile() };
    // Two frames as the interrupted function and its caller would have left them: `handle` records the callers of a
    // frame, and the function has none of its own at these instructions.
    let mut frames = [0, at.pc, at.fp, return_address];
    frames[0] = (&raw const frames[2]).expose_provenance() as u64;
    let frame = (&raw const frames).expose_provenance() as u64;
    points::handle(events, point, weight, arguments, point.state_word(), frame);
    core::hint::black_box(&frames);
}

/// The end of a call of this owner will not be known.
#[cold]
#[inline(never)]
fn has_no_room(memory: &Memory, owner: u64) {
    if let Some(probe) = memory.probe_of(owner).filter(|probe| probe.is_of_generation(owner)) {
        probe.point.lose(0);
    }
}

/// A hit of a probe. Passed by value, so that it needs no memory where it is only counted.
struct Hit<'a, K: EventKernel> {
    events: &'static Events<K>,
    memory: &'static Memory,
    place: &'static Place,
    probe: &'static Probe,
    /// The owner of the place when the hit began.
    owner: u64,
    now: u64,
    at: &'a Breakpoint,
}

impl<K: EventKernel> Clone for Hit<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: EventKernel> Copy for Hit<'_, K> {}

impl<K: EventKernel> Hit<'_, K> {
    /// Counts the call that begins or ends.
    #[inline(always)]
    fn count(self, slot: &'static EventSlot, instruction: Instruction, registers: impl FnOnce() -> Registers) {
        let point = &self.probe.point;
        let Some(counted) = point.counted() else {
            // If the point is on when the call ends, the beginning of another call must not be taken for this one's.
            calls::end(self.memory.calls, self.at.sp, self.owner, &mut []);
            return;
        };
        if self.probe.asked.is_any() {
            return match instruction {
                Instruction::Push => self.begin_asked(point, registers()),
                _ => self.end_asked(point),
            };
        }
        let weight = match instruction {
            Instruction::Push if self.probe.has_exits.load(Ordering::Relaxed) => return self.begin(&[]),
            Instruction::Push => 0,
            _ => match calls::end(self.memory.calls, self.at.sp, self.owner, &mut []) {
                Some(begun) => self.events.state.probes.ns_between(begun, self.now),
                // Its beginning was not seen.
                None => return,
            },
        };
        match slot.points.get(counted) {
            Some(place) => place.count(weight),
            None => record(self.events, point, weight, self.at, &[]),
        }
    }

    /// Notes that a call has begun.
    #[inline(always)]
    fn begin(self, arguments: &[u64]) {
        if let Some(owner) = calls::begin(self.memory.calls, self.at.sp, self.owner, self.now, arguments) {
            has_no_room(self.memory, owner);
        }
    }

    /// Notes that a call has begun, with arguments or conditions, if it meets these. A function that never returns is
    /// counted.
    #[cold]
    #[inline(never)]
    fn begin_asked(self, point: &'static Point, registers: Registers) {
        let (is_met, types) = (self.probe.asked.is_met(registers), self.probe.asked.types());
        if !self.is_still_planted() {
            return;
        }
        let mut arguments = [0; MAX_ARGUMENTS];
        let values = arguments.iter_mut().zip(types.values(registers));
        let count = values.map(|(argument, value)| *argument = value).count();
        let arguments = arguments.get(..count).unwrap_or(&[]);
        if !is_met {
            // An earlier call with this stack, which was not seen to end, does not end with this one.
            calls::end(self.memory.calls, self.at.sp, self.owner, &mut []);
        } else if self.probe.has_exits.load(Ordering::Relaxed) {
            self.begin(arguments);
        } else {
            record(self.events, point, 0, self.at, arguments);
        }
    }

    /// Counts a call that ends, if its beginning was noted.
    #[cold]
    #[inline(never)]
    fn end_asked(self, point: &'static Point) {
        let (mut arguments, count) = ([0; MAX_ARGUMENTS], self.probe.asked.types().iter().count());
        if let Some(begun) = calls::end(self.memory.calls, self.at.sp, self.owner, &mut arguments)
            && self.is_still_planted()
        {
            let weight = self.events.state.probes.ns_between(begun, self.now);
            record(self.events, point, weight, self.at, arguments.get(..count).unwrap_or(&[]));
        }
    }

    /// Whether what was read of the probe's [`super::asked::Asked`] is what this hit's owner asks for.
    fn is_still_planted(self) -> bool {
        fence(Ordering::Acquire);
        self.place.owner() == self.owner
    }
}
