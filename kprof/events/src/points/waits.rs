//! Whether anybody wants to know what tasks wait for, and since when: the three points of a task's time off its CPU.
//!
//! In: the states of these points, when they change. Out: one word that every call in the scheduler loads: 0 while all
//! three are off. Runs in: the word in any but NMI; changes under the lock of the list of points.

use super::point::Point;
use core::sync::atomic::{AtomicU64, Ordering};
use kprof::format::point::{PointState, Unit};
use kprof::format::waiting;
use kprof::internals::timestamp;

/// The time of a task off its CPU, whatever the reason.
pub(crate) static OFF_CPU: Point = Point::new(waiting::OFF_CPU, Unit::Nanoseconds);
/// The part in which it was blocked.
pub(crate) static BLOCKED: Point = Point::new(waiting::BLOCKED, Unit::Nanoseconds);
/// The part in which it was ready to run.
pub(crate) static LATENCY: Point = Point::new(waiting::LATENCY, Unit::Nanoseconds);

/// No task was switched yet, so the points are not in the list.
const UNLISTED: u64 = u64::MAX;

/// Since when tasks are watched, and until when. Points and their states belong to the whole program, and so does this.
pub(crate) static WAITS: Waits =
    Waits { watched: AtomicU64::new(UNLISTED), begun: AtomicU64::new(0), ended: AtomicU64::new(0) };

/// The type of [`WAITS`].
pub(crate) struct Waits {
    /// 0: tasks are not watched; [`UNLISTED`]: that is not known yet; else the TSC when it began.
    watched: AtomicU64,
    /// The TSC when it began for the last time; 0 before.
    begun: AtomicU64,
    /// The TSC when it ended; 0 while it goes on.
    ended: AtomicU64,
}

/// A time in which tasks are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    /// The TSC when it began.
    pub(crate) begun: u64,
    /// The TSC when it ended. `None`: it goes on.
    pub(crate) ended: Option<u64>,
}

impl Waits {
    pub(crate) fn points(&self) -> [&'static Point; 3] {
        [&OFF_CPU, &BLOCKED, &LATENCY]
    }

    /// Whether tasks are watched, or it is not known yet.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.watched.load(Ordering::Relaxed) != 0
    }

    /// When the present watch began. `None` if tasks are not watched.
    pub(crate) fn begun(&self) -> Option<u64> {
        let watched = self.watched.load(Ordering::Acquire);
        (watched != 0 && watched != UNLISTED).then_some(watched)
    }

    /// The last watch, which may go on. `None` if there was none.
    pub(crate) fn last(&self) -> Option<Watch> {
        let ended = self.ended.load(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        (begun != 0).then_some(Watch { begun, ended: (ended != 0).then_some(ended) })
    }

    /// Follows the states of the points. Only for a caller that excludes all others that change them.
    pub(crate) fn follow(&self) {
        let points = self.points();
        if points.iter().any(|point| point.is_unlisted()) {
            return;
        }
        let is_wanted = points.iter().any(|point| point.state() != PointState::Off);
        match (is_wanted, self.begun()) {
            (true, Some(_)) => {}
            (true, None) => {
                // 0 and the greatest number have other meanings.
                let now = timestamp::read().clamp(1, UNLISTED - 1);
                self.begun.store(now, Ordering::Release);
                self.ended.store(0, Ordering::Release);
                self.watched.store(now, Ordering::Release);
            }
            (false, None) => self.watched.store(0, Ordering::Release),
            (false, Some(_)) => {
                self.watched.store(0, Ordering::Release);
                self.ended.store(timestamp::read().max(1), Ordering::Release);
            }
        }
    }
}
