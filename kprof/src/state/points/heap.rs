//! The kernel's heap: its two points, where each CPU counts them, and the allocations that have a record.
//!
//! In: the states of the points, when they change; the memory of each CPU. Out: for an allocation and a free, with few
//! instructions: whether it is counted, where, and whether more must be done. Runs in: the questions in any but NMI;
//! changes under the lock of the list of points.
//!
//! Each CPU counts the bytes that are allocated down to 0, at a distance that is drawn anew each time (Poisson, as
//! `by-weight`). So an allocation that is not chosen needs one subtraction and one branch for the choice.

use super::chosen::UNKNOWN;
use super::counts::PointCounts;
use super::point::{Point, Role};
use super::samples::{AllocSample, Freed, Samples};
use crate::errors::RegisterError;
use crate::format::memory;
use crate::format::point::{PointState, Unit};
use core::num::NonZeroU64;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

/// So many CPUs have places of their own; those with greater numbers share them. A power of two.
const CPUS: usize = 64;

/// The countdown after a change: the next allocation draws a new distance. What is allocated until then makes it less.
const DRAW: i64 = i64::MIN / 2;

/// Where hits are counted on CPUs that have no memory for them.
static NOWHERE: [PointCounts; 2] = [const { PointCounts::new() }; 2];

/// The heap of this program, if it has registered one: points belong to the whole program, and so does this.
pub(crate) static HEAP: Registered = Registered(AtomicPtr::new(ptr::null_mut()));

/// The type of [`HEAP`].
pub(crate) struct Registered(AtomicPtr<Heap>);

/// What kprof knows of a heap.
pub(crate) struct Heap {
    allocs: Counted,
    frees: Counted,
    /// Frees of recorded allocations get a record.
    is_tracking: AtomicBool,
    next_number: AtomicU64,
    pub(crate) samples: Samples,
}

/// A point, and where each CPU counts its hits.
pub(crate) struct Counted {
    /// The point is not off.
    is_on: AtomicBool,
    places: [AtomicPtr<PointCounts>; CPUS],
    pub(crate) point: Point,
}

impl Counted {
    const fn new(name: &'static str, role: Role, nowhere: usize) -> Self {
        let nowhere = ptr::from_ref(&NOWHERE[nowhere]).cast_mut();
        Self {
            is_on: AtomicBool::new(false),
            places: [const { AtomicPtr::new(ptr::null_mut()) }; CPUS],
            point: Point::with_role(name, Unit::Bytes, role),
        }
        .at(nowhere)
    }

    /// With all places here.
    const fn at(mut self, nowhere: *mut PointCounts) -> Self {
        let mut cpu = 0;
        while cpu < CPUS {
            self.places[cpu] = AtomicPtr::new(nowhere);
            cpu += 1;
        }
        self
    }

    /// Whether hits are counted.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Where this CPU counts.
    #[inline(always)]
    pub(crate) fn place(&self, cpu: usize) -> &'static PointCounts {
        // Acquire: whoever sees the place sees it as it was made.
        let place = self.places[cpu % CPUS].load(Ordering::Acquire);
        // SAFETY: only pointers made from `&'static PointCounts` are stored. A place is only shared.
        unsafe { &*place }
    }
}

impl Heap {
    pub(crate) const fn new() -> Self {
        Self {
            allocs: Counted::new(memory::ALLOC, Role::Alloc, 0),
            frees: Counted::new(memory::FREE, Role::Free, 1),
            is_tracking: AtomicBool::new(false),
            next_number: AtomicU64::new(1),
            samples: Samples::new(),
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

    /// Counts an allocation on this CPU. `false`, with nothing counted, if it may have to get a record.
    #[inline(always)]
    pub(crate) fn count_alloc(&self, cpu: usize, bytes: NonZeroU64) -> bool {
        let place = self.allocs.place(cpu);
        let step = bytes.get() as i64;
        let is_far = place.asked.countdown.fetch_sub(step, Ordering::Relaxed).wrapping_sub(step) >= 0;
        if is_far {
            place.count_bytes(bytes);
        }
        is_far
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

    /// Whether frees of recorded allocations get a record.
    pub(crate) fn is_tracking(&self) -> bool {
        self.is_tracking.load(Ordering::Acquire)
    }

    /// A number for an allocation that may get a record.
    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Follows the states of the points. Only for a caller that excludes all others that change them.
    fn follow(&self) {
        for counted in [&self.allocs, &self.frees] {
            let is_on = !counted.point.is_unlisted() && counted.point.is_on();
            let was_on = counted.is_on.swap(is_on, Ordering::Relaxed);
            if counted.point.role == Role::Free && is_on != was_on {
                self.samples.set_counted(is_on);
            }
        }
        let is_tracking = [&self.allocs, &self.frees].iter().all(|counted| counted.point.state().records());
        if is_tracking && !self.is_tracking() {
            // Frees were not watched, so nobody knows which of the older ones still exist.
            self.samples.forget_before(self.next_number.load(Ordering::Relaxed));
        }
        self.is_tracking.store(is_tracking, Ordering::Release);
        // With this fence and that in `counted_down`, either the CPU that has drawn for the old state sees the new one,
        // or its next allocation draws again.
        fence(Ordering::SeqCst);
        self.allocs.places.iter().for_each(|place| {
            // SAFETY: as in `place`.
            unsafe { &*place.load(Ordering::Acquire) }.asked.countdown.store(DRAW, Ordering::Relaxed);
        });
    }

    /// Before an allocation that may be chosen by weight: the distance is what was left of the countdown before it, or
    /// is drawn again. (After a change of any point it is: 0 would choose this allocation whatever its weight is.)
    /// `fast` is where the countdown is, and `place` where this CPU counts: two places only if CPUs share one.
    pub(crate) fn count_up(fast: &PointCounts, place: &PointCounts, bytes: u64) {
        let countdown = fast.asked.countdown.load(Ordering::Relaxed);
        let left = countdown.saturating_add_unsigned(bytes).max(0).unsigned_abs();
        place.asked.distance().set_left(if countdown < DRAW / 2 { UNKNOWN } else { left });
    }

    /// After an allocation in this state: how many bytes need no more than a count.
    pub(crate) fn counted_down(&self, fast: &PointCounts, place: &PointCounts, word: u64) {
        let distance = place.asked.distance();
        let countdown = match PointState::decode(word) {
            Some(PointState::ByWeight(_)) => i64::try_from(distance.left()).unwrap_or(i64::MAX),
            Some(PointState::Every(_) | PointState::Record) => 0,
            Some(PointState::Off | PointState::Count) | None => i64::MAX,
        };
        fast.asked.countdown.store(countdown, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.allocs.point.state_word() != word {
            fast.asked.countdown.store(DRAW, Ordering::Relaxed);
        }
    }
}

impl Registered {
    /// Registers the heap, before its points are in the list.
    pub(crate) fn set(&self, heap: &'static Heap, samples: &'static [AllocSample]) -> Result<(), RegisterError> {
        if !heap.samples.set(samples) {
            return Err(RegisterError::HeapPlaces(samples.len()));
        }
        let heap = ptr::from_ref(heap).cast_mut();
        let set = self.0.compare_exchange(ptr::null_mut(), heap, Ordering::AcqRel, Ordering::Relaxed);
        set.map(|_| ()).map_err(|_| RegisterError::HeapTwice)
    }

    pub(crate) fn get(&self) -> Option<&'static Heap> {
        // SAFETY: only `set` stores a pointer, which is made from `&'static Heap`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Follows the states of the points. Only for a caller that excludes all others that change them.
    pub(super) fn follow(&self) {
        self.get().into_iter().for_each(Heap::follow);
    }

    /// Gives a CPU the places where it counts, each found by the point. CPUs that share one keep the first.
    pub(crate) fn give_places(&self, cpu: usize, find: impl Fn(&'static Point) -> Option<&'static PointCounts>) {
        let Some(heap) = self.get() else { return };
        for (counted, nowhere) in [&heap.allocs, &heap.frees].into_iter().zip(&NOWHERE) {
            if let Some(place) = find(&counted.point) {
                let nowhere = ptr::from_ref(nowhere).cast_mut();
                let place = ptr::from_ref(place).cast_mut();
                // If another CPU was first, that is where both count.
                let _ =
                    counted.places[cpu % CPUS].compare_exchange(nowhere, place, Ordering::AcqRel, Ordering::Relaxed);
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
        heap.counted_down(place, place, by_weight.encode());
        assert_eq!([(); 3].map(|()| is_only_counted()), [true, true, false]);
        heap.allocs.point.set(PointState::Count);
        heap.counted_down(place, place, by_weight.encode());
        assert!(!is_only_counted(), "the old state was still in use");
        heap.counted_down(place, place, PointState::Count.encode());
        assert!(is_only_counted());
    }
}
