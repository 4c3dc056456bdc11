//! The list of all points that were hit, and the choices for points that were not.
//!
//! In: the first hit of each point; ctl commands. Out: the points with their ids. Runs in: any but NMI. A lock, held
//! with interrupts off, orders the first hits and the commands, so that a choice made by name is in force for a point
//! whether it is hit before or after.

#[cfg(feature = "heap")]
use super::heap::HEAP;
use super::point::Point;
use super::waits::WAITS;
use crate::arch::interrupts;
use crate::format::point::{MAX_POINT_NAME, PointState, Points};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The most choices that are kept. A choice for all points of a subsystem (`block.*`) is one.
const MAX_WANTED: usize = 16;

/// A choice: the points that it is for (a name, or its beginning with `*`), and their state.
type Choice = (heapless::String<{ MAX_POINT_NAME + 1 }>, PointState);

/// All points that were hit. A point is a `static`, so there is one list in a program, also if it has several
/// profilers.
pub(crate) static POINTS: List = List::new();

/// The type of [`POINTS`].
pub(crate) struct List {
    /// The newest point.
    head: AtomicPtr<Point>,
    count: AtomicUsize,
    wanted: spin::Mutex<Wanted>,
}

/// The choices in force, the newest last, and those before the lease.
struct Wanted {
    now: heapless::Vec<Choice, MAX_WANTED>,
    before: heapless::Vec<Choice, MAX_WANTED>,
}

impl List {
    const fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            count: AtomicUsize::new(0),
            wanted: spin::Mutex::new(Wanted { now: heapless::Vec::new(), before: heapless::Vec::new() }),
        }
    }

    /// All points, the newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Point> {
        let mut next = self.head.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: `list` stores only pointers made from `&'static Point`.
            let point: &'static Point = unsafe { next.as_ref() }?;
            next = point.next.load(Ordering::Acquire);
            Some(point)
        })
    }

    /// Puts a point into the list at its first hit.
    #[cold]
    #[inline(never)]
    pub(crate) fn list(&self, point: &'static Point) {
        interrupts::without(|| {
            let wanted = self.wanted.lock();
            if !point.is_unlisted() {
                return;
            }
            let number = self.count.fetch_add(1, Ordering::Relaxed);
            point.next.store(self.head.load(Ordering::Relaxed), Ordering::Relaxed);
            let (state, before) = (state_of(&wanted.now, point), state_of(&wanted.before, point));
            point.enlist(number, state, before);
            self.head.store(ptr::from_ref(point).cast_mut(), Ordering::Release);
            follow();
        });
    }

    /// The state that the choices in force give a point.
    #[cfg(feature = "probes")]
    pub(crate) fn chosen(&self, point: &Point) -> PointState {
        interrupts::without(|| state_of(&self.wanted.lock().now, point))
    }

    /// Whether there is room for `more` choices.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        interrupts::without(|| self.wanted.lock().now.len() + more <= MAX_WANTED)
    }

    /// Sets the state of all points with such a name, also of those that will be hit later.
    pub(crate) fn set(&self, points: Points<'_>, state: PointState) {
        interrupts::without(|| {
            let mut wanted = self.wanted.lock();
            // The newest choice counts, so an older one for the same text has no effect any more; and `*` replaces all.
            wanted.now.retain(|(text, _)| points.as_str() != "*" && text != points.as_str());
            if points.as_str() != "*" || state != PointState::Off {
                let text = heapless::String::try_from(points.as_str()).unwrap_or_default();
                // `has_room` was asked before.
                let _ = wanted.now.push((text, state));
            }
            let named = self.iter().filter(|point| points.contains(point.name));
            named.for_each(|point| point.set(state));
            follow();
        });
    }

    /// Notes all states, for the end of a lease that begins.
    pub(crate) fn keep(&self) {
        interrupts::without(|| {
            let mut wanted = self.wanted.lock();
            wanted.before = wanted.now.clone();
            self.iter().for_each(|point| point.keep());
        });
    }

    /// Sets the states that `keep` has noted; a point that was hit since gets the state that it would have had.
    pub(crate) fn restore(&self) {
        interrupts::without(|| {
            let mut wanted = self.wanted.lock();
            wanted.now = wanted.before.clone();
            self.iter().for_each(|point| point.restore());
            follow();
        });
    }
}

/// Tells those who keep the states of points in a shorter form.
fn follow() {
    WAITS.follow();
    #[cfg(feature = "heap")]
    HEAP.follow();
}

/// The state of a point by these choices.
fn state_of(choices: &[Choice], point: &Point) -> PointState {
    let is_for = |text: &str| Points::of(text).is_some_and(|points| points.contains(point.name));
    choices.iter().rev().find(|(text, _)| is_for(text)).map_or(PointState::Off, |(_, state)| *state)
}
