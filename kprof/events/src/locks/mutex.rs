//! The calls of a mutex.
//!
//! In: the calls of `lock_api`'s trait of mutexes. Out: the same calls of the inner lock, by `take`, `attempt` and
//! `give_back`. Runs in: wherever the kernel locks, never in an NMI. Nothing here reads a clock or hits a point itself.

use super::RawLock;
use crate::profiled::Profiled;
use lock_api::RawMutex;

// SAFETY: the inner lock fulfils the contract, and each function takes or releases it exactly as its own function of
// this name.
unsafe impl<R: RawMutex, K: Profiled, const NAMES_HOLDER: bool> RawMutex for RawLock<R, K, NAMES_HOLDER> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self::new(R::INIT);
    type GuardMarker = R::GuardMarker;

    #[inline(always)]
    fn lock(&self) {
        self.take(R::try_lock, R::lock);
        self.took();
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.took_if(self.attempt(R::try_lock))
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        // SAFETY: passed on to the caller.
        self.give_back(|inner| unsafe { inner.unlock() });
    }

    #[inline(always)]
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}
