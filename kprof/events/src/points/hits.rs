//! Counts the hits of points, and writes the counts into the meta stream.
//!
//! In: one call for each hit; the ctl command `event`; the calls that write the counts: the sampler's once a second,
//! and those of `stop` and `flush`. Out: records of [`Kind::PointAccount`] and [`Kind::Point`]; hits that may get a
//! record, to `records`. Runs in: hits in any but NMI, with locks held too; the rest in ordinary code. A hit takes no
//! lock, except a point's first one. With interrupts off, it takes that of the list, which a command holds while it
//! sets the states of all points, and that of the meta stream, which is held for one record.

use crate::events::Events;
use crate::kernel::EventKernel;
use crate::points::{HEAP, Offset, POINTS, Point, PointCounts, Role, Taken, UNLISTED, WAITS};
use crate::state::State;
use core::fmt::Write;
use core::ptr;
use core::sync::atomic::Ordering;
use kprof::RegisterError;
use kprof::format::point::{BUCKET_PREFIX, PointCounter, PointPart, PointState, Points};
use kprof::format::record::{Kind, NO_CPU};
use kprof::format::waiting::part_names;
use kprof::internals::{Direct, MAX_TEXT, OWNER_WAIT_US, Patience, own_frame};

const OFF: u64 = PointState::Off.encode();
const COUNT: u64 = PointState::Count.encode();

/// The longest counter in the text of a record: a space, a name of at most twelve bytes, `=`, twenty digits.
const MAX_COUNTER: usize = 34;

/// Handles a hit of a point that is on, or that is hit for the first time. Inlined, because a call would cost a fifth
/// of it.
#[inline(always)]
pub(crate) fn hit<K: EventKernel, const N: usize>(
    events: &'static Events<K>,
    point: &'static Point,
    counted: Offset,
    weight: u64,
    arguments: &[u64; N],
) {
    // Before `init`, when the kernel may not know its CPUs yet, no point has a place.
    if counted.is_nowhere() {
        return rare_hit(events, point, weight, arguments);
    }
    match place(events, counted) {
        Some(place) => place.count(weight),
        None => rare_hit(events, point, weight, arguments),
    }
}

/// Where this CPU counts the hits of the point with this offset.
#[inline(always)]
pub(crate) fn place<K: EventKernel>(events: &Events<K>, offset: Offset) -> Option<&'static PointCounts> {
    events.slot()?.points.get(offset)
}

/// Handles the first hit of a point, hits that may get a record, and hits for which there is no memory. It is a
/// function of its own, so that the walk can begin at its frame.
#[cold]
#[inline(never)]
fn rare_hit<K: EventKernel, const N: usize>(
    events: &'static Events<K>,
    point: &'static Point,
    weight: u64,
    arguments: &[u64; N],
) {
    let mut state = point.state_word();
    if state == UNLISTED {
        POINTS.list(point);
        events.state.tell_point(point);
        state = point.state_word();
    }
    handle(events, point, weight, arguments, state, own_frame());
}

/// The frame pointer of the function that this is inlined into.
#[inline(always)]
pub(crate) fn own_frame() -> u64 {
    own_frame::pointer()
}

/// Handles a hit of a point that is in the list. `frame` is the frame pointer of a function that the code that was hit
/// has called.
#[inline(always)]
pub(crate) fn handle<K: EventKernel, A: AsRef<[u64]> + ?Sized>(
    events: &'static Events<K>,
    point: &'static Point,
    weight: u64,
    arguments: &A,
    state: u64,
    frame: u64,
) {
    match state {
        OFF => {}
        COUNT => match place(events, point.offset()) {
            Some(place) => place.count(weight),
            None => point.lose(weight),
        },
        _ => {
            events.record(point, weight, arguments, state, frame, Direct);
        }
    }
}

/// Takes what a CPU has counted of a point.
fn take(point: &Point, place: &PointCounts) -> Taken {
    if point.role == Role::Alloc {
        return place.take_allocations();
    }
    place.take()
}

/// What the first argument of such a point means: what the task did first.
fn parts_of(point: &Point, reasons: &[&str]) -> heapless::String<MAX_TEXT> {
    let mut text = heapless::String::new();
    // It fits: there are at most 23 names of at most 24 bytes.
    let _ = write!(text, "{}", point.name());
    for (number, (prefix, name)) in part_names(reasons).enumerate() {
        let _ = write!(text, "{}{prefix}{name}", if number == 0 { ' ' } else { ',' });
    }
    text
}

/// Gives a CPU the memory for its counts.
pub(crate) fn register(
    state: &'static State,
    cpu: usize,
    memory: impl FnOnce() -> &'static [PointCounts],
) -> Result<(), RegisterError> {
    let slot = state.slots().get(cpu).ok_or(RegisterError::NoSlot(cpu))?;
    // No lock: `memory` is the kernel's, and may take its time.
    let Some(installing) = slot.points.begin() else { return Err(RegisterError::Twice(cpu)) };
    let memory = memory();
    let taken = memory.iter().take_while(|place| place.take_memory()).count();
    if taken < memory.len() {
        memory.iter().take(taken).for_each(|place| place.give_back());
        return Err(RegisterError::PointsTaken(cpu));
    }
    installing.set(memory);
    HEAP.give_places(state.slots());
    Ok(())
}

impl State {
    /// Writes what the points have counted into the meta stream. What does not fit is kept. If another CPU is writing
    /// the counts, this function waits for it, for at most `wait_us`, and then writes again.
    pub(crate) fn write_points(&self, wait_us: u64) {
        let mut patience = Patience::us(wait_us, self.tsc_hz());
        // If the lock stays taken, the counts stay too, and the sampler writes them within a second.
        let Some(_only_taker) = patience.lock(&self.points_taker) else { return };
        HEAP.lose_homeless();
        // Records that are replaced by those below add to it, too.
        self.meta().kept.store(0, Ordering::Relaxed);
        let mut kept = 0;
        for point in POINTS.iter() {
            if point.is_untold.load(Ordering::Relaxed) {
                self.tell_point(point);
            }
            kept += self.write_counts_of(point);
        }
        self.meta().kept.fetch_add(kept, Ordering::Relaxed);
    }

    /// Writes what a point has counted, under the lock of who does so. Returns the number of accounts that do not fit,
    /// whose counts are kept.
    fn write_counts_of(&self, point: &Point) -> u64 {
        let mut kept = 0;
        for (cpu, slot) in self.slots().iter().enumerate() {
            let Some(place) = slot.points.get(point.offset()) else { continue };
            let mut taken = take(point, place);
            while !taken.is_empty() && self.write_account(point, cpu as u64, &mut taken) {}
            kept += u64::from(!taken.is_empty());
            place.put_back(&taken);
        }
        let (hits, weight) = point.take_lost();
        let mut taken = Taken::lost(hits, weight);
        if !taken.is_empty() && !self.write_account(point, NO_CPU, &mut taken) {
            point.put_back_lost((hits, weight));
            kept += 1;
        }
        kept
    }

    /// Writes what the point of a removed probe has counted, and takes its name. No CPU may handle a hit of it.
    /// `false`, with the name still there, if the counts do not fit, or somebody else uses them for too long.
    pub(crate) fn retire(&self, point: &Point) -> bool {
        let mut patience = Patience::us(OWNER_WAIT_US, self.tsc_hz());
        let Some(_only_taker) = patience.clone().lock(&self.points_taker) else { return false };
        if !point.is_unlisted() {
            if self.write_counts_of(point) > 0 {
                return false;
            }
            point.unlist();
        }
        // Counts of a record that is replaced at this moment may come back. They are lost, as those of one that is
        // replaced later.
        while !self.guests.are_gone() {
            if !patience.go_on() {
                return false;
            }
        }
        for place in self.slots().iter().filter_map(|slot| slot.points.get(point.offset())) {
            place.take();
        }
        point.take_lost();
        point.name_after(0);
        true
    }

    /// Says at its first hit that the point exists. A hit must not wait, so if the meta stream is in use, the next
    /// counts say it.
    pub(crate) fn tell_point(&self, point: &Point) {
        // Before `init` there is no stream, and a claim repeats all points.
        let is_told =
            self.slots().is_empty() || self.write_point(point, |kind, id, text| self.meta().put(kind, id, text));
        point.is_untold.store(!is_told, Ordering::Relaxed);
    }

    /// Writes a record that the point exists, with its unit, name and state.
    pub(crate) fn note_point(&self, point: &Point) {
        self.write_point(point, |kind, id, text| {
            self.meta().put_or_lose(kind, id, text);
            true
        });
    }

    /// Writes what is known of a point with `put`, which returns whether it has written. Returns whether all is
    /// written.
    fn write_point(&self, point: &Point, put: impl Fn(Kind, [u64; 3], &str) -> bool) -> bool {
        let mut text = heapless::String::<MAX_TEXT>::new();
        // It fits: a name has at most 64 bytes.
        let _ = write!(text, "{} {} {}", point.unit, point.name(), point.state());
        let id = point.number();
        if !put(Kind::Point, [id, 0, 0], &text) {
            return false;
        }
        if WAITS.points().iter().any(|known| ptr::eq(*known, point))
            && let Some(reasons) = self.wait_reasons.get()
        {
            return put(Kind::PointValues, [id, 0, 0], &parts_of(point, reasons));
        }
        true
    }

    /// Writes a record for each of these points that has been hit.
    pub(crate) fn note_points(&self, points: Option<Points<'_>>) {
        let is_one = |point: &&'static Point| points.is_none_or(|points| points.contains(&point.name()));
        POINTS.iter().filter(is_one).for_each(|point| self.note_point(point));
    }

    /// Writes one record with as many of these counts as fit into it, and removes them. `false` if there is no room.
    fn write_account(&self, point: &Point, cpu: u64, taken: &mut Taken) -> bool {
        let mut rest = *taken;
        let mut text = heapless::String::<MAX_TEXT>::new();
        // Nothing here can overflow: a name has at most 64 bytes, and there is room for the other six counters after
        // the last bucket.
        let _ = write!(text, "{} {}", point.unit, point.name());
        let mut placed = 0;
        for (bucket, count) in rest.buckets.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            if text.len() + 7 * MAX_COUNTER > MAX_TEXT {
                break;
            }
            placed += *count;
            let count = core::mem::take(count);
            if point.has_histogram() {
                let _ = write!(text, " {BUCKET_PREFIX}{bucket}={count}");
            }
        }
        // The hits of these buckets: first those with a record, then the lost ones. All others were filtered. Lost hits
        // without memory for them have no bucket.
        let part = |count: &mut u64, most: u64| {
            let part = (*count).min(most);
            *count -= part;
            part
        };
        let recorded = part(&mut rest.outcomes.recorded, placed);
        let lost = part(&mut rest.outcomes.lost, if cpu == NO_CPU { u64::MAX } else { placed - recorded });
        let filtered = placed.saturating_sub(recorded + lost);
        let counters = [
            (PointCounter::Recorded.name(), recorded),
            (PointCounter::Filtered.name(), filtered),
            (PointCounter::Lost.name(), lost),
            (PointPart::Unsampled.name(), part(&mut rest.outcomes.unsampled, filtered)),
            (PointPart::AskedWeight.name(), core::mem::take(&mut rest.outcomes.asked_weight)),
            (PointPart::LostWeight.name(), core::mem::take(&mut rest.outcomes.lost_weight)),
        ];
        for (name, count) in counters.into_iter().filter(|(_, count)| *count > 0) {
            let _ = write!(text, " {name}={count}");
        }
        let weight = core::mem::take(&mut rest.weight);
        let is_written = self.meta().put(Kind::PointAccount, [point.number(), cpu, weight], &text);
        if is_written {
            *taken = rest;
        }
        is_written
    }
}
