//! Records a hit of a point: with the stack of its caller, in the event ring of its CPU.
//!
//! In: a hit of a point whose state records; the frame pointer of the function that was called for it. Out: a record of
//! [`Kind::Event`] and a count, or only a count. Runs in: any but NMI, with interrupts off for the time of one walk,
//! which is bounded like that of a sample. So each ring has one producer. No lock, no allocation, no page fault. A hit
//! inside another hit of this CPU, and one for which the ring has no memory or no space, is lost, and counted as lost.

use crate::arch::{interrupts, timestamp};
use crate::errors::RegisterError;
use crate::events::api::Events;
use crate::events::kernel::EventKernel;
use crate::events::points::Role;
use crate::events::points::{Became, Point, PointCounts, Writing};
use crate::events::state::State;
use crate::format::event::{Event, MAX_ARGUMENTS};
use crate::format::marker::{Marker, TruncationReason};
use crate::format::point::PointState;
use crate::format::record::{EventHeader, Kind};
use crate::kernel::Kernel;
use crate::ring::Ring;
use crate::state::Instance;
use crate::sync::{AtomicU64, Ordering};
use crate::unwind::{self, ENTRY_PLACES, MAX_SCANNED, Memory, ROUND, Stacks, Walk};
use core::mem::MaybeUninit;

/// A hit of a point.
struct Hit<'a> {
    point: &'static Point,
    weight: u64,
    arguments: &'a [u64],
    /// The state that says whether it gets a record, as a word.
    state: u64,
    /// The frame pointer of a function whose caller is the code that was hit.
    frame: u64,
}

const RECORD: u64 = PointState::Record.encode();

/// The most words before the first address.
const HEADER_PLACES: usize = EventHeader::WORDS + MAX_ARGUMENTS;

impl<K: EventKernel> Events<K> {
    /// Counts a hit, and records it if it is chosen. `true` if it has a record. Not inlined, and with its arguments in
    /// registers: this is most of what a record costs beside the walk. There is one for each number of arguments of a
    /// hit (`[u64; N]`): a number that is only known at run time (`[u64]`) takes a register in the walk, and would cost
    /// a hit without arguments forty instructions.
    #[inline(never)]
    pub(crate) fn record<M: Memory, A: AsRef<[u64]> + ?Sized>(
        &self,
        point: &'static Point,
        weight: u64,
        arguments: &A,
        state: u64,
        frame: u64,
        memory: M,
    ) -> bool {
        let arguments = arguments.as_ref();
        let interrupts = interrupts::off();
        let is_recorded = self.count_and_record(&Hit { point, weight, arguments, state, frame }, memory);
        interrupts::restore(interrupts);
        is_recorded
    }

    /// Counts a hit whose record is lost before it is written.
    pub(crate) fn lose_record(&self, point: &'static Point, weight: u64) {
        let slot = self.state.slot(self.kernel().cpu());
        let Some(place) = slot.and_then(|slot| slot.points.get(point.offset())) else {
            return point.lose(weight);
        };
        place.count_asked(weight);
        place.asked.became(Became::Lost, weight);
    }

    #[inline(always)]
    fn count_and_record<M: Memory>(&self, hit: &Hit<'_>, memory: M) -> bool {
        let slot = self.state.slot(self.kernel().cpu());
        let place = slot.and_then(|slot| Some((slot, slot.points.get(hit.point.offset())?)));
        let Some((slot, place)) = place else {
            hit.point.lose(hit.weight);
            return false;
        };
        place.count_asked(hit.weight);
        let became = match slot.records.begin() {
            None => Became::Lost,
            Some(writing) => match hit.state == RECORD || is_chosen(hit, place, &writing) {
                false => Became::Unsampled,
                true if self.instance.write_record(hit, &writing, memory) => Became::Recorded,
                true => Became::Lost,
            },
        };
        place.asked.became(became, hit.weight);
        became == Became::Recorded
    }
}

/// On the profiler itself: the walk needs one pointer fewer than with that of the events.
impl<K: Kernel> Instance<K> {
    /// Writes the record of a hit. `false` if there is no space.
    #[inline(always)]
    fn write_record<M: Memory>(&self, hit: &Hit<'_>, writing: &Writing<'_>, memory: M) -> bool {
        let Some(ring) = writing.ring() else { return false };
        match self.on_fast_path(hit, ring, memory) {
            Some((place, words)) => {
                ring.publish_at(place, Kind::Event, words);
                true
            }
            None => self.on_slow_path(hit, ring, memory),
        }
    }

    /// Writes the words of an ordinary record: kernel code with frames, up to the root or to an entry from user code
    /// whose frames are not asked for, and contiguous space for the longest such walk. Returns the word at the head,
    /// and the number of words. `None`: the slow path writes all of them again.
    #[inline(always)]
    fn on_fast_path<'r, M: Memory>(&self, hit: &Hit<'_>, ring: &'r Ring, memory: M) -> Option<(&'r AtomicU64, usize)> {
        let more = self.shared.live.fast_path_rounds.get();
        let (head, reservation) = ring.reserve::<HEADER_PLACES, ROUND>(more)?;
        let header = reservation.header();
        let EventHeader { position, point, tsc, task, weight, state } = EventHeader::places(header.first_chunk()?);
        position.store(head, Ordering::Relaxed);
        point.store(hit.point_word(), Ordering::Relaxed);
        tsc.store(timestamp::read(), Ordering::Relaxed);
        task.store(self.kernel.task().id, Ordering::Relaxed);
        weight.store(hit.weight, Ordering::Relaxed);
        state.store(hit.state, Ordering::Relaxed);
        let arguments = header.iter().skip(EventHeader::WORDS).zip(hit.arguments);
        arguments.for_each(|(place, argument)| place.store(*argument, Ordering::Relaxed));
        let before = EventHeader::WORDS.wrapping_add(hit.arguments.len());
        let text = &self.shared.ready.text;
        let run = unwind::callers(&self.kernel, memory, text, hit.frame, reservation.rounds(before))?;
        let words = reservation.before(run.end);
        if words <= before {
            return None;
        }
        if run.at_root() {
            return Some((&header[0], words));
        }
        let settings = self.shared.settings();
        let entry = run.cursor.user_entry(&self.kernel, memory, run.bounds)?;
        settings.depth().checked_sub(words.wrapping_sub(before).wrapping_add(entry.frames()))?;
        if settings.include_user() {
            return None;
        }
        let (_, places) = ring.reserve_after::<ENTRY_PLACES>(words as u32)?;
        entry.write(places);
        Some((&header[0], words.wrapping_add(entry.words())))
    }

    /// Writes and publishes any record. `false` if there is no space.
    #[inline(never)]
    fn on_slow_path<M: Memory>(&self, hit: &Hit<'_>, ring: &Ring, memory: M) -> bool {
        let settings = self.shared.settings();
        let mut walk = Walk {
            kernel: &self.kernel,
            memory,
            text: self.shared.ready.text.get(),
            sink: ring.room(),
            frames_left: settings.depth(),
            scan_left: MAX_SCANNED,
            stacks: Stacks::new(),
            user_frames: settings.include_user(),
            in_interrupt: false,
        };
        let (position, point, tsc) = (ring.head(), hit.point_word(), timestamp::read());
        let (task, weight, state) = (self.kernel.task().id, hit.weight, hit.state);
        walk.sink.begin(&EventHeader { position, point, tsc, task, weight, state }.words());
        hit.arguments.iter().for_each(|argument| walk.sink.push(*argument));
        // Skips the walk if not even the header fits, which is the usual case in a full ring.
        if !walk.sink.is_full() {
            walk.callers_of(hit.frame);
            if walk.sink.words() == EventHeader::WORDS.wrapping_add(hit.arguments.len()) {
                // Without frame pointers there is nothing to walk; a record has at least one address.
                walk.sink.push(Marker::Truncated(Ok(TruncationReason::Range)).encode());
            }
        }
        let is_written = !walk.sink.is_full();
        if is_written {
            ring.publish(Kind::Event, walk.sink.words());
        }
        // For the next record: the reader may have freed space.
        ring.look_ahead();
        is_written
    }
}

impl Hit<'_> {
    #[inline(always)]
    fn point_word(&self) -> u64 {
        Event::point_word(self.point.number(), self.arguments)
    }
}

/// Whether a hit is chosen, in a state that does not record all of them.
#[cold]
#[inline(never)]
fn is_chosen(hit: &Hit<'_>, place: &PointCounts, writing: &Writing<'_>) -> bool {
    if hit.point.role == Role::Free {
        // Chosen when it was allocated.
        return true;
    }
    let state = PointState::decode(hit.state).unwrap_or(PointState::Off);
    place.asked.is_chosen(state, hit.weight, || writing.random())
}

/// Gives a CPU its event ring.
pub(crate) fn register(
    state: &'static State,
    cpu: usize,
    memory: impl FnOnce() -> &'static mut [MaybeUninit<u64>],
) -> Result<(), RegisterError> {
    let slot = state.slots().get(cpu).ok_or(RegisterError::NoSlot(cpu))?;
    let seed = state.config().map_or(0, |config| config.seed).wrapping_add(cpu as u64);
    match slot.records.install(seed, memory) {
        Some(installed) => installed.map_err(RegisterError::Memory),
        None => Err(RegisterError::Twice(cpu)),
    }
}

#[cfg(test)]
mod tests;
