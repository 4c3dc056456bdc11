//! The list of all points that were hit, and the choices for points that were not.
//!
//! In: the first hit of each point; ctl commands. Out: the points with their ids. Runs in: any but NMI. A lock, held
//! with interrupts off, orders the first hits and the commands, so that a choice made by name is in force for a point
//! whether it is hit before or after.

use super::heap::HEAP;
use super::point::{Point, PointText};
use super::waits::WAITS;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use kprof::format::point::{MAX_POINT_NAME, PointState, Points};
use kprof::internals::interrupts;

/// The most choices that are kept, of the lease and of all others. A choice for all points of a subsystem (`block.*`)
/// is one.
const MAX_WANTED: usize = 16;

/// A choice: the points that it is for (a name, or its beginning with `*`), and their state.
#[derive(Clone)]
struct Choice {
    points: heapless::String<{ MAX_POINT_NAME + 1 }>,
    state: PointState,
    /// It ends with the lease.
    by_lease: bool,
}

/// All points that were hit. A point is a `static`, so there is one list in a program, also if it has several
/// profilers.
pub(crate) static POINTS: List = List::new();

/// The type of [`POINTS`].
pub(crate) struct List {
    /// The newest point.
    head: AtomicPtr<Point>,
    /// How many points have a place in each CPU's memory, and how many numbers were given. The point of a probe gets
    /// another number with another name.
    places: AtomicUsize,
    numbers: AtomicUsize,
    /// The lease has chosen something.
    has_lease: AtomicBool,
    wanted: spin::Mutex<Wanted>,
}

/// The choices for points that were not hit yet, the newest last: the newest one for a point counts. Those of the lease
/// are among them, so its end removes them and nothing else.
#[derive(Clone)]
pub(crate) struct Wanted(heapless::Vec<Choice, { 2 * MAX_WANTED }>);

impl Wanted {
    /// Adds a choice. `false` if there is no room for it.
    pub(crate) fn choose(&mut self, points: Points<'_>, state: PointState, by_lease: bool) -> bool {
        let points = points.as_str();
        // Older choices of which nothing is left have no effect any more. The lease hides those of others, which are in
        // force again when it ends.
        self.0.retain(|choice| !covers(points, &choice.points) || by_lease && !choice.by_lease);
        let hides_any = self.0.iter().any(|choice| covers(points, &choice.points) || covers(&choice.points, points));
        if state == PointState::Off && !hides_any {
            return true;
        }
        let has_room = self.0.iter().filter(|choice| choice.by_lease == by_lease).count() < MAX_WANTED;
        has_room
            && heapless::String::try_from(points)
                .is_ok_and(|points| self.0.push(Choice { points, state, by_lease }).is_ok())
    }

    /// The state of a point that is not hit yet: with the choices of the lease, and without them.
    fn states_of(&self, point: &Point) -> [PointState; 2] {
        [true, false].map(|with_lease| {
            let is_for = |choice: &&Choice| (with_lease || !choice.by_lease) && covers(&choice.points, &point.name());
            self.0.iter().rev().find(is_for).map_or(PointState::Off, |choice| choice.state)
        })
    }
}

/// Whether every point that `narrow` names is also one of `wide`: each a name, or the beginning of names and `*`.
fn covers(wide: &str, narrow: &str) -> bool {
    wide.strip_suffix('*').map_or(wide == narrow, |beginning| narrow.starts_with(beginning))
}

impl List {
    const fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            places: AtomicUsize::new(0),
            numbers: AtomicUsize::new(0),
            has_lease: AtomicBool::new(false),
            wanted: spin::Mutex::new(Wanted(heapless::Vec::new())),
        }
    }

    /// All points, the newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Point> {
        let mut next = self.head.load(Ordering::Acquire);
        let all = core::iter::from_fn(move || {
            // SAFETY: `list` stores only pointers made from `&'static Point`.
            let point: &'static Point = unsafe { next.as_ref() }?;
            next = point.next.load(Ordering::Acquire);
            Some(point)
        });
        all.filter(|point| !point.is_unlisted())
    }

    /// The point with this number.
    pub(crate) fn numbered(&self, number: u64) -> Option<&'static Point> {
        self.iter().find(|point| point.number() == number)
    }

    /// The name of the point with this number.
    pub(crate) fn name_of(&self, number: u64) -> Option<PointText> {
        let point = self.numbered(number)?;
        let name = point.name();
        // It has no number while it gets another name.
        (point.number() == number).then_some(name)
    }

    /// Puts a point into the list: at its first hit, or with another name.
    #[cold]
    #[inline(never)]
    pub(crate) fn list(&self, point: &'static Point) {
        interrupts::without(|| {
            let wanted = self.wanted.lock();
            if !point.is_unlisted() {
                return;
            }
            let is_new = !point.has_place();
            if is_new {
                point.give_place(self.places.fetch_add(1, Ordering::Relaxed));
                point.next.store(self.head.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            let [state, base] = wanted.states_of(point);
            point.enlist(self.numbers.fetch_add(1, Ordering::Relaxed), state, base);
            if is_new {
                self.head.store(ptr::from_ref(point).cast_mut(), Ordering::Release);
            }
            follow();
        });
    }

    /// The state that the choices give a point, with those of the lease and without them.
    pub(crate) fn chosen(&self, point: &Point) -> [PointState; 2] {
        interrupts::without(|| self.wanted.lock().states_of(point))
    }

    /// A copy of the choices, to try whether there is room for more.
    pub(crate) fn wanted(&self) -> Wanted {
        interrupts::without(|| self.wanted.lock().clone())
    }

    /// Sets the state of all points with such a name, also of those that will be hit later: until the lease ends, or
    /// for good.
    pub(crate) fn set(&self, points: Points<'_>, state: PointState, by_lease: bool) {
        interrupts::without(|| {
            let mut wanted = self.wanted.lock();
            // Whether there is room was checked before.
            self.has_lease.fetch_or(by_lease, Ordering::Relaxed);
            wanted.choose(points, state, by_lease);
            let named = self.iter().filter(|point| points.contains(&point.name()));
            named.for_each(|point| point.choose(state, by_lease));
            follow();
        });
    }

    /// Sets the state of one point of the list until the lease ends.
    pub(crate) fn choose_by_lease(&self, point: &Point, state: PointState) {
        self.has_lease.store(true, Ordering::Relaxed);
        point.choose(state, true);
    }

    /// Whether the lease has set anything.
    pub(crate) fn has_lease(&self) -> bool {
        self.has_lease.load(Ordering::Relaxed)
    }

    /// Ends what the lease has set.
    pub(crate) fn end_lease(&self) {
        interrupts::without(|| {
            let mut wanted = self.wanted.lock();
            self.has_lease.store(false, Ordering::Relaxed);
            wanted.0.retain(|choice| !choice.by_lease);
            self.iter().for_each(Point::end_lease);
            follow();
        });
    }
}

/// Tells those who keep the states of points in a shorter form.
fn follow() {
    WAITS.follow();
    HEAP.follow();
}

#[cfg(test)]
mod tests {
    use super::*;
    use kprof::format::point::Unit;

    fn points(text: &str) -> Points<'_> {
        Points::of(text).unwrap()
    }

    #[test]
    fn a_choice_takes_the_place_of_those_that_have_no_effect_any_more() {
        let mut wanted = Wanted(heapless::Vec::new());
        let mut choose = |text: &str, state, by_lease| {
            let is_done = wanted.choose(points(text), state, by_lease);
            (is_done, wanted.0.len())
        };
        (0..16).for_each(|number| assert!(choose(&format!("a.{number}"), PointState::Count, false).0));
        assert_eq!(choose("b", PointState::Count, false), (false, 16), "there are sixteen");
        assert_eq!(choose("b", PointState::Off, false), (true, 16), "it is off anyway");
        assert_eq!(choose("a.3", PointState::Off, false), (true, 15));
        assert_eq!(choose("a.*", PointState::Off, true), (true, 16), "the lease hides what is there");
        assert_eq!(choose("a.1*", PointState::Record, true), (true, 17));
        assert_eq!(
            choose("a.1*", PointState::Record, false),
            (true, 10),
            "in place of a.1, a.10 to a.15 and the lease's"
        );
        assert_eq!(choose("*", PointState::Off, true), (true, 10), "only those of the lease give way");
        assert_eq!(choose("*", PointState::Off, false), (true, 0));
    }

    #[test]
    fn the_newest_choice_for_a_point_counts_whoever_made_it() {
        let mut wanted = Wanted(heapless::Vec::new());
        let (read, write) = (Point::new("block.read", Unit::Count), Point::new("block.write", Unit::Count));
        for (text, state, by_lease) in [
            ("block.*", PointState::Count, false),
            ("block.*", PointState::Record, true),
            ("block.read", PointState::Off, false),
        ] {
            assert!(wanted.choose(points(text), state, by_lease));
        }
        assert_eq!(wanted.states_of(&read), [PointState::Off; 2]);
        assert_eq!(wanted.states_of(&write), [PointState::Record, PointState::Count]);
    }
}
