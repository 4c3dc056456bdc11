//! One tick on one sampled CPU: count it, filter it, walk straight into the ring, publish.
//!
//! In: the interrupted registers. Out: a record in this CPU's ring, or a counted reason why not. Runs in: NMI on the
//! sampled CPU. No lock, no allocation, no page fault, no print, no unbounded loop.
//!
//! An NMI that comes while this CPU's handler is at work (after an `int3` or a page fault in it has let NMIs in again)
//! takes a tick of its own, if there is one, and counts it as lost; it touches neither the ring nor what the handler is
//! about (`progress`). Full ring: nothing is published, the tick counts as lost.
//!
//! An NMI without a tick is the profiler's where a tick was coalesced with an earlier one before, or signalled again:
//! as often as that happened. Beyond that it is somebody else's, and the kernel is told so.
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

mod progress;
mod sample;

use crate::kernel::{Interrupted, Kernel, Outcome, Registers};
use crate::state::Instance;
use crate::state::settings::State;
use crate::state::slot::CpuSlot;
use crate::unwind::Memory;
use crate::x86_64::{memory::Direct, tsc};
use core::sync::atomic::{Ordering, fence};
use sample::Tick;

/// One tick in this many has its cost measured.
const MEASURED: u64 = 64;

/// The handler. With [`crate::Trigger::Published`] every NMI comes from somebody else.
#[inline(always)]
pub(crate) fn on_nmi<K: Kernel>(profiler: &Instance<K>, at: &impl Interrupted) -> Outcome {
    // Before `init`, a CPU that it did not hear of, or none of the profiler's NMIs.
    let Some(slot) = profiler.shared.ready.nmi_slot(profiler.kernel.cpu()) else { return not_ours() };
    if progress::enter(slot) { profiler.tick(slot, at, Direct) } else { inside(slot) }
}

impl<K: Kernel> Instance<K> {
    /// A tick that the CPU gives itself: numbered inside the handler, where `stop` waits for it.
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
        self.tick(slot, at, memory)
    }

    /// Takes the tick, and leaves.
    #[inline(always)]
    fn tick<M: Memory>(&self, slot: &'static CpuSlot, at: &impl Interrupted, memory: M) -> Outcome {
        // Each branch by itself: an answer that both give would have to be looked at again.
        let number = if let Some(number) = progress::one(slot) {
            progress::take_one(slot);
            number
        } else {
            let Some(number) = progress::take_newest(slot) else { return leave(slot, without_tick(slot)) };
            number
        };
        let tick = Tick { profiler: self, slot, memory };
        if number.is_multiple_of(MEASURED) { measured(tick, number, at) } else { tick.sample(number, at, leave) }
    }
}

/// A tick whose time is added to the handler's own cost, for itself and those that are not measured.
#[inline(never)]
fn measured<K: Kernel, M: Memory>(tick: Tick<'_, K, M>, number: u64, at: &impl Interrupted) -> Outcome {
    let start = tsc::read();
    tick.sample(number, at, move |slot, outcome| {
        let counters = &slot.handler.counters;
        // A clock that has jumped backwards (resume from sleep) says nothing about this tick. The product cannot wrap:
        // 2^58 TSC ticks are more than a year at 8 GHz.
        counters.self_tsc.add(tsc::read().saturating_sub(start).wrapping_mul(MEASURED));
        counters.self_samples.add(1);
        leave(slot, outcome)
    })
}

/// Lets in who takes the tick that is there, and runs `work` with its number.
pub(crate) fn look(slot: &CpuSlot, work: impl FnOnce(u64) -> Outcome) -> Outcome {
    if !progress::enter(slot) {
        return Outcome::Foreign;
    }
    let outcome = progress::take_newest(slot).map_or(Outcome::Foreign, work);
    leave(slot, outcome)
}

/// (Apart, so that the usual way has no result to prepare.)
#[cold]
#[inline(never)]
fn not_ours() -> Outcome {
    Outcome::Foreign
}

/// An NMI that came inside a handler of this CPU.
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
        // Another round only after an NMI inside has been counted here: as many as the bound above allows.
        if counters.spurious.replace(before, before.wrapping_add(1)) {
            return Outcome::Spurious;
        }
    }
}

/// The end of every handler that was let in.
#[inline(always)]
fn leave(slot: &CpuSlot, outcome: Outcome) -> Outcome {
    // Release: who sees that nobody is at work sees all that was counted.
    fence(Ordering::Release);
    progress::leave(slot);
    outcome
}
