//! A breakpoint exception of a probe: counts the call that begins or ends, and emulates the instruction that the `int3`
//! replaces.
//!
//! In: what the exception has interrupted. Out: hits of the probe's point; the registers after the instruction. Runs
//! in: the breakpoint handler, interrupts off, never in an NMI. It must call no function that can have a probe, except
//! behind the flag that a hit is in progress on this CPU: such a nested hit is only emulated, and counted as lost.

use super::places::{self, Instruction};
use super::{CallSet, Probe, calls};
use crate::arch::timestamp;
use crate::kernel::{Breakpoint, Kernel};
use crate::points;
use crate::state::Instance;
use crate::state::points::Point;
use crate::state::slot::CpuSlot;
use core::sync::atomic::Ordering;

/// Handles a breakpoint exception in kernel code. `false`, with nothing changed, if it is not of a probe.
///
/// # Safety
/// As [`crate::Profiler::on_breakpoint`].
#[inline(always)]
pub(crate) unsafe fn on_breakpoint<K: Kernel>(instance: &'static Instance<K>, at: &mut Breakpoint) -> bool {
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
            count(instance, installed.memory.calls, slot, (probe, owner), instruction, at, return_address);
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
    (probe, owner): (&'static Probe, u64),
    instruction: Instruction,
    at: &Breakpoint,
    return_address: u64,
) {
    let Some(point) = probe.point.get().filter(|point| point.is_on()) else { return };
    let now = timestamp::read();
    let weight = match instruction {
        Instruction::Push if probe.has_exits.load(Ordering::Relaxed) => {
            if !calls::begin(calls, at.sp, owner, now) {
                // Its end will not be known.
                point.lose(0);
            }
            return;
        }
        Instruction::Push => 0,
        _ => match calls::end(calls, at.sp, owner) {
            Some(begun) => instance.shared.probes.ns_between(begun, now),
            // It began before the probe was planted.
            None => return,
        },
    };
    match slot.sampler.points.get(point.counted()) {
        Some(place) => place.count(weight),
        None => record(instance, point, weight, at, return_address),
    }
}

/// Counts a call that may get a record.
#[inline(never)]
fn record<K: Kernel>(
    instance: &'static Instance<K>,
    point: &'static Point,
    weight: u64,
    at: &Breakpoint,
    return_address: u64,
) {
    // Two frames as the interrupted function and its caller would have left them: `handle` records the callers of a
    // frame, and the function has none of its own at these instructions.
    let mut frames = [0, at.pc, at.fp, return_address];
    frames[0] = (&raw const frames[2]).expose_provenance() as u64;
    points::handle(instance, point, weight, &[], point.state_word(), (&raw const frames).expose_provenance() as u64);
    core::hint::black_box(&frames);
}
