//! The kernel's heap: its two points, where each CPU counts them, and the allocations that have a record.
//!
//! In: the states of the points, when they change; the memory of each CPU. Out: for an allocation and a free, with few
//! instructions: whether it is counted, where, and whether more must be done. Runs in: the questions in any but NMI;
//! changes under the lock of the list of points.
//!
//! Each CPU counts the bytes that are allocated down to 0, at a distance that is drawn anew each time (Poisson, as
//! `by-weight`). So an allocation that is not chosen needs one subtraction and one branch for the choice.
//!
//! The places of the first 64 CPUs are found by an index into a table. A machine with more CPUs leaves this table
//! empty: there the countdown of every allocation is at its end and every byte of the filter is greater than 0, so each
//! allocation and each free goes to the function that finds the place of any CPU.

use super::chosen::UNKNOWN;
use super::counts::PointCounts;
use super::point::{Point, Role};
use super::samples::{AllocSample, Freed, Samples};
use crate::slot::EventSlot;
use core::num::NonZeroU64;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};
use kprof::RegisterError;
use kprof::format::memory;
use kprof::format::point::{PointState, Unit};

/// The countdown after a change of the state: the next allocation draws a new distance, however large it is. No other
/// countdown is below 0 before an allocation.
const DRAW: i64 = -1;

/// The CPUs whose places the table has. A power of two.
const CPUS: usize = 64;

/// Where hits are counted on CPUs that have no memory for them. No allocation is: its countdown is at its end.
static NOWHERE: [PointCounts; 2] = [const { PointCounts::new() }; 2];

/// The heap of this program, if it has registered one: points belong to the whole program, and so does this.
pub(crate) static HEAP: Registered = Registered(AtomicPtr::new(ptr::null_mut()));

/// The type of [`HEAP`].
pub(crate) struct Registered(AtomicPtr<Heap>);

/// What kprof knows of a heap.
pub(crate) struct Heap {
    allocs: Counted,
    frees: Counted,
    /// The state of the point of allocations that the CPUs count down for, as a word.
    followed: AtomicU64,
    next_number: AtomicU64,
    pub(crate) samples: Samples,
    /// The CPUs that count.
    slots: spin::Once<&'static [EventSlot]>,
}

/// A point of the heap, and where each CPU counts its hits.
pub(crate) struct Counted {
    /// The point is not off.
    is_on: AtomicBool,
    places: [AtomicPtr<PointCounts>; CPUS],
    pub(crate) point: Point,
}

impl Counted {
    const fn new(name: &'static str, role: Role, nowhere: usize) -> Self {
        let nowhere = ptr::from_ref(&NOWHERE[nowhere]).cast_mut();
        let mut places = [const { AtomicPtr::new(ptr::null_mut()) }; CPUS];
        let mut cpu = 0;
        while cpu < CPUS {
            places[cpu] = AtomicPtr::new(nowhere);
            cpu += 1;
        }
        Self { is_on: AtomicBool::new(false), places, point: Point::with_role(name, Unit::Bytes, role) }
    }

    /// Where the table says that this CPU counts.
    #[inline(always)]
    fn place(&self, cpu: usize) -> &'static PointCounts {
        // Acquire: whoever sees the place sees it as it was made.
        let place = self.places[cpu % CPUS].load(Ordering::Acquire);
        // SAFETY: only pointers made from `&'static PointCounts` are stored. A place is only shared.
        unsafe { &*place }
    }

    /// Whether hits are counted.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }
}

impl Heap {
    pub(crate) const fn new() -> Self {
        Self {
            allocs: Counted::new(memory::ALLOC, Role::Alloc, 0),
            frees: Counted::new(memory::FREE, Role::Free, 1),
            followed: AtomicU64::new(PointState::Off.encode()),
            next_number: AtomicU64::new(1),
            samples: Samples::new(),
            slots: spin::Once::new(),
        }
    }

    #[inline(always)]
    pub(crate) fn allocs(&self) -> &Counted {
        &self.allocs
    }

    #[inline(always)]
    pub(crate) fn frees(&self) -> &Counted {
        &self.frees
    }

    /// Counts an allocation on this CPU. `false`, with nothing counted, if it may have to get a record, or if the table
    /// has no place for it.
    #[inline(always)]
    pub(crate) fn count_alloc(&self, cpu: usize, bytes: NonZeroU64) -> bool {
        let place = self.allocs.place(cpu);
        let is_far = is_far(place, bytes.get());
        if is_far {
            place.count_bytes(bytes);
        }
        is_far
    }

    /// As `count_alloc`, where the table has no place: for a machine with many CPUs. `place` is that of this CPU.
    pub(crate) fn count_alloc_beyond(&self, place: &PointCounts, bytes: u64) -> bool {
        // So that it stays at its end.
        NOWHERE[0].asked.countdown.store(DRAW, Ordering::Relaxed);
        let is_done = self.has_many_cpus() && is_far(place, bytes);
        if is_done {
            place.count(bytes);
        }
        is_done
    }

    /// Whether the table has no places, because not every CPU would have one.
    fn has_many_cpus(&self) -> bool {
        self.slots.get().is_some_and(|slots| slots.len() > CPUS)
    }

    /// What must be done for a free of this address.
    #[inline(always)]
    pub(crate) fn ask(&self, address: u64) -> Freed {
        self.samples.ask(address)
    }

    /// Counts a free on this CPU.
    #[inline(always)]
    pub(crate) fn count_free(&self, cpu: usize, bytes: u64) {
        self.frees.place(cpu).count_without_histogram(bytes);
    }

    /// Whether the free of an allocation that gets a record is recognized: as long as frees are counted.
    pub(crate) fn is_tracking(&self) -> bool {
        self.frees.is_on()
    }

    /// A number for an allocation that may get a record.
    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Begins a new time, because frees begin or end to be watched: nobody knows which older allocations still exist.
    fn begin_time(&self) {
        let next = self.next_number.load(Ordering::Relaxed);
        let first = memory::first_of_next_time(next);
        if next != memory::first_of_time(next) {
            self.next_number.fetch_max(first, Ordering::Relaxed);
        }
        self.samples.forget_before(self.next_number.load(Ordering::Relaxed));
    }

    /// Follows the states of the points. Only for a caller that excludes all others that change them.
    fn follow(&self) {
        for counted in [&self.allocs, &self.frees] {
            let is_on = !counted.point.is_unlisted() && counted.point.is_on();
            let was_on = counted.is_on.load(Ordering::Relaxed);
            if counted.point.role == Role::Free && is_on != was_on {
                self.begin_time();
                self.samples.set_counted(is_on);
            }
            // Release: whoever sees that frees are watched takes a number of the present time.
            counted.is_on.store(is_on, Ordering::Release);
        }
        let state = self.allocs.point.state_word();
        if self.followed.swap(state, Ordering::Relaxed) == state {
            return;
        }
        // With this fence and that in `counted_down`, either the CPU that has drawn for the old state sees the new one,
        // or its next allocation draws again.
        fence(Ordering::SeqCst);
        let slots = self.slots.get().copied().unwrap_or(&[]);
        let places = slots.iter().filter_map(|slot| slot.points.get(self.allocs.point.offset()));
        places.for_each(|place| place.asked.countdown.store(DRAW, Ordering::Relaxed));
    }

    /// Before an allocation that may be chosen by weight: the distance is what was left of the countdown before it, or
    /// is drawn again.
    pub(crate) fn count_up(place: &PointCounts, bytes: u64) {
        let before = place.asked.countdown.load(Ordering::Relaxed).wrapping_add_unsigned(bytes);
        // Less than 0 and not `DRAW`: an interrupt came after the allocation that has reached the mark, and this is an
        // allocation in it.
        place.asked.distance().set_left(if before == DRAW { UNKNOWN } else { before.max(0).unsigned_abs() });
    }

    /// After an allocation in this state: how many bytes need no more than a count.
    pub(crate) fn counted_down(&self, place: &PointCounts, word: u64) {
        let distance = place.asked.distance();
        let countdown = match PointState::decode(word) {
            Some(PointState::ByWeight(_)) => i64::try_from(distance.left()).unwrap_or(i64::MAX),
            Some(PointState::Every(_) | PointState::Record) => 0,
            Some(PointState::Off | PointState::Count) | None => i64::MAX,
        };
        place.asked.countdown.store(countdown, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.allocs.point.state_word() != word {
            place.asked.countdown.store(DRAW, Ordering::Relaxed);
        }
    }
}

/// Counts down. `false` at the end, where an allocation may have to get a record.
#[inline(always)]
fn is_far(place: &PointCounts, bytes: u64) -> bool {
    let step = bytes as i64;
    place.asked.countdown.fetch_sub(step, Ordering::Relaxed).wrapping_sub(step) >= 0
}

impl Registered {
    /// Registers the heap of a profiler with these CPUs, before its points are in the list. Everything is decided
    /// before the heap is touched: a call that is refused changes nothing.
    pub(crate) fn set(
        &self,
        heap: &'static Heap,
        samples: &'static [AllocSample],
        slots: &'static [EventSlot],
    ) -> Result<(), RegisterError> {
        if !Samples::is_usable(samples) {
            return Err(RegisterError::HeapPlaces(samples.len()));
        }
        let pointer = ptr::from_ref(heap).cast_mut();
        let set = self.0.compare_exchange(ptr::null_mut(), pointer, Ordering::AcqRel, Ordering::Relaxed);
        set.map_err(|_| RegisterError::HeapTwice)?;
        NOWHERE[0].asked.countdown.store(DRAW, Ordering::Relaxed);
        heap.samples.set(samples);
        heap.slots.call_once(|| slots);
        if heap.has_many_cpus() {
            heap.samples.ask_for_each();
        }
        Ok(())
    }

    pub(crate) fn get(&self) -> Option<&'static Heap> {
        // SAFETY: only `set` stores a pointer, which is made from `&'static Heap`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Follows the states of the points. Only for a caller that excludes all others that change them.
    pub(super) fn follow(&self) {
        self.get().into_iter().for_each(Heap::follow);
    }

    /// Gives the CPUs their places in the table, if they are those of the heap's profiler. (Another one of the program
    /// has its own CPUs, which count no allocation.)
    pub(crate) fn give_places(&self, slots: &'static [EventSlot]) {
        // With this fence, either who gives memory to a CPU sees the heap, or who registers the heap sees the memory.
        fence(Ordering::SeqCst);
        let is_its_own = |heap: &&Heap| heap.slots.get().is_some_and(|own| ptr::eq(*own, slots));
        let Some(heap) = self.get().filter(is_its_own).filter(|heap| !heap.has_many_cpus()) else { return };
        for counted in [&heap.allocs, &heap.frees] {
            for (place, slot) in counted.places.iter().zip(slots) {
                if let Some(found) = slot.points.get(counted.point.offset()) {
                    place.store(ptr::from_ref(found).cast_mut(), Ordering::Release);
                }
            }
        }
    }

    /// Says that what was counted without memory is lost.
    pub(crate) fn lose_homeless(&self) {
        let Some(heap) = self.get() else { return };
        for (counted, nowhere) in [&heap.allocs, &heap.frees].into_iter().zip(&NOWHERE) {
            let taken = nowhere.take();
            counted.point.put_back_lost((taken.buckets.iter().sum(), taken.weight));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_up_to_the_next_choice_need_no_more_than_a_count_unless_the_state_has_changed() {
        let place: &'static PointCounts = Box::leak(Box::new(PointCounts::new()));
        let heap = Heap::new();
        heap.allocs.places[1].store(ptr::from_ref(place).cast_mut(), Ordering::Relaxed);
        let is_only_counted = || heap.count_alloc(1, NonZeroU64::new(8).expect("8 is not 0"));
        let by_weight = PointState::ByWeight(100);
        heap.allocs.point.set(by_weight);
        place.asked.distance().set_left(20);
        heap.counted_down(place, by_weight.encode());
        assert_eq!([(); 3].map(|()| is_only_counted()), [true, true, false]);
        heap.allocs.point.set(PointState::Count);
        heap.counted_down(place, by_weight.encode());
        assert!(!is_only_counted(), "the old state was still in use");
        heap.counted_down(place, PointState::Count.encode());
        assert!(is_only_counted());
    }

    #[test]
    fn after_a_change_of_the_state_an_allocation_of_any_size_draws_again() {
        let place: &'static PointCounts = Box::leak(Box::new(PointCounts::new()));
        let heap = Heap::new();
        heap.allocs.places[1].store(ptr::from_ref(place).cast_mut(), Ordering::Relaxed);
        for bytes in [1, 4096, isize::MAX as u64] {
            place.asked.countdown.store(DRAW, Ordering::Relaxed);
            assert!(!heap.count_alloc(1, NonZeroU64::new(bytes).expect("it is not 0")), "{bytes}");
            Heap::count_up(place, bytes);
            assert_eq!(place.asked.distance().left(), UNKNOWN, "{bytes}");
        }
    }

    #[test]
    fn allocations_of_a_time_in_which_frees_were_not_watched_have_numbers_of_another_time() {
        let heap = Heap::new();
        heap.begin_time();
        assert_eq!((heap.number(), heap.number()), (1, 2), "no number was given before");
        heap.begin_time();
        heap.begin_time();
        assert_eq!(heap.number(), memory::first_of_next_time(1));
    }
}
