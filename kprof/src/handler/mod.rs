//! Handles one tick on one sampled CPU: counts it, filters it, walks the stack into the ring, publishes the record.
//!
//! In: the interrupted registers. Out: a record in this CPU's ring, or a counted reason why not. Runs in: NMI on the
//! sampled CPU. No lock, no allocation, no page fault, no print, no unbounded loop.
//!
//! An NMI can arrive while this CPU's handler runs, after an `int3` or a page fault in the handler has unblocked NMIs.
//! This nested NMI takes the ticks that the interrupted handler will not take, if there are any, and counts a lost
//! sample. It does not touch the ring, nor the tick that the interrupted handler is working on (`progress`). Full ring:
//! nothing is published, and the tick counts as lost.
//!
//! An NMI that finds no tick can still be the profiler's: its tick was coalesced with an earlier one, or was signalled
//! twice. At most as many such NMIs are counted as spurious as ticks were coalesced or signalled again. Any further one
//! is reported to the kernel as foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

mod in_user_code;
mod progress;
mod sample;
mod self_cost;

use crate::format::counter::TICKS_A_MEASUREMENT;
use crate::kernel::{Interrupted, Kernel, Outcome, Registers};
use crate::live::State;
use crate::shared::Instance;
use crate::slot::CpuSlot;
use crate::unwind::Direct;
use crate::unwind::Memory;
use core::sync::atomic::{Ordering, fence};
use sample::Tick;
use self_cost::Start;

/// The NMI handler. With [`crate::Trigger::Published`] every NMI is foreign.
#[inline(always)]
pub(crate) fn on_nmi<K: Kernel>(profiler: &Instance<K>, at: &impl Interrupted) -> Outcome {
    // `None`: before `init`, or a CPU that `init` was not told of, or the trigger `published`, which uses no NMIs.
    let Some(slot) = profiler.shared.ready.nmi_slot(profiler.kernel.cpu()) else { return not_ours() };
    if progress::enter(slot) { profiler.tick(slot, at, Direct) } else { inside(slot) }
}

impl<K: Kernel> Instance<K> {
    /// Takes a tick that the CPU's own timer causes. The tick is numbered after the handler has been entered, so that
    /// `stop`, which waits for handlers, waits for it.
    pub(crate) fn timer_tick<M: Memory>(&self, slot: &'static CpuSlot, at: &Registers, memory: M) -> Outcome {
        if !progress::enter(slot) {
            return inside(slot);
        }
        fence(Ordering::SeqCst);
        if self.shared.state() != State::Running {
            progress::leave_untaken(slot);
            return Outcome::Foreign;
        }
        slot.sampler.tick.fetch_add(1, Ordering::Relaxed);
        any(Tick { profiler: self, slot, memory }, at)
    }

    /// Takes the tick, handles it, and leaves.
    #[inline(always)]
    fn tick<M: Memory>(&self, slot: &'static CpuSlot, at: &impl Interrupted, memory: M) -> Outcome {
        let tick = Tick { profiler: self, slot, memory };
        match progress::one(slot) {
            Some(number) if !number.is_multiple_of(TICKS_A_MEASUREMENT) => {
                progress::take_one(slot);
                tick.sample(with_halted(slot, number), at, leave)
            }
            _ => rare(tick, at),
        }
    }
}

/// Handles a tick that is measured, or several at once, or none. (A separate function, so that the usual path contains
/// no call: it leaves this way and the other rare ones by a jump at its end, and does not have to align the stack.)
#[inline(never)]
fn rare<K: Kernel, M: Memory>(tick: Tick<'_, K, M>, at: &impl Interrupted) -> Outcome {
    any(tick, &at.registers())
}

/// Handles whatever ticks there are. This takes a copy of the registers, so that the program contains it once.
#[inline(never)]
fn any<K: Kernel, M: Memory>(tick: Tick<'_, K, M>, at: &Registers) -> Outcome {
    let Some(number) = progress::take_newest(tick.slot) else { return leave(tick.slot, without_tick(tick.slot)) };
    let start = number.is_multiple_of(TICKS_A_MEASUREMENT).then(|| Start::now(tick.slot));
    tick.sample(with_halted(tick.slot, number), at, move |slot, outcome| {
        if let Some(start) = start {
            start.end(slot);
        }
        leave(slot, outcome)
    })
}

/// The number of a tick among all that were sent to the CPU. Ticks that found the CPU halted are sent and taken too,
/// and no handler has counted them.
#[inline(always)]
fn with_halted(slot: &CpuSlot, number: u64) -> u64 {
    number.wrapping_add(slot.sampler.halted.get())
}

/// Enters the handler, takes the pending tick, and runs `work` with its number.
pub fn with_tick(slot: &CpuSlot, work: impl FnOnce(u64) -> Outcome) -> Outcome {
    if !progress::enter(slot) {
        return Outcome::Foreign;
    }
    let outcome = progress::take_newest(slot).map_or(Outcome::Foreign, work);
    leave(slot, outcome)
}

/// The answer to an NMI of which the profiler knows nothing. (A separate function, so that the usual path has no result
/// to prepare.)
#[cold]
#[inline(never)]
fn not_ours() -> Outcome {
    Outcome::Foreign
}

/// An NMI that arrived inside a handler of this CPU.
#[cold]
#[inline(never)]
fn inside(slot: &CpuSlot) -> Outcome {
    if progress::take_inside(slot).is_none() {
        return without_tick(slot);
    }
    slot.handler.counters.lost_nested.fetch_add(1);
    Outcome::Lost
}

/// An NMI for which no tick is left.
#[cold]
#[inline(never)]
fn without_tick(slot: &CpuSlot) -> Outcome {
    let counters = &slot.handler.counters;
    loop {
        let before = counters.spurious.get();
        if before >= counters.coalesced.get().wrapping_add(slot.sampler.resent.get()) {
            counters.foreign.fetch_add(1);
            return Outcome::Foreign;
        }
        // The loop repeats only if a nested NMI was counted here meanwhile, so at most as often as the bound above
        // allows.
        if counters.spurious.replace(before, before.wrapping_add(1)) {
            return Outcome::Spurious;
        }
    }
}

/// The last step of every handler that has entered.
#[inline(always)]
fn leave(slot: &CpuSlot, outcome: Outcome) -> Outcome {
    // Release: whoever sees that no handler runs sees everything that was counted.
    fence(Ordering::Release);
    progress::leave(slot);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quiet::Quiet;

    #[test]
    fn a_sample_from_outside_takes_the_tick_once_and_never_inside_another_one() {
        let slot = CpuSlot::new();
        slot.raise_tick();
        let outcome = with_tick(&slot, |number| {
            assert_eq!(number, 1);
            assert_eq!(with_tick(&slot, |_| panic!("entered twice")), Outcome::Foreign);
            Outcome::Sampled
        });
        assert_eq!((outcome, slot.in_handler()), (Outcome::Sampled, false));
        assert_eq!(with_tick(&slot, |_| panic!("there is no tick")), Outcome::Foreign);
        assert!(!slot.in_handler());
    }

    #[test]
    fn a_timer_that_comes_just_after_a_stop_sends_no_tick_and_leaves_the_handler() {
        static SLOT: CpuSlot = CpuSlot::new();
        static INSTANCE: Instance<Quiet> = Instance { kernel: Quiet::new(), shared: crate::shared::Shared::new() };
        let at = Registers { pc: 1, sp: 0, fp: 0, link: 0, from_user: false, interrupts_on: true };
        assert_eq!(INSTANCE.shared.state(), State::Stopped);
        assert_eq!(INSTANCE.timer_tick(&SLOT, &at, Direct), Outcome::Foreign);
        assert_eq!((SLOT.sampler.tick.load(Ordering::Relaxed), SLOT.in_handler()), (0, false));
        assert_eq!(SLOT.handler.counters.taken.get(), 0);
    }
}
