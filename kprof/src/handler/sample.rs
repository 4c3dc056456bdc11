//! Turns a tick into a record: filters, walks the stack into the ring, publishes.
//!
//! In: the interrupted registers. Out: a record, or a counted reason why not. Runs in: NMI. The usual sample (kernel
//! code, an ordinary stack, free space in the ring, drop mode) takes the fast path; everything else takes the slow
//! path. Both write the same record: the unwinder's tests walk each stack on both paths and compare. `in_user_code` has
//! the part of the fast path that reads a program's memory.

use crate::arch::timestamp;
use crate::errors::MAX_DEPTH;
use crate::format::marker::{Facts, Marker};
use crate::format::record::{Kind, SampleHeader};
use crate::kernel::{Interrupted, Kernel, Outcome, Registers};
use crate::ring::Sink;
use crate::shared::Instance;
use crate::slot::CpuSlot;
use crate::unwind::{self, Cursor, MAX_SCANNED, Memory, ROUND, Stacks, Walk, user_word};
use core::sync::atomic::Ordering;

/// Words before the first caller: header and facts.
pub(super) const HEADER_PLACES: usize = SampleHeader::WORDS + 1;

/// The function that ends a handler.
pub(super) trait Leave: FnOnce(&CpuSlot, Outcome) -> Outcome {}
impl<F: FnOnce(&CpuSlot, Outcome) -> Outcome> Leave for F {}

/// A tick that is being handled.
pub(super) struct Tick<'a, K: Kernel, M> {
    pub(super) profiler: &'a Instance<K>,
    pub(super) slot: &'a CpuSlot,
    pub(super) memory: M,
}

// Passed by value: it is two pointers, which stay in registers then.
impl<K: Kernel, M: Memory> Clone for Tick<'_, K, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kernel, M: Memory> Copy for Tick<'_, K, M> {}

impl<K: Kernel, M: Memory> Tick<'_, K, M> {
    /// Filters, walks, publishes, leaves. Rare cases go to `slow_path`, which writes the same record. Each exit ends
    /// with `leave`, so that the rare exits are jumps and the usual one saves no registers for them.
    #[inline(always)]
    pub(super) fn sample(self, number: u64, interrupted: &impl Interrupted, leave: impl Leave) -> Outcome {
        // The registers are read again at each use: keeping them across the walk would spill the registers of the walk.
        if interrupted.is_from_user() {
            return Self::leave_by_user(interrupted, self, number, leave);
        }
        // The fast path follows frame pointers.
        if self.profiler.kernel.unwind_table().is_some() {
            return Self::leave_by_slow_path(interrupted, self, number, leave);
        }
        // Contiguous space for the longest walk on the fast path, so that nothing needs to be checked during the walk.
        // In overwrite mode this is always `None`.
        let more = self.profiler.shared.live.fast_path_rounds.get();
        let Some((head, reservation)) = self.slot.stream.ring.reserve::<HEADER_PLACES, ROUND>(more) else {
            return Self::leave_by_slow_path(interrupted, self, number, leave);
        };
        let task = self.profiler.kernel.task();
        if task.idle {
            return Self::leave_by_slow_path(interrupted, self, number, leave);
        }
        let facts = interrupts_off(interrupted);
        let facts_word = Marker::Facts(Facts::NONE).encode() | facts;
        let [header @ .., first_caller] = reservation.header();
        let SampleHeader { position, tick, tsc, task: task_id, address } = SampleHeader::places(header);
        position.store(head, Ordering::Relaxed);
        tick.store(number, Ordering::Relaxed);
        tsc.store(timestamp::read(), Ordering::Relaxed);
        task_id.store(task.id, Ordering::Relaxed);
        address.store(interrupted.registers().pc, Ordering::Relaxed);
        first_caller.store(facts_word, Ordering::Relaxed);
        // With interrupts on there are no facts, and the first caller is stored in their word instead.
        let frames = reservation.rounds((HEADER_PLACES - 1).wrapping_add(facts as usize));
        let text = &self.profiler.shared.ready.text;
        let kernel = &self.profiler.kernel;
        let cache = &self.slot.handler.frame_cache;
        let plain = unwind::innermost(kernel, self.memory, text, &interrupted.registers(), frames, cache);
        let Some(run) = plain else {
            // Read again: keeping it live across the walk would take a register.
            let number = tick.load(Ordering::Relaxed);
            return Self::leave_by_slow_path(interrupted, self, number, leave);
        };
        if !run.at_root() {
            let words = reservation.before(run.end);
            let from = (run.cursor, run.bounds);
            return match run.cursor.has_more() {
                true => Self::leave_by_going_on(interrupted, self, words, from, leave),
                false => Self::leave_by_finish(interrupted, self, words, from, leave),
            };
        }
        self.slot.stream.ring.publish_at(&header[0], Kind::Sample, reservation.before(run.end));
        let counters = &self.slot.handler.counters;
        counters.recorded.add(1);
        counters.irq(facts).add(1);
        leave(self.slot, Outcome::Sampled)
    }

    #[inline(never)]
    pub(super) fn leave_by_slow_path(
        interrupted: &impl Interrupted,
        tick: Self,
        number: u64,
        leave: impl Leave,
    ) -> Outcome {
        leave(tick.slot, tick.slow_path(number, &interrupted.registers()))
    }

    /// Finishes a walk that the fast path began, and that met a special case.
    #[inline(never)]
    pub(super) fn finish_walk(&self, interrupted: &impl Interrupted, words: usize, cursor: Cursor) -> Outcome {
        let at = &interrupted.registers();
        let frames = frames_of(words, interrupts_off(at));
        let mut walk = self.walk(self.slot.stream.ring.room());
        walk.sink.advance(words);
        walk.frames_left = walk.frames_left.saturating_sub(frames.wrapping_sub(1));
        walk.finish(cursor, at.sp);
        self.publish(at, &walk, false)
    }

    /// The slow path, which handles every case: user and idle samples, overwrite mode, the physical end of the ring,
    /// prologues.
    #[inline(never)]
    fn slow_path(&self, number: u64, at: &Registers) -> Outcome {
        let (counters, settings) = (&self.slot.handler.counters, self.profiler.shared.settings());
        let (task, user) = (self.profiler.kernel.task(), at.from_user);
        let pc = if user { user_word(at.pc) } else { at.pc };
        // An interrupt handler that runs on an idle core is not idle time, and only the walk can tell. The filter comes
        // before the ring is used, so that a filtered tick is not counted as lost when the ring is full.
        let idle = task.idle && !user && !self.in_interrupt(at);
        if idle && !settings.include_idle() {
            counters.idle.add(1);
            return Outcome::Filtered;
        }
        let ring = &self.slot.stream.ring;
        let sink = if settings.overwrites() {
            let (sink, overwritten) = ring.reserve_overwriting(settings.max_words());
            counters.overwritten.add(overwritten);
            sink
        } else {
            ring.room()
        };
        let mut walk = self.walk(sink);
        let facts = Facts(interrupts_off(at) as u8 | (if idle || task.idle && user { Facts::IDLE } else { 0 }));
        walk.sink.begin(&header(ring.head(), number, task.id, pc).words());
        if facts != Facts::NONE {
            walk.sink.push(Marker::Facts(facts).encode());
        }
        // Skips the walk if not even the header fits, which is the usual case in a full ring.
        if !walk.sink.is_full() {
            walk.run(at);
        }
        self.publish(at, &walk, idle)
    }

    /// Publishes the record of a walk, if it fitted in the ring.
    #[inline(never)]
    fn publish(&self, at: &Registers, walk: &Walk<'_, '_, K, M>, idle: bool) -> Outcome {
        let ring = &self.slot.stream.ring;
        if walk.sink.is_full() {
            self.slot.handler.counters.lost_full.add(1);
            return Outcome::Lost;
        }
        ring.publish(Kind::Sample, walk.sink.words());
        if !self.profiler.shared.settings().overwrites() {
            ring.look_ahead();
        }
        self.recorded(at, walk.in_interrupt, idle)
    }

    /// Counts a published sample by its kind.
    fn recorded(&self, at: &Registers, in_interrupt: bool, idle: bool) -> Outcome {
        let counters = &self.slot.handler.counters;
        counters.recorded.add(1);
        let kind = match (at.from_user, in_interrupt, idle, interrupts_off(at)) {
            (true, ..) => &counters.recorded_user,
            (_, true, ..) => &counters.interrupt,
            (_, _, true, _) => &counters.recorded_idle,
            (.., off) => counters.irq(off),
        };
        kind.add(1);
        Outcome::Sampled
    }

    /// Whether the stack of the interrupted code passes an interrupt or exception entry, at whatever depth. Called for
    /// the idle task.
    fn in_interrupt(&self, at: &Registers) -> bool {
        let mut walk = self.walk(Sink::discard(&self.slot.handler.scratch));
        (walk.frames_left, walk.user_frames) = (MAX_DEPTH.into(), false);
        walk.run(at);
        walk.in_interrupt
    }

    fn walk<'r>(&self, sink: Sink<'r>) -> Walk<'_, 'r, K, M> {
        let settings = self.profiler.shared.settings();
        Walk {
            kernel: &self.profiler.kernel,
            memory: self.memory,
            text: self.profiler.shared.ready.text.get(),
            sink,
            // The interrupted instruction is the first frame.
            frames_left: settings.depth().saturating_sub(1),
            scan_left: MAX_SCANNED,
            stacks: Stacks::new(),
            user_frames: settings.include_user(),
            in_interrupt: false,
        }
    }
}

/// The header of a sample that is taken now.
#[inline(always)]
pub(super) fn header(position: u64, tick: u64, task: u64, address: u64) -> SampleHeader {
    SampleHeader { position, tick, tsc: timestamp::read(), task, address }
}

/// The number of frames, the interrupted instruction included, in a record of kernel code that has `words` words and no
/// marker except the facts.
#[inline(always)]
pub(super) fn frames_of(words: usize, interrupts_off: u64) -> usize {
    words.wrapping_sub(HEADER_PLACES - 2).wrapping_sub(interrupts_off as usize)
}

/// Bit 0 of the sample's facts: 1 if interrupts were off.
#[inline(always)]
pub(super) fn interrupts_off(at: &impl Interrupted) -> u64 {
    at.interrupts_off() & 1
}

const _: () = assert!(Facts::INTERRUPTS_OFF == 1, "the bit that `interrupts_off` returns");
