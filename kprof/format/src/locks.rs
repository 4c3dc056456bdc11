//! Locks: the names of their points.
//!
//! In and out: constants, for the kernel and for the host. The weight of a hit is a time; its arguments are the lock's
//! address and a number of waiters.

/// The point of the time that a lock was waited for, with the waiter's stack.
pub const WAIT: &str = "lock.wait";
/// The point of the same time, with the stack of the holder at its release.
pub const HOLD: &str = "lock.hold";
