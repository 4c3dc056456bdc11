//! One tick on one sampled CPU: count it, filter it, walk straight into the ring, publish.
//!
//! In: the interrupted registers. Out: a record in this CPU's ring, or a counted reason why not. Context: NMI on the
//! sampled CPU. No lock, no allocation, no page fault, no print, no unbounded loop.
//!
//! Nested: an NMI that comes while this CPU's handler is at work (after an `int3` or a page fault in it has let NMIs in
//! again) touches nothing but one flag; the handler that it interrupted then counts its tick as lost. So every counter
//! has one writer. Full ring: the record is not begun, the tick counts as lost.

use crate::format::marker::Facts;
use crate::format::record::{Kind, MAX_WORDS};
use crate::hooks::{Kernel, NmiToken, Outcome, Registers};
use crate::profiler::{Profiler, Settings, State};
use crate::ring::{Full, Ring, Sink};
use crate::slot::CpuSlot;
use crate::unwind::{Memory, Walk, Walked};
use crate::x86_64::{memory::Direct, tsc};
use core::sync::atomic::{Ordering, compiler_fence, fence};

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
        self.enter(cpu, |slot| self.tick(slot, at, memory))
    }

    /// A tick that the CPU gives itself: numbered inside the handler, where `stop` waits for it.
    pub(crate) fn own_tick_on<M: Memory>(&self, cpu: usize, at: &Registers, memory: M) -> Outcome {
        self.enter(cpu, |slot| {
            fence(Ordering::SeqCst);
            if self.state() != State::Running {
                return Outcome::Foreign;
            }
            slot.sampler.tick.fetch_add(1, Ordering::Relaxed);
            self.tick(slot, at, memory)
        })
    }

    /// Lets one level of handler in.
    #[inline(always)]
    fn enter(&self, cpu: usize, work: impl FnOnce(&CpuSlot) -> Outcome) -> Outcome {
        let Some(slot) = self.slots().get(cpu) else { return Outcome::Foreign };
        let part = &slot.handler;
        let sequence = part.sequence.load(Ordering::Relaxed);
        if sequence & 1 == 1 {
            part.nested.store(true, Ordering::Relaxed);
            return Outcome::Lost;
        }
        part.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let outcome = work(slot);
        part.sequence.store(sequence + 2, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        if part.nested.load(Ordering::Relaxed) {
            settle_nested(slot);
        }
        outcome
    }

    #[inline(always)]
    fn tick<M: Memory>(&self, slot: &CpuSlot, at: &Registers, memory: M) -> Outcome {
        let counters = &slot.handler.counters;
        // Acquire: what the sampler set up before it raised the number is seen.
        let newest = slot.sampler.tick.load(Ordering::Acquire);
        let seen = slot.handler.seen.get();
        if newest == seen {
            counters.repeat.add(1);
            return Outcome::Foreign;
        }
        let start = tsc::read();
        slot.handler.seen.set(newest);
        counters.taken.add(1);
        if newest - seen > 1 {
            counters.merged.add(newest - seen - 1);
        }
        let outcome = self.sample(slot, at, memory, newest, start);
        if newest.is_multiple_of(MEASURED) {
            counters.own_tsc.add(tsc::read().wrapping_sub(start).wrapping_mul(MEASURED));
            counters.own_samples.add(1);
        }
        outcome
    }

    /// Filters, walks, publishes.
    #[inline(always)]
    fn sample<M: Memory>(&self, slot: &CpuSlot, at: &Registers, memory: M, tick: u64, start: u64) -> Outcome {
        let counters = &slot.handler.counters;
        let settings = self.settings();
        let user = at.cs & 3 == 3;
        if user && !settings.keep_user() {
            counters.user.add(1);
            return Outcome::LeftOut;
        }
        let context = self.kernel().context();
        let idle = context.idle && !user;
        // An interrupt served on an idle core is not idle; only the walk knows, and a full ring must not make it a loss.
        if idle && !settings.keep_idle() {
            let mut nowhere = Sink::discard(&slot.handler.scratch);
            let walked = self.walk(&mut nowhere, at, memory, settings, Facts(0));
            if !matches!(walked, Ok(Walked { in_interrupt: true })) {
                counters.idle.add(1);
                return Outcome::LeftOut;
            }
        }
        let Some(ring) = slot.ring.get() else {
            counters.lost_full.add(1);
            return Outcome::Lost;
        };
        let mut sink = if settings.overwrites() {
            let (sink, overwritten) = ring.room_by_force(settings.most_words());
            counters.overwritten.add(overwritten);
            sink
        } else {
            ring.room()
        };
        let facts =
            Facts((u8::from(at.rflags & 1 << 9 == 0) * Facts::INTERRUPTS_OFF) | (u8::from(context.idle) * Facts::IDLE));
        let header = [0, ring.head(), tick, start, context.id];
        let walked = header
            .into_iter()
            .try_for_each(|word| sink.push(word))
            .and_then(|()| self.walk(&mut sink, at, memory, settings, facts));
        let Ok(walked) = walked else { return lost(slot, ring) };
        if sink.words() > MAX_WORDS {
            counters.lost_large.add(1);
            return Outcome::Lost;
        }
        ring.publish(Kind::Sample, sink.words());
        counters.recorded.add(1);
        let kind = match (user, walked.in_interrupt, idle, facts.has(Facts::INTERRUPTS_OFF)) {
            (true, ..) => &counters.kept_user,
            (_, true, ..) => &counters.interrupt,
            (_, _, true, _) => &counters.kept_idle,
            (_, _, _, true) => &counters.irq_off,
            _ => &counters.irq_on,
        };
        kind.add(1);
        Outcome::Sampled
    }

    #[inline(always)]
    fn walk<M: Memory>(
        &self,
        sink: &mut Sink<'_>,
        at: &Registers,
        memory: M,
        settings: Settings,
        facts: Facts,
    ) -> Result<Walked, Full> {
        let walk = Walk {
            kernel: self.kernel(),
            memory,
            text: self.text(),
            sink,
            frames_left: settings.depth(),
            user_frames: settings.keep_user(),
            in_interrupt: false,
        };
        walk.run(at, facts)
    }
}

/// The ring had no room: by its fill, or because it could never hold that much.
#[cold]
fn lost(slot: &CpuSlot, ring: &Ring) -> Outcome {
    let counters = &slot.handler.counters;
    let lost = if ring.head() == ring.tail() { &counters.lost_large } else { &counters.lost_full };
    lost.add(1);
    Outcome::Lost
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
