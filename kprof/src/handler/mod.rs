//! One tick on one sampled CPU: count it, filter it, walk straight into the ring, publish.
//!
//! In: the interrupted registers. Out: a record in this CPU's ring, or a counted reason why not. Context: NMI on the
//! sampled CPU. No lock, no allocation, no page fault, no print, no unbounded loop.
//!
//! Nested: an NMI that comes while this CPU's handler is at work (after an `int3` or a page fault in it has let NMIs in
//! again) touches nothing but one flag; the handler that it interrupted then counts its tick as lost. So every counter
//! has one writer. Full ring: nothing is published, the tick counts as lost.

mod sample;

use crate::kernel::{Interrupted, Kernel, Outcome, Registers};
use crate::profiler::Profiler;
use crate::state::settings::State;
use crate::state::slot::CpuSlot;
use crate::unwind::Memory;
use crate::x86_64::{memory::Direct, tsc};
use core::hint;
use core::sync::atomic::{Ordering, compiler_fence, fence};
use sample::Tick;

/// One tick in this many has its cost measured.
const MEASURED: u64 = 64;
/// Rounds in which a handler looks for ticks of NMIs nested in it; what comes later waits for the next NMI.
const NESTED_ROUNDS: usize = 4;

/// The handler.
#[inline(always)]
pub(crate) fn on_nmi<K: Kernel>(profiler: &Profiler<K>, at: &impl Interrupted) -> Outcome {
    profiler.tick_on(profiler.kernel.cpu(), at, Direct)
}

impl<K: Kernel> Profiler<K> {
    /// One tick for any CPU number and memory.
    #[inline(always)]
    pub(crate) fn tick_on<M: Memory>(&self, cpu: usize, at: &impl Interrupted, memory: M) -> Outcome {
        match self.begin(cpu) {
            Ok(slot) => self.tick(slot, at, memory),
            Err(outcome) => outcome,
        }
    }

    /// A tick that the CPU gives itself: numbered inside the handler, where `stop` waits for it.
    pub(crate) fn own_tick_on<M: Memory>(&self, cpu: usize, at: &Registers, memory: M) -> Outcome {
        let slot = match self.begin(cpu) {
            Ok(slot) => slot,
            Err(outcome) => return outcome,
        };
        fence(Ordering::SeqCst);
        if self.shared.state() != State::Running {
            return leave(slot, Outcome::Foreign);
        }
        slot.sampler.tick.fetch_add(1, Ordering::Relaxed);
        self.tick(slot, at, memory)
    }

    /// Lets one level of handler in; it must `leave`.
    #[inline(always)]
    pub(crate) fn begin(&self, cpu: usize) -> Result<&'static CpuSlot, Outcome> {
        let Some(slot) = self.shared.ready.slot(cpu) else { return Err(unknown_cpu()) };
        let part = &slot.handler;
        if part.sequence.get() & 1 == 1 {
            return Err(nested_in(slot));
        }
        part.sequence.add(1);
        fence(Ordering::Release);
        Ok(slot)
    }

    /// Takes the tick, and leaves.
    #[inline(always)]
    fn tick<M: Memory>(&self, slot: &'static CpuSlot, at: &impl Interrupted, memory: M) -> Outcome {
        let part = &slot.handler;
        // Acquire: what the sampler set up before it raised the number is seen.
        let number = slot.sampler.tick.load(Ordering::Acquire);
        let seen = part.seen.get();
        if number != seen + 1 {
            hint::cold_path();
            if number == seen {
                part.counters.repeat.add(1);
                return leave(slot, Outcome::Foreign);
            }
            part.counters.merged.add(number - seen - 1);
        }
        part.seen.set(number);
        part.counters.taken.add(1);
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
        counters.own_tsc.add(tsc::read().wrapping_sub(start).wrapping_mul(MEASURED));
        counters.own_samples.add(1);
        leave(slot, outcome)
    })
}

/// Before `init`, or a CPU that it did not hear of. (Apart, so that the usual way has no result to prepare.)
#[cold]
#[inline(never)]
fn unknown_cpu() -> Outcome {
    Outcome::Foreign
}

/// Leaves a note for the handler that was interrupted.
#[cold]
#[inline(never)]
fn nested_in(slot: &CpuSlot) -> Outcome {
    slot.handler.nested.set(1);
    Outcome::Lost
}

/// The end of every handler that `begin` let in.
#[inline(always)]
pub(crate) fn leave(slot: &CpuSlot, outcome: Outcome) -> Outcome {
    let part = &slot.handler;
    // Release: who sees the even number sees all that was counted.
    part.sequence.add_release(1);
    compiler_fence(Ordering::SeqCst);
    if part.nested.get() != 0 { settle_nested(slot, outcome) } else { outcome }
}

/// Counts the ticks of NMIs that came inside the handler. Runs as a handler of its own, so that what nests in it waits.
#[cold]
fn settle_nested(slot: &CpuSlot, outcome: Outcome) -> Outcome {
    let part = &slot.handler;
    for _ in 0..NESTED_ROUNDS {
        if part.nested.get() == 0 {
            break;
        }
        part.sequence.add(1);
        fence(Ordering::Release);
        part.nested.set(0);
        compiler_fence(Ordering::SeqCst);
        let (newest, seen) = (slot.sampler.tick.load(Ordering::Acquire), part.seen.get());
        if newest != seen {
            part.seen.set(newest);
            part.counters.taken.add(1);
            part.counters.merged.add(newest - seen - 1);
            part.counters.lost_nested.add(1);
        }
        part.sequence.add_release(1);
        compiler_fence(Ordering::SeqCst);
    }
    outcome
}
