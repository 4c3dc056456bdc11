//! A breakpoint exception of a probe: counts the call that begins or ends, and emulates the instruction that the `int3`
//! replaces.
//!
//! In: what the exception has interrupted. Out: hits of the probe's point; the registers after the instruction. Runs
//! in: the breakpoint handler, interrupts off, never in an NMI. It must call no function that can have a probe, except
//! while the flag is set that a hit is in progress on this CPU: such a nested hit is only emulated, and counted as
//! lost.

use super::asked::Registers;
use super::places::{self, Instruction, Place};
use super::{CallSet, Probe, calls};
use crate::arch::timestamp;
use crate::format::event::MAX_ARGUMENTS;
use crate::kernel::{Breakpoint, Kernel};
use crate::points;
use crate::state::Instance;
use crate::state::points::Point;
use crate::state::slot::CpuSlot;
use core::sync::atomic::{Ordering, fence};

/// Handles a breakpoint exception in kernel code. `false`, with nothing changed, if it is not of a probe.
///
/// # Safety
/// As [`crate::Profiler::on_breakpoint`].
#[inline(always)]
pub(crate) unsafe fn on_breakpoint<K: Kernel>(
    instance: &'static Instance<K>,
    at: &mut Breakpoint,
    registers: impl FnOnce() -> Registers,
) -> bool {
    let Some(installed) = instance.shared.probes.memory.get() else { return false };
    let Some(place) = places::find(installed.memory.places, at.pc.wrapping_sub(1)) else { return false };
    let instruction = place.instruction();
    // SAFETY: by the caller's promise the stack pointer is that of the interrupted kernel code. At each of the three
    // instructions it points to the return address of the function.
    let return_address = unsafe { (at.sp as *const u64).read_volatile() };
    // 0 if the `int3` was removed after this CPU had executed it.
    let owner = place.owner();
    if owner != 0
        && let Some(probe) = place.probe()
        && let Some(slot) = instance.shared.ready.slot(instance.kernel.cpu())
    {
        // Interrupts are off, so only code that is called from here finds the flag set.
        if slot.in_probe.swap(true, Ordering::Relaxed) {
            nested(probe);
        } else {
            count(instance, installed.memory.calls, slot, (place, probe, owner), instruction, at, registers);
            slot.in_probe.store(false, Ordering::Relaxed);
        }
    }
    match instruction {
        Instruction::Push => {
            at.sp = at.sp.wrapping_sub(8);
            // SAFETY: by the caller's promise these eight bytes below the interrupted stack pointer are not in use.
            unsafe { (at.sp as *mut u64).write_volatile(at.fp) };
        }
        Instruction::Return => {
            at.pc = return_address;
            at.sp = at.sp.wrapping_add(8);
        }
        Instruction::Jump { target, .. } => at.pc = target,
    }
    true
}

#[cold]
fn nested(probe: &Probe) {
    if let Some(point) = probe.point.get() {
        point.lose(0);
    }
}

/// Counts the call.
#[inline(always)]
fn count<K: Kernel>(
    instance: &'static Instance<K>,
    calls: &'static [CallSet],
    slot: &'static CpuSlot,
    (place, probe, owner): (&'static Place, &'static Probe, u64),
    instruction: Instruction,
    at: &Breakpoint,
    registers: impl FnOnce() -> Registers,
) {
    let Some(point) = probe.point.get().filter(|point| point.is_on()) else { return };
    let now = timestamp::read();
    if probe.asked.is_any() {
        let hit = Hit { instance, calls, place, probe, owner, point, now, at };
        return match instruction {
            Instruction::Push => hit.begin(registers()),
            _ => hit.end(),
        };
    }
    let weight = match instruction {
        Instruction::Push if probe.has_exits.load(Ordering::Relaxed) => {
            return begin(calls, at.sp, owner, point, now, &[]);
        }
        Instruction::Push => 0,
        _ => match calls::end(calls, at.sp, owner, &mut []) {
            Some(begun) => instance.shared.probes.ns_between(begun, now),
            // It began before the probe was planted.
            None => return,
        },
    };
    match slot.sampler.points.get(point.counted()) {
        Some(place) => place.count(weight),
        None => record(instance, point, weight, at, &[]),
    }
}

/// Notes that a call has begun.
#[inline(always)]
fn begin(calls: &'static [CallSet], stack: u64, owner: u64, point: &'static Point, now: u64, arguments: &[u64]) {
    if !calls::begin(calls, stack, owner, now, arguments) {
        // Its end will not be known.
        point.lose(0);
    }
}

/// Counts a call that may get a record. There is one for each type of arguments: see [`Instance::record`].
#[inline(never)]
fn record<K: Kernel, A: AsRef<[u64]> + ?Sized>(
    instance: &'static Instance<K>,
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
    points::handle(instance, point, weight, arguments, point.state_word(), frame);
    core::hint::black_box(&frames);
}

/// A hit of a probe that asks for arguments, or has conditions.
struct Hit<'a, K: Kernel> {
    instance: &'static Instance<K>,
    calls: &'static [CallSet],
    place: &'static Place,
    probe: &'static Probe,
    /// The owner of the place when the hit began.
    owner: u64,
    point: &'static Point,
    now: u64,
    at: &'a Breakpoint,
}

impl<K: Kernel> Hit<'_, K> {
    /// Notes that a call has begun, if it meets the conditions. A function that never returns is counted.
    #[cold]
    #[inline(never)]
    fn begin(&self, registers: Registers) {
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
            calls::end(self.calls, self.at.sp, self.owner, &mut []);
        } else if self.probe.has_exits.load(Ordering::Relaxed) {
            begin(self.calls, self.at.sp, self.owner, self.point, self.now, arguments);
        } else {
            record(self.instance, self.point, 0, self.at, arguments);
        }
    }

    /// Counts a call that ends, if its beginning was noted.
    #[cold]
    #[inline(never)]
    fn end(&self) {
        let (mut arguments, count) = ([0; MAX_ARGUMENTS], self.probe.asked.types().iter().count());
        if let Some(begun) = calls::end(self.calls, self.at.sp, self.owner, &mut arguments)
            && self.is_still_planted()
        {
            let weight = self.instance.shared.probes.ns_between(begun, self.now);
            record(self.instance, self.point, weight, self.at, arguments.get(..count).unwrap_or(&[]));
        }
    }

    /// Whether what was read of the probe's [`super::asked::Asked`] is what this hit's owner asks for.
    fn is_still_planted(&self) -> bool {
        fence(Ordering::Acquire);
        self.place.owner() == self.owner
    }
}
