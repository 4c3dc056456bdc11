//! Locks with a feature off: the inner lock itself.
//!
//! In: a raw lock. Out: the same type, so that a lock is as large as without kprof, and each call is that of the inner
//! lock. Runs in: nowhere.

use crate::profiled::Profiled;

/// A raw lock whose waits are counted and recorded; here the inner one itself.
pub type RawLock<R, K, const NAMES_HOLDER: bool = false> = <K as Unwrapped<R>>::Raw;

/// Says for any kernel that the lock is the inner one: a type alias must use all its parameters.
pub trait Unwrapped<R> {
    /// The inner lock.
    type Raw;
}

impl<R, K: Profiled> Unwrapped<R> for K {
    type Raw = R;
}
