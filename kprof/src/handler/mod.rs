//! One tick on one sampled CPU: count it, filter it, walk straight into the ring, publish.
//!
//! In: the interrupted registers. Out: a record in this CPU's ring, or a counted reason why not. Context: NMI on the
//! sampled CPU. No lock, no allocation, no page fault, no print, no unbounded loop.
//!
//! Nested: an NMI that comes while this CPU's handler is at work (after an `int3` or a page fault in it has let NMIs in
//! again) touches nothing but one flag; the handler that it interrupted then counts its tick as lost. So every counter
//! has one writer. Full ring: the record is not begun, the tick counts as lost.

mod sample;

use crate::hooks::{Kernel, NmiToken, Outcome, Registers};
use crate::profiler::Profiler;
use crate::settings::State;
use crate::slot::CpuSlot;
use crate::unwind::Memory;
use crate::x86_64::{memory::Direct, tsc};
use core::sync::atomic::{Ordering, compiler_fence, fence};
use sample::Tick;

/// One tick in this many has its cost measured.
const MEASURED: u64 = 64;
/// Rounds in which a handler looks for ticks of NMIs nested in it; what comes later waits for the next NMI.
const NESTED_ROUNDS: usize = 4;

impl<K: Kernel> Profiler<K> {
    /// The handler: to be called by the NMI entry (with [`crate::Way::Ipi`], by that interrupt's entry) with what it
    /// interrupted.
    ///
    /// [`Outcome::Foreign`] means that no tick was waiting: the NMI came from somebody else.
    #[inline]
    pub fn on_nmi(&self, _token: &NmiToken, at: &Registers) -> Outcome {
        self.tick_on(self.kernel().cpu(), at, Direct)
    }

    /// The same for any CPU number and memory.
    #[inline(always)]
    pub(crate) fn tick_on<M: Memory>(&self, cpu: usize, at: &Registers, memory: M) -> Outcome {
        self.enter(cpu, |slot, text| self.tick(slot, text, at, memory))
    }

    /// A tick that the CPU gives itself: numbered inside the handler, where `stop` waits for it.
    pub(crate) fn own_tick_on<M: Memory>(&self, cpu: usize, at: &Registers, memory: M) -> Outcome {
        self.enter(cpu, |slot, text| {
            fence(Ordering::SeqCst);
            if self.state() != State::Running {
                return Outcome::Foreign;
            }
            slot.sampler.tick.fetch_add(1, Ordering::Relaxed);
            self.tick(slot, text, at, memory)
        })
    }

    /// Lets one level of handler in.
    #[inline(always)]
    pub(crate) fn enter(&self, cpu: usize, work: impl FnOnce(&CpuSlot, (u64, u64)) -> Outcome) -> Outcome {
        let Some(ready) = self.ready() else { return Outcome::Foreign };
        let Some(slot) = ready.slots.get(cpu) else { return Outcome::Foreign };
        let part = &slot.handler;
        let sequence = part.sequence.load(Ordering::Relaxed);
        if sequence & 1 == 1 {
            part.nested.store(true, Ordering::Relaxed);
            return Outcome::Lost;
        }
        part.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let outcome = work(slot, ready.config.text);
        part.sequence.store(part.sequence.load(Ordering::Relaxed) + 1, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        if part.nested.load(Ordering::Relaxed) {
            settle_nested(slot);
        }
        outcome
    }

    #[inline(always)]
    fn tick<M: Memory>(&self, slot: &CpuSlot, text: (u64, u64), at: &Registers, memory: M) -> Outcome {
        let counters = &slot.handler.counters;
        // Acquire: what the sampler set up before it raised the number is seen.
        let number = slot.sampler.tick.load(Ordering::Acquire);
        let seen = slot.handler.seen.get();
        if number == seen {
            counters.repeat.add(1);
            return Outcome::Foreign;
        }
        slot.handler.started_tsc.set(tsc::read());
        slot.handler.seen.set(number);
        counters.taken.add(1);
        if number - seen > 1 {
            counters.merged.add(number - seen - 1);
        }
        let outcome = Tick { profiler: self, slot, text, memory }.sample(at);
        if slot.handler.seen.get().is_multiple_of(MEASURED) {
            measure(slot);
        }
        outcome
    }
}

/// Adds the time since the handler began to its own cost, for this tick and those that are not measured.
#[cold]
fn measure(slot: &CpuSlot) {
    let spent = tsc::read().wrapping_sub(slot.handler.started_tsc.get());
    slot.handler.counters.own_tsc.add(spent.wrapping_mul(MEASURED));
    slot.handler.counters.own_samples.add(1);
}

/// Counts the ticks of NMIs that came inside the handler. Runs as a handler of its own, so that what nests in it waits.
#[cold]
fn settle_nested(slot: &CpuSlot) {
    let part = &slot.handler;
    for _ in 0..NESTED_ROUNDS {
        if !part.nested.load(Ordering::Relaxed) {
            return;
        }
        let sequence = part.sequence.load(Ordering::Relaxed);
        part.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        part.nested.store(false, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let (newest, seen) = (slot.sampler.tick.load(Ordering::Acquire), part.seen.get());
        if newest != seen {
            part.seen.set(newest);
            part.counters.taken.add(1);
            part.counters.merged.add(newest - seen - 1);
            part.counters.lost_nested.add(1);
        }
        part.sequence.store(sequence + 2, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }
}
