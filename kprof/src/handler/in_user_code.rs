//! Samples that end in user code, on the fast path: a program's own, and those of system calls and interrupts.
//!
//! In: the interrupted registers; or the words that the fast path of a kernel stack has written, and where it ended.
//! Out: a record, or `None`, and then the slow path takes the sample. Runs in: NMI. These functions get the few
//! registers that they need, because a copy of all of them costs twice as many instructions as there are registers.

use super::sample::{HEADER_PLACES, Leave, Tick, frames_of, header, interrupts_off};
use crate::format::record::Kind;
use crate::kernel::{Interrupted, Kernel, Outcome, Registers};
use crate::unwind::{self, Cursor, ENTRY_PLACES, Memory, ROUND, StackBounds, user_word};

/// Words before the first caller in a sample of user code, which has no facts.
const USER_HEADER_PLACES: usize = HEADER_PLACES - 1;
impl<K: Kernel, M: Memory> Tick<'_, K, M> {
    #[inline(never)]
    pub(super) fn leave_by_user(interrupted: &impl Interrupted, tick: Self, number: u64, leave: impl Leave) -> Outcome {
        let Registers { pc, fp, .. } = interrupted.registers();
        match tick.user(number, pc, fp, interrupts_off(interrupted)) {
            Some(outcome) => leave(tick.slot, outcome),
            None => Self::leave_by_slow_path(interrupted, tick, number, leave),
        }
    }

    /// A sample of user code. `None` if it needs the slow path.
    #[inline(never)]
    fn user(self, number: u64, pc: u64, fp: u64, interrupts_off: u64) -> Option<Outcome> {
        let (kernel, ring, counters) = (&self.profiler.kernel, &self.slot.stream.ring, &self.slot.handler.counters);
        let settings = self.profiler.shared.settings();
        if !settings.include_user() {
            counters.user.add(1);
            return Some(Outcome::Filtered);
        }
        let more = self.profiler.shared.live.fast_path_rounds.get();
        // Whole rounds hold no more callers than the depth allows, so that one round more has room for the other ones,
        // and for the marker of a truncated stack.
        let (head, reservation) = ring.reserve::<USER_HEADER_PLACES, ROUND>(more.and_one())?;
        let task = kernel.task();
        if task.idle || interrupts_off != 0 {
            return None;
        }
        reservation.begin(&header(head, number, task.id, user_word(pc)).words());
        let places = reservation.rounds(USER_HEADER_PLACES).as_flattened();
        let places = places.get(..settings.depth()).unwrap_or(places);
        let callers = unwind::user_frames(kernel, fp, places);
        ring.publish_at(&reservation.header()[0], Kind::Sample, USER_HEADER_PLACES.wrapping_add(callers));
        counters.recorded.add(1);
        counters.recorded_user.add(1);
        Some(Outcome::Sampled)
    }

    /// Finishes a walk that the fast path began, and that met an entry frame or another special case.
    #[inline(never)]
    pub(super) fn leave_by_finish(
        interrupted: &impl Interrupted,
        tick: Self,
        words: usize,
        (cursor, bounds): (Cursor, StackBounds),
        leave: impl Leave,
    ) -> Outcome {
        let off = interrupts_off(interrupted);
        let outcome = match tick.finish_in_user_code(words, cursor, bounds, off) {
            Some(outcome) => outcome,
            None => tick.finish_walk(interrupted, words, cursor),
        };
        leave(tick.slot, outcome)
    }

    /// Takes the frames for which the whole rounds had no room: fewer than a round. Then finishes the walk.
    #[inline(never)]
    pub(super) fn leave_by_going_on(
        interrupted: &impl Interrupted,
        tick: Self,
        words: usize,
        (cursor, bounds): (Cursor, StackBounds),
        leave: impl Leave,
    ) -> Outcome {
        let Tick { profiler, slot, memory } = tick;
        let off = interrupts_off(interrupted);
        let frames_left = profiler.shared.settings().depth().saturating_sub(frames_of(words, off));
        let Some((header, places)) = slot.stream.ring.reserve_after::<ROUND>(words as u32) else {
            return Self::leave_by_finish(interrupted, tick, words, (cursor, bounds), leave);
        };
        let text = profiler.shared.ready.text.get();
        let (taken, run) = unwind::go_on(&profiler.kernel, memory, text, (cursor, bounds), places, frames_left);
        let words = words.wrapping_add(taken);
        if let Some(run) = run.filter(|run| !run.at_root()) {
            return Self::leave_by_finish(interrupted, tick, words, (run.cursor, bounds), leave);
        }
        // The root, or a frame too many: the record is complete.
        slot.stream.ring.publish_at(header, Kind::Sample, words);
        slot.handler.counters.recorded.add(1);
        slot.handler.counters.irq(off).add(1);
        leave(slot, Outcome::Sampled)
    }

    /// The usual end of a walk: an entry from user code. `None` if it is another one, or needs the slow path.
    #[inline(always)]
    fn finish_in_user_code(
        self,
        words: usize,
        cursor: Cursor,
        bounds: StackBounds,
        interrupts_off: u64,
    ) -> Option<Outcome> {
        let (kernel, ring, settings) = (&self.profiler.kernel, &self.slot.stream.ring, self.profiler.shared.settings());
        let entry = cursor.user_entry(kernel, self.memory, bounds)?;
        let frames_left =
            settings.depth().checked_sub(frames_of(words, interrupts_off).wrapping_add(entry.frames()))?;
        let (header, places) = ring.reserve_after::<ENTRY_PLACES>(words as u32)?;
        entry.write(places);
        let mut words = words.wrapping_add(entry.words());
        if settings.include_user() {
            let places = ring.room_after(words as u32, frames_left.wrapping_add(1))?;
            words = words.wrapping_add(unwind::user_frames(kernel, entry.fp(), places));
        }
        ring.publish_at(header, Kind::Sample, words);
        let counters = &self.slot.handler.counters;
        counters.recorded.add(1);
        let kind = if entry.is_interrupt() { &counters.interrupt } else { counters.irq(interrupts_off) };
        kind.add(1);
        Some(Outcome::Sampled)
    }
}
