//! The calls of a lock with upgradable readers.
//!
//! In: the calls of `lock_api`'s traits of such locks. Out: the same calls of the inner lock, by `take`, `attempt` and
//! `give_back`. Runs in: wherever the kernel locks, never in an NMI. A trait is there if the inner lock has it. The
//! wait of an upgrade is that for the other readers; the upgrade releases nothing, so nobody is charged by it. A reader
//! that is not upgradable any more lets others in, so this is a release. Nothing here reads a clock or hits a point
//! itself.

use super::RawLock;
use crate::profiled::Profiled;
use lock_api::{RawRwLockUpgrade, RawRwLockUpgradeDowngrade, RawRwLockUpgradeFair, RawRwLockUpgradeTimed};

// SAFETY: the inner lock fulfils the contract, and each function takes or releases it exactly as its own function of
// this name.
unsafe impl<R: RawRwLockUpgrade, K: Profiled, const NAMES_HOLDER: bool> RawRwLockUpgrade
    for RawLock<R, K, NAMES_HOLDER>
{
    #[inline(always)]
    fn lock_upgradable(&self) {
        self.take(R::try_lock_upgradable, R::lock_upgradable);
        self.shared();
    }

    #[inline(always)]
    fn try_lock_upgradable(&self) -> bool {
        self.shared_if(self.attempt(R::try_lock_upgradable))
    }

    #[inline(always)]
    unsafe fn unlock_upgradable(&self) {
        // SAFETY: passed on to the caller.
        self.give_back(|inner| unsafe { inner.unlock_upgradable() });
    }

    #[inline(always)]
    unsafe fn upgrade(&self) {
        // SAFETY: passed on to the caller.
        self.take(|inner| unsafe { inner.try_upgrade() }, |inner| unsafe { inner.upgrade() });
        self.took();
    }

    #[inline(always)]
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: passed on to the caller.
        self.took_if(self.attempt(|inner| unsafe { inner.try_upgrade() }))
    }
}

// SAFETY: as above.
unsafe impl<R: RawRwLockUpgradeFair, K: Profiled, const NAMES_HOLDER: bool> RawRwLockUpgradeFair
    for RawLock<R, K, NAMES_HOLDER>
{
    #[inline(always)]
    unsafe fn unlock_upgradable_fair(&self) {
        // SAFETY: passed on to the caller.
        self.give_back(|inner| unsafe { inner.unlock_upgradable_fair() });
    }
}

// SAFETY: as above.
unsafe impl<R: RawRwLockUpgradeDowngrade, K: Profiled, const NAMES_HOLDER: bool> RawRwLockUpgradeDowngrade
    for RawLock<R, K, NAMES_HOLDER>
{
    #[inline(always)]
    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: passed on to the caller.
        self.give_back(|inner| unsafe { inner.downgrade_upgradable() });
        self.shared();
    }

    #[inline(always)]
    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: passed on to the caller.
        self.give_back(|inner| unsafe { inner.downgrade_to_upgradable() });
        self.shared();
    }
}

// SAFETY: as above.
unsafe impl<R: RawRwLockUpgradeTimed, K: Profiled, const NAMES_HOLDER: bool> RawRwLockUpgradeTimed
    for RawLock<R, K, NAMES_HOLDER>
{
    #[inline(always)]
    fn try_lock_upgradable_for(&self, timeout: R::Duration) -> bool {
        self.shared_if(self.take_in_time(
            R::try_lock_upgradable,
            |inner| inner.try_lock_upgradable_for(timeout),
            R::is_locked,
        ))
    }

    #[inline(always)]
    fn try_lock_upgradable_until(&self, timeout: R::Instant) -> bool {
        self.shared_if(self.take_in_time(
            R::try_lock_upgradable,
            |inner| inner.try_lock_upgradable_until(timeout),
            R::is_locked,
        ))
    }

    #[inline(always)]
    unsafe fn try_upgrade_for(&self, timeout: R::Duration) -> bool {
        // SAFETY: passed on to the caller.
        let lock = |inner: &R| unsafe { inner.try_upgrade_for(timeout) };
        // SAFETY: the same.
        self.took_if(self.take_in_time(|inner| unsafe { inner.try_upgrade() }, lock, R::is_locked))
    }

    #[inline(always)]
    unsafe fn try_upgrade_until(&self, timeout: R::Instant) -> bool {
        // SAFETY: passed on to the caller.
        let lock = |inner: &R| unsafe { inner.try_upgrade_until(timeout) };
        // SAFETY: the same.
        self.took_if(self.take_in_time(|inner| unsafe { inner.try_upgrade() }, lock, R::is_locked))
    }
}
