//! The three points of locks.
//!
//! In: hits. Out: the points, which `locks` lists at the first wait. Runs in: any but NMI.

use super::point::Point;
use kprof::format::locks;
use kprof::format::point::Unit;

/// The time that a lock was waited for: hit by the waiter, once it has the lock or gives up.
pub(crate) static WAIT: Point = Point::new(locks::WAIT, Unit::Nanoseconds);
/// The same time: hit by the holder, at its release.
pub(crate) static HOLD: Point = Point::new(locks::HOLD, Unit::Nanoseconds);
/// The attempts that did not succeed, each with the time that it has waited.
pub(crate) static FAILED: Point = Point::new(locks::FAILED, Unit::Nanoseconds);
