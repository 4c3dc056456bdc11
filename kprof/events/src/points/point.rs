//! A point: its name and unit, its state, its number, its place in the list of all points.
//!
//! In: hits; ctl commands. Out: whether a hit counts, and where. Runs in: any but NMI. A hit loads one word, and goes
//! on only if it is not 0. A hit that is only counted needs to know nothing else: the word is its place, and a point in
//! another state has no place there.

use super::counts::add_saturating;
use super::memory::{Offset, OffsetCell};
use core::fmt::Write;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use kprof::format::point::{MAX_POINT_NAME, PointState, Unit, is_name};
use kprof::format::probe::PointName;

/// The state of a point whose hits are not counted.
const OFF: u64 = PointState::Off.encode();
/// The state of a point that has not been hit, so that it is in no list. No state of a listed point is encoded so.
pub(crate) const UNLISTED: u64 = u64::MAX;

/// A place in the kernel whose hits are counted: make it in a `static`, and call
/// [`Events::hit`](crate::Events::hit) there.
///
/// The profiler knows of a point from its first hit on. A choice for its name that was made before (`event NAME count`)
/// is in force from that hit on. If a program has several profilers, they share the list of points and their states,
/// but each has its own counts.
///
/// ```
/// use kprof::Unit;
/// use kprof_events::Point;
///
/// static READ_DONE: Point = Point::new("block.read", Unit::Nanoseconds);
/// ```
pub struct Point {
    /// Where its counts are in each CPU's memory while its hits are only counted; nowhere in any other state; none
    /// while the point is off.
    counted: OffsetCell,
    state: AtomicU64,
    /// The state without what the lease has set.
    base: AtomicU64,
    /// Where its counts are in each CPU's memory.
    offset: OffsetCell,
    /// Its number, which no other point ever has.
    number: AtomicU32,
    name: &'static str,
    /// Of the point of a probe: the function after which it is named; 0 while it has no name.
    function: AtomicU64,
    pub(crate) unit: Unit,
    /// The meta stream was in use at its first hit, so the next counts say that it exists.
    pub(crate) is_untold: AtomicBool,
    /// The point that was listed before this one.
    pub(crate) next: AtomicPtr<Point>,
    /// Hits on CPUs that have no memory for the point, and the sum of their weights.
    lost: AtomicU64,
    lost_weight: AtomicU64,
    pub(crate) role: Role,
}

const _: () = assert!(size_of::<Point>() == 88, "the documentation says so");

/// The name of a point.
pub(crate) type PointText = heapless::String<MAX_POINT_NAME>;

/// What is special about a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing.
    Ordinary,
    /// An allocation: hits that are not recorded are counted without a look at the state.
    Alloc,
    /// A free: which ones are recorded was decided when they were allocated. It has no histogram.
    Free,
}

impl Point {
    /// A point with this name and unit. Names of one subsystem begin alike: `block.read`, `block.write`.
    ///
    /// # Panics
    /// If the name is not 1 to 64 visible ASCII characters without `*`; for a `static`, the compiler says so.
    pub const fn new(name: &'static str, unit: Unit) -> Self {
        Self::with_role(name, unit, Role::Ordinary)
    }

    /// As `new`, for a point with a role.
    pub(crate) const fn with_role(name: &'static str, unit: Unit, role: Role) -> Self {
        assert!(is_name(name), "the name of a point is 1 to 64 visible ASCII characters without `*`");
        Self::named(name, unit, role)
    }

    /// The point of a probe, which is named after its function.
    pub(crate) const fn of_probe() -> Self {
        Self::named("", Unit::Nanoseconds, Role::Ordinary)
    }

    const fn named(name: &'static str, unit: Unit, role: Role) -> Self {
        Self {
            counted: OffsetCell::nowhere(),
            state: AtomicU64::new(UNLISTED),
            base: AtomicU64::new(OFF),
            offset: OffsetCell::nowhere(),
            number: AtomicU32::new(u32::MAX),
            name,
            function: AtomicU64::new(0),
            unit,
            is_untold: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
            lost: AtomicU64::new(0),
            lost_weight: AtomicU64::new(0),
            role,
        }
    }

    /// Whether its hits are counted by the logarithm of their weights.
    pub(crate) fn has_histogram(&self) -> bool {
        self.role != Role::Free
    }

    /// Whether a hit is counted now, or is the first one, which is not known yet: for a kernel that needs more than a
    /// few instructions to find the weight. Always `false` with the feature `profiling` off. Runs in: any.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.counted.get().is_some()
    }

    /// Its name.
    pub(crate) fn name(&self) -> PointText {
        let mut text = PointText::new();
        // It fits.
        let _ = match self.function() {
            0 => text.write_str(self.name),
            function => write!(text, "{}", PointName(function)),
        };
        text
    }

    /// Of the point of a probe: the function after which it is named; 0 while it has no name.
    pub(crate) fn function(&self) -> u64 {
        self.function.load(Ordering::Acquire)
    }

    /// Names the point of a probe, which is in no list, after a function.
    pub(crate) fn name_after(&self, function: u64) {
        // Release: whoever sees the name sees that the point has lost the number that it had with another name.
        self.function.store(function, Ordering::Release);
    }

    /// Whether the point has not been hit.
    pub(crate) fn is_unlisted(&self) -> bool {
        self.state_word() == UNLISTED
    }

    /// Where its counts are in each CPU's memory.
    #[inline(always)]
    pub(crate) fn offset(&self) -> Offset {
        self.offset.get().unwrap_or(Offset::NOWHERE)
    }

    /// Where its counts are while its hits are only counted; `None` while the point is off. While the state changes, it
    /// may be that of the state before.
    #[inline(always)]
    pub(crate) fn counted(&self) -> Option<Offset> {
        self.counted.get()
    }

    /// Whether it has a place in each CPU's memory.
    pub(crate) fn has_place(&self) -> bool {
        self.offset() != Offset::NOWHERE
    }

    /// Gives the point a place in each CPU's memory.
    pub(crate) fn give_place(&self, place: usize) {
        self.offset.set(Some(Offset::of(place)));
    }

    /// Puts the point into a list, with its number, its state, and that without what the lease has set. Only for a
    /// caller that excludes all others that list.
    pub(crate) fn enlist(&self, number: usize, state: PointState, base: PointState) {
        self.base.store(base.encode(), Ordering::Relaxed);
        self.number.store(u32::try_from(number).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.set(state);
    }

    /// Takes the point of a probe out of the list: it has no number, and soon another name. It keeps its place. Nobody
    /// may hit it any more.
    pub(crate) fn unlist(&self) {
        self.counted.set(Some(Offset::NOWHERE));
        self.state.store(UNLISTED, Ordering::Relaxed);
        self.number.store(u32::MAX, Ordering::SeqCst);
    }

    /// Its number, which no other point ever has.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed).into()
    }

    pub(crate) fn state(&self) -> PointState {
        PointState::decode(self.state.load(Ordering::Relaxed)).unwrap_or(PointState::Off)
    }

    /// The state as a word ([`PointState::encode`]), or [`UNLISTED`].
    #[inline(always)]
    pub(crate) fn state_word(&self) -> u64 {
        // Acquire: whoever sees a listed point sees its offset.
        self.state.load(Ordering::Acquire)
    }

    /// Sets the state of a point that is in a list, or that its caller puts into one.
    pub(crate) fn set(&self, state: PointState) {
        self.counted.set(match state {
            PointState::Off => None,
            PointState::Count => Some(self.offset()),
            _ => Some(Offset::NOWHERE),
        });
        // Release: whoever sees that the point is in a list sees its offset.
        self.state.store(state.encode(), Ordering::Release);
    }

    /// Sets the state: by the lease, until it ends; or for good, in place of what the lease has set.
    pub(crate) fn choose(&self, state: PointState, by_lease: bool) {
        if !by_lease {
            self.base.store(state.encode(), Ordering::Relaxed);
        }
        self.set(state);
    }

    /// Ends what the lease has set.
    pub(crate) fn end_lease(&self) {
        self.set(PointState::decode(self.base.load(Ordering::Relaxed)).unwrap_or(PointState::Off));
    }

    /// Counts a hit for which there is no memory.
    #[cold]
    pub(crate) fn lose(&self, weight: u64) {
        self.put_back_lost((1, weight));
    }

    /// Takes the counts of `lose`: hits, and the sum of their weights.
    pub(crate) fn take_lost(&self) -> (u64, u64) {
        (self.lost.swap(0, Ordering::Relaxed), self.lost_weight.swap(0, Ordering::Relaxed))
    }

    /// Adds counts of hits for which there is no memory.
    pub(crate) fn put_back_lost(&self, (hits, weight): (u64, u64)) {
        self.lost.fetch_add(hits, Ordering::Relaxed);
        add_saturating(&self.lost_weight, weight);
    }
}
