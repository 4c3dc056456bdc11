//! Locks: who waited, and who made them wait.
//!
//! In: the calls of a raw lock of `lock_api`. Out: the same calls of the inner lock; hits of the points `lock.wait` and
//! `lock.hold`. Runs in: wherever the kernel locks, with interrupts off or on, never in an NMI. A lock that is free is
//! taken by the inner lock's `try_lock`, with nothing more. A release is one load and a branch more. Only who must wait
//! reads the clock. Nothing here allocates, waits for anything but the inner lock, or takes a lock of the kernel.
//!
//! Each release charges its holder with the time that all waiters have waited since the release before. So the time
//! between a release and the moment when a waiter has the lock counts for the next holder, and every nanosecond of
//! `lock.wait` is one of `lock.hold`. The waiter hits its point while it holds the lock, because its stack is that of
//! its wait only there. The holder hits its point after the release, with the same stack: so the lock is not held
//! longer, except for the charge itself, which is one look at the clock and one exchange. After each of these calls the
//! caller keeps its frame: a call at the end of a function would be a jump, and the function not on the stack.

use crate::arch::{keep_frame, timestamp};
use crate::clock::ticks_to_ns;
use crate::points::{handle, own_frame};
use crate::profiled::Profiled;
use crate::state::points::{HOLD, POINTS, WAIT};
use crate::state::waited::Waited;
use crate::state::waits_for::{Entered, Holder};
use crate::state::{Instance, Shared};
use core::marker::PhantomData;
use lock_api::{RawMutex, RawRwLock};

/// A raw lock whose waits are counted and recorded, around another one. With the cargo feature `locks` or `profiling`
/// off it is the inner lock itself. With `NAMES_HOLDER` the lock also notes on which CPU it was taken, so that a lockup
/// report can name the holder; this costs a call of [`Kernel::cpu`](crate::Kernel::cpu) each time that it is taken.
pub struct RawLock<R, K, const NAMES_HOLDER: bool = false> {
    inner: R,
    holder: Holder,
    waited: Waited,
    kernel: PhantomData<fn() -> K>,
}

impl<R, K: Profiled, const NAMES_HOLDER: bool> RawLock<R, K, NAMES_HOLDER> {
    const fn new(inner: R) -> Self {
        Self { inner, holder: Holder::new(), waited: Waited::new(), kernel: PhantomData }
    }

    fn instance() -> &'static Instance<K> {
        &K::profiler().instance
    }

    /// Takes the lock, at once or after a wait.
    #[inline(always)]
    fn take(&self, try_lock: impl FnOnce(&R) -> bool, lock: impl FnOnce(&R)) {
        if !try_lock(&self.inner) {
            self.wait(lock);
            keep_frame();
        }
    }

    /// Releases the lock, and charges its holder if somebody waits.
    #[inline(always)]
    fn give_back(&self, unlock: impl FnOnce(&R)) {
        if self.waited.is_settled() {
            unlock(&self.inner);
        } else {
            self.release(unlock);
            keep_frame();
        }
    }

    /// Waits for the lock. It is a function of its own, so that the walk can begin at its frame.
    #[cold]
    #[inline(never)]
    fn wait(&self, lock: impl FnOnce(&R)) {
        let instance = Self::instance();
        let here = 0_u8;
        let _entered = self.enter((&raw const here).addr());
        if !are_on(&instance.shared) {
            return lock(&self.inner);
        }
        let begun = now_ns(instance);
        let others = self.waited.begin(begun);
        lock(&self.inner);
        // Not before the begin, should this CPU be another one than before.
        let ended = self.waited.end(now_ns(instance).max(begun));
        handle(instance, &WAIT, ended - begun, &[self.address(), others], WAIT.state_word(), own_frame());
    }

    /// Releases a lock that somebody waits for, or has waited for. A function of its own for the same reason.
    #[cold]
    #[inline(never)]
    fn release(&self, unlock: impl FnOnce(&R)) {
        let (instance, address) = (Self::instance(), self.address());
        let charge = self.waited.charge(now_ns(instance));
        unlock(&self.inner);
        // From here on the memory of the lock may be used for something else.
        if let Some(charge) = charge {
            handle(instance, &HOLD, charge.ns, &[address, charge.waiters], HOLD.state_word(), own_frame());
        }
    }

    /// Tells the witness what this CPU waits for, until the result is dropped.
    fn enter(&self, wait: usize) -> Option<Entered<'_>> {
        if !NAMES_HOLDER {
            return None;
        }
        let Instance { kernel, shared } = Self::instance();
        // Before `init` there is no slot.
        let slot = shared.slots().get(kernel.cpu())?;
        Some(slot.waits_for.begin(wait, kernel.task().id, &self.holder))
    }

    /// Notes who has taken the lock.
    #[inline(always)]
    fn took(&self) {
        if NAMES_HOLDER {
            self.holder.note(Self::instance().kernel.cpu());
        }
    }

    /// Notes that there may be several holders.
    #[inline(always)]
    fn shared(&self) {
        if NAMES_HOLDER {
            self.holder.forget();
        }
    }

    fn address(&self) -> u64 {
        (&raw const *self).addr() as u64
    }
}

/// Whether one of the points is on. The first call after `init` puts both into the list.
fn are_on(shared: &Shared) -> bool {
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

/// Nanoseconds: sums of their differences are exact, while rounded differences would not add up.
fn now_ns<K: Profiled>(instance: &'static Instance<K>) -> u64 {
    ticks_to_ns(timestamp::read(), instance.shared.tsc_hz())
}

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
        let is_taken = self.inner.try_lock();
        if is_taken {
            self.took();
        }
        is_taken
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

// SAFETY: as above.
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
        let is_taken = self.inner.try_lock_shared();
        if is_taken {
            self.shared();
        }
        is_taken
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
        let is_taken = self.inner.try_lock_exclusive();
        if is_taken {
            self.took();
        }
        is_taken
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
