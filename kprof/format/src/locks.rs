//! Locks: the names of their points.
//!
//! In and out: constants, for the kernel and for the host. The weight of a hit is a time; its first argument is the
//! lock's address, and its second one, of a wait and of a charge, a number of waiters.

/// The point of the time that a lock was waited for, with the waiter's stack.
pub const WAIT: &str = "lock.wait";
/// The point of the same time, with the stack of the holder at its release.
pub const HOLD: &str = "lock.hold";
/// The point of attempts to take a lock that did not succeed, with the time that each has waited: 0 for one without a
/// wait. The name does not begin as the others do, because a loop of attempts may have very many hits.
pub const FAILED: &str = "try_lock.failed";
