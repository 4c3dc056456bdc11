//! The two points of locks.
//!
//! In: the first wait for a lock. Out: whether anybody wants to know of waits. Runs in: any but NMI.

use super::list::POINTS;
use super::point::Point;
use crate::format::locks;
use crate::format::point::Unit;
use crate::state::Shared;

/// The time that a lock was waited for: hit by the waiter, once it has the lock.
pub(crate) static WAIT: Point = Point::new(locks::WAIT, Unit::Nanoseconds);
/// The same time: hit by the holder, at its release.
pub(crate) static HOLD: Point = Point::new(locks::HOLD, Unit::Nanoseconds);

/// Whether one of the points is on. The first call after `init` puts both into the list.
pub(crate) fn are_on(shared: &Shared) -> bool {
    if WAIT.is_unlisted() || HOLD.is_unlisted() {
        if shared.config().is_none() {
            return false;
        }
        for point in [&WAIT, &HOLD] {
            POINTS.list(point);
            shared.note_point(point);
        }
    }
    WAIT.is_on() || HOLD.is_on()
}
