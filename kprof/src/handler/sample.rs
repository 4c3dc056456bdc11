//! From a tick to a record: filter, walk straight into the ring, publish.
//!
//! In: the interrupted registers. Out: a record, or a counted reason why not. Context: NMI. The usual sample (kernel code,
//! a plain stack, room in the ring, drop mode) takes the short way; everything else takes the careful one. Both come to
//! the same words: the unwinder's tests walk each stack both ways.

use crate::format::marker::{Facts, Marker};
use crate::format::record::{Kind, SAMPLE_HEADER_WORDS};
use crate::hooks::{Context, Kernel, Outcome, Registers};
use crate::profiler::Profiler;
use crate::ring::{Ring, Sink};
use crate::slot::CpuSlot;
use crate::unwind::{self, Memory, ROUND, Run, Stacks, Walk};
use core::ops::Range;
use core::sync::atomic::Ordering;

/// Bit 9 of RFLAGS: interrupts are on.
const INTERRUPT_FLAG: u64 = 1 << 9;
/// Places before the first caller: header, first address, facts.
const HEADER_PLACES: usize = SAMPLE_HEADER_WORDS + 2;

/// One tick being handled. Number and TSC stand in the slot, not here: what is live during the walk would cost the hot
/// path its registers.
pub(super) struct Tick<'a, K: Kernel, M> {
    pub(super) profiler: &'a Profiler<K>,
    pub(super) slot: &'a CpuSlot,
    pub(super) text: (u64, u64),
    pub(super) memory: M,
}

impl<K: Kernel, M: Memory> Tick<'_, K, M> {
    /// Filters, walks, publishes. What is rare goes to `careful`; both come to the same record.
    #[inline(always)]
    pub(super) fn sample(self, at: &Registers) -> Outcome {
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
