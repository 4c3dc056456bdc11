//! One tick on one sampled CPU: count it, filter it, walk straight into the ring, publish.
//!
//! In: the interrupted registers. Out: a record in this CPU's ring, or a counted reason why not. Context: NMI on the
//! sampled CPU. No lock, no allocation, no page fault, no print, no unbounded loop.
//!
//! Nested: an NMI that comes while this CPU's handler is at work (after an `int3` or a page fault in it has let NMIs in
//! again) touches nothing but one flag; the handler that it interrupted then counts its tick as lost. So every counter
//! has one writer. Full ring: the record is not begun, the tick counts as lost.

use crate::format::marker::{Facts, Marker};
use crate::format::record::{Kind, SAMPLE_HEADER_WORDS};
use crate::hooks::{Context, Kernel, NmiToken, Outcome, Registers};
use crate::profiler::{Profiler, State};
use crate::ring::{Ring, Sink};
use crate::slot::CpuSlot;
use crate::unwind::{self, Memory, ROUND, Run, Stacks, Walk};
use crate::x86_64::{memory::Direct, tsc};
use core::ops::Range;
use core::sync::atomic::{Ordering, compiler_fence, fence};

/// Bit 9 of RFLAGS: interrupts are on.
const INTERRUPT_FLAG: u64 = 1 << 9;
/// One tick in this many has its cost measured.
const MEASURED: u64 = 64;
/// Places before the first caller: header, first address, facts.
const HEADER_PLACES: usize = SAMPLE_HEADER_WORDS + 2;
/// Rounds in which a handler looks for ticks of NMIs nested in it; what comes later waits for the next NMI.
const NESTED_ROUNDS: usize = 4;

/// One tick being handled. Number and TSC stand in the slot, not here: what is live during the walk would cost the hot
/// path its registers.
struct Tick<'a, K: Kernel, M> {
    profiler: &'a Profiler<K>,
    slot: &'a CpuSlot,
    text: (u64, u64),
    memory: M,
}

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

impl<K: Kernel, M: Memory> Tick<'_, K, M> {
    /// Filters, walks, publishes. What is rare goes to `careful`; both come to the same record.
    #[inline(always)]
    fn sample(self, at: &Registers) -> Outcome {
        let context = self.profiler.kernel().context();
        if at.cs & 3 == 3 {
            return self.user(at, context);
        }
        let (Some(ring), settings) = (self.slot.ring.get(), self.profiler.settings()) else {
            return lost(self.slot, None);
        };
        // Room for everything a walk can have here, side by side: nothing needs to be checked on the way.
        let rounds = settings.rounds();
        let (head, Some(places)) = ring.places(HEADER_PLACES + rounds * ROUND) else {
            return self.careful(at, context);
        };
        if context.idle | settings.overwrites() {
            return self.careful(at, context);
        }
        let facts = interrupts_off(at);
        let part = &self.slot.handler;
        let facts_word = Marker::Facts(Facts(facts)).encode();
        let words = [head, part.seen.get(), part.started_tsc.get(), context.id, at.rip, facts_word];
        for (place, word) in places[1..HEADER_PLACES].iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        // With interrupts on there are no facts, and the first caller takes that place.
        let length = HEADER_PLACES - 1 + usize::from(facts);
        let frames = &places[length..];
        let plain = unwind::innermost(self.profiler.kernel(), self.memory, self.text, at, frames.as_chunks().0);
        let Some((run, range)) = plain else { return self.careful(at, context) };
        if !run.at_root(self.memory) {
            return self.finish(at, length, (run, range));
        }
        ring.publish_at(head, &places[0], Kind::Sample, length + run.taken);
        self.recorded(at, false, false)
    }

    /// A walk that began plainly and met a border or something special.
    #[inline(never)]
    fn finish(self, at: &Registers, length: usize, (run, range): (Run, Range<u64>)) -> Outcome {
        let Some(ring) = self.slot.ring.get() else { return lost(self.slot, None) };
        let settings = self.profiler.settings();
        if !settings.keep_user()
            && run.taken + 1 < settings.depth()
            && let Some((marker, rip, is_interrupt)) = run.entry_from_user(self.memory, &range)
            && let words = length + run.taken + 3
            && let (head, Some(places)) = ring.places(words)
        {
            for (place, word) in places[words - 3..].iter().zip([marker, Marker::User.encode(), rip]) {
                place.store(word, Ordering::Relaxed);
            }
            ring.publish_at(head, &places[0], Kind::Sample, words);
            return self.recorded(at, is_interrupt, false);
        }
        let mut walk = self.walk(ring.room());
        walk.sink.advance(length);
        if walk.finish(&run, range).is_err() {
            return lost(self.slot, Some(ring));
        }
        ring.publish(Kind::Sample, walk.sink.words());
        self.recorded(at, walk.in_interrupt, false)
    }

    #[inline(never)]
    fn user(self, at: &Registers, context: Context) -> Outcome {
        if !self.profiler.settings().keep_user() {
            self.slot.handler.counters.user.add(1);
            return Outcome::LeftOut;
        }
        self.careful(at, context)
    }

    /// Everything, step by step: user and idle samples, overwrite mode, the physical end of the ring, prologues.
    #[inline(never)]
    fn careful(self, at: &Registers, context: Context) -> Outcome {
        let (counters, settings) = (&self.slot.handler.counters, self.profiler.settings());
        let idle = context.idle && at.cs & 3 == 0;
        // An interrupt served on an idle core is not idle; only the walk knows, and a full ring must not make it a loss.
        if idle && !settings.keep_idle() && !self.in_interrupt(at) {
            counters.idle.add(1);
            return Outcome::LeftOut;
        }
        let Some(ring) = self.slot.ring.get() else { return lost(self.slot, None) };
        let sink = if settings.overwrites() {
            let (sink, overwritten) = ring.room_by_force(settings.most_words());
            counters.overwritten.add(overwritten);
            sink
        } else {
            ring.room()
        };
        let mut walk = self.walk(sink);
        let facts = Facts(interrupts_off(at) | (u8::from(context.idle) * Facts::IDLE));
        let part = &self.slot.handler;
        let header = [0, ring.head(), part.seen.get(), part.started_tsc.get(), context.id, at.rip];
        let facts = (facts.0 != 0).then_some(Marker::Facts(facts).encode());
        let begun = header.into_iter().chain(facts).try_for_each(|word| walk.sink.push(word));
        if begun.and_then(|()| walk.run(at)).is_err() {
            return lost(self.slot, Some(ring));
        }
        ring.publish(Kind::Sample, walk.sink.words());
        self.recorded(at, walk.in_interrupt, idle)
    }

    /// Counts a published sample, by kind.
    #[inline(always)]
    fn recorded(&self, at: &Registers, in_interrupt: bool, idle: bool) -> Outcome {
        let counters = &self.slot.handler.counters;
        counters.recorded.add(1);
        let kind = match (at.cs & 3, in_interrupt, idle, interrupts_off(at)) {
            (3, ..) => &counters.kept_user,
            (_, true, ..) => &counters.interrupt,
            (_, _, true, _) => &counters.kept_idle,
            (.., 0) => &counters.irq_on,
            _ => &counters.irq_off,
        };
        kind.add(1);
        Outcome::Sampled
    }

    /// Whether the stack of an idle context passes an interrupt entry.
    fn in_interrupt(&self, at: &Registers) -> bool {
        let mut walk = self.walk(Sink::discard(&self.slot.handler.scratch));
        walk.run(at).is_ok() && walk.in_interrupt
    }

    fn walk<'r>(&self, sink: Sink<'r>) -> Walk<'_, 'r, K, M> {
        let settings = self.profiler.settings();
        Walk {
            kernel: self.profiler.kernel(),
            memory: self.memory,
            text: self.text,
            sink,
            // The interrupted instruction is the first frame.
            frames_left: settings.depth() - 1,
            stacks: Stacks::new(),
            user_frames: settings.keep_user(),
            in_interrupt: false,
        }
    }
}

/// Adds the time since the handler began to its own cost, for this tick and those that are not measured.
#[cold]
fn measure(slot: &CpuSlot) {
    let spent = tsc::read().wrapping_sub(slot.handler.started_tsc.get());
    slot.handler.counters.own_tsc.add(spent.wrapping_mul(MEASURED));
    slot.handler.counters.own_samples.add(1);
}

/// Bit 0 of the sample's facts.
#[inline(always)]
fn interrupts_off(at: &Registers) -> u8 {
    u8::from(at.rflags & INTERRUPT_FLAG == 0) * Facts::INTERRUPTS_OFF
}

/// The ring had no room: by its fill, or because it could never hold that much.
#[cold]
fn lost(slot: &CpuSlot, ring: Option<&Ring>) -> Outcome {
    let counters = &slot.handler.counters;
    let empty = ring.is_some_and(|ring| ring.head() == ring.tail());
    let lost = if empty { &counters.lost_large } else { &counters.lost_full };
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
