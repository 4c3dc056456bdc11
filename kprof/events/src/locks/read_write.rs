//! The calls of a lock for readers and writers.
//!
//! In: the calls of `lock_api`'s traits of such locks. Out: the same calls of the inner lock, by `take`, `attempt` and
//! `give_back`. Runs in: wherever the kernel locks, never in an NMI. The lock can be downgraded if the inner one can: a
//! writer that becomes a reader lets others in, so this is a release. Nothing here reads a clock or hits a point
//! itself.

use super::RawLock;
use crate::profiled::Profiled;
use lock_api::{RawRwLock, RawRwLockDowngrade};

// SAFETY: the inner lock fulfils the contract, and each function takes or releases it exactly as its own function of
// this name.
unsafe impl<R: RawRwLock, K: Profiled, const NAMES_HOLDER: bool> RawRwLock for RawLock<R, K, NAMES_HOLDER> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self::new(R::INIT);
    type GuardMarker = R::GuardMarker;

    #[inline(always)]
    fn lock_shared(&self) {
        self.take(R::try_lock_shared, R::lock_shared);
        self.shared();
    }

    #[inline(always)]
    fn try_lock_shared(&self) -> bool {
        self.shared_if(self.attempt(R::try_lock_shared))
    }

    #[inline(always)]
    unsafe fn unlock_shared(&self) {
        // SAFETY: passed on to the caller.
        self.give_back(|inner| unsafe { inner.unlock_shared() });
    }

    #[inline(always)]
    fn lock_exclusive(&self) {
        self.take(R::try_lock_exclusive, R::lock_exclusive);
        self.took();
    }

    #[inline(always)]
    fn try_lock_exclusive(&self) -> bool {
        self.took_if(self.attempt(R::try_lock_exclusive))
    }

    #[inline(always)]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: passed on to the caller.
        self.give_back(|inner| unsafe { inner.unlock_exclusive() });
    }

    #[inline(always)]
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    #[inline(always)]
    fn is_locked_exclusive(&self) -> bool {
        self.inner.is_locked_exclusive()
    }
}

// SAFETY: as above.
unsafe impl<R: RawRwLockDowngrade, K: Profiled, const NAMES_HOLDER: bool> RawRwLockDowngrade
    for RawLock<R, K, NAMES_HOLDER>
{
    #[inline(always)]
    unsafe fn downgrade(&self) {
        // SAFETY: passed on to the caller.
        self.give_back(|inner| unsafe { inner.downgrade() });
        self.shared();
    }
}
