//! Locks: who waited, who made them wait, and who did not get them.
//!
//! In: the calls of a raw lock of `lock_api`. Out: the same calls of the inner lock; hits of the points `lock.wait`,
//! `lock.hold` and `try_lock.failed`. Runs in: wherever the kernel locks, with interrupts off or on, never in an NMI. A
//! lock that is free is taken by the inner lock's `try_lock`, with nothing more. A release is one load and a branch
//! more. Only a caller that must wait reads the clock. Nothing here allocates, waits for anything but the inner lock,
//! or takes a lock of the kernel. The calls themselves are in the files beside this one, by trait.
//!
//! Each release charges its holder with the time that all waiters have waited since the release before. So the time
//! between a release and the moment when a waiter has the lock counts for the next holder, and every nanosecond of
//! `lock.wait` is one of `lock.hold`. The waiter hits its point when it has just taken the lock, because its stack
//! still shows where it waited. The holder hits its point after the release, with the same stack: so the lock is not
//! held longer, except for the charge itself, which is one read of the clock and one exchange. After each of these
//! calls the caller keeps its frame: a call at the end of a function would be compiled to a jump, and the function
//! would be missing from the stack.
//!

mod mutex;
mod read_write;
mod waited;
pub(crate) mod waits_for;
#[cfg(not(kprof_loom))]
mod zero;

use crate::events::Events;
use crate::points::{FAILED, HOLD, POINTS, Point, WAIT, handle, own_frame};
use crate::profiled::Profiled;
use crate::state::State;
use core::marker::PhantomData;
use kprof::clock::ticks_to_ns;
use kprof::internals::timestamp;
use waited::Waited;
use waits_for::{Entered, Holder};

/// A raw lock whose waits are counted and recorded, around another one. With the cargo feature `locks` or `profiling`
/// off it is the inner lock itself. With `NAMES_HOLDER` the lock also notes on which CPU it was taken, so that a lockup
/// report can name the holder; this costs a call of [`Kernel::cpu`](kprof::Kernel::cpu) each time that it is taken.
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

    fn events() -> &'static Events<K> {
        K::events()
    }

    /// Takes the lock, at once or after a wait.
    #[inline(always)]
    fn take(&self, try_lock: impl FnOnce(&R) -> bool, lock: impl FnOnce(&R)) {
        if !try_lock(&self.inner) {
            self.wait(lock);
            keep_frame();
        }
    }

    /// Takes the lock if that needs no wait, and counts if it does not succeed. Returns whether the lock is taken.
    #[inline(always)]
    fn attempt(&self, try_lock: impl FnOnce(&R) -> bool) -> bool {
        let is_taken = try_lock(&self.inner);
        if !is_taken {
            self.fail();
            keep_frame();
        }
        is_taken
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
        let events = Self::events();
        let here = 0_u8;
        let _entered = self.enter((&raw const here).addr());
        if !are_listed(&events.state) || ALL.iter().all(|point| !point.is_on()) {
            return lock(&self.inner);
        }
        let begun = now_ns(events);
        let others = self.waited.begin(begun);
        lock(&self.inner);
        // If the thread has moved to a CPU whose clock is behind, the end would be before the begin.
        let ended = self.waited.end(now_ns(events).max(begun));
        handle(events, &WAIT, ended - begun, &[self.address(), others], WAIT.state_word(), own_frame());
    }

    /// Counts an attempt that did not succeed. A function of its own for the same reason.
    #[cold]
    #[inline(never)]
    fn fail(&self) {
        let events = Self::events();
        if FAILED.is_on() && are_listed(&events.state) {
            handle(events, &FAILED, 0, &[self.address()], FAILED.state_word(), own_frame());
        }
    }

    /// Releases a lock that somebody waits for, or has waited for. A function of its own for the same reason.
    #[cold]
    #[inline(never)]
    fn release(&self, unlock: impl FnOnce(&R)) {
        let (events, address) = (Self::events(), self.address());
        let charge = self.waited.charge(now_ns(events));
        unlock(&self.inner);
        // From here on the memory of the lock may be used for something else.
        if let Some(charge) = charge {
            handle(events, &HOLD, charge.ns, &[address, charge.waiters], HOLD.state_word(), own_frame());
        }
    }

    /// Tells the witness what this CPU waits for, until the result is dropped.
    fn enter(&self, wait: usize) -> Option<Entered<'_>> {
        let events = Self::events();
        if !NAMES_HOLDER || !events.state.is_installed() {
            return None;
        }
        let slot = events.slot()?;
        Some(slot.waits_for.begin(wait, events.kernel().task().id, &self.holder))
    }

    /// Notes who has taken the lock.
    #[inline(always)]
    fn took(&self) {
        if NAMES_HOLDER {
            self.holder.note(Self::events().kernel().cpu());
        }
    }

    /// Notes that there may be several holders.
    #[inline(always)]
    fn shared(&self) {
        if NAMES_HOLDER {
            self.holder.forget();
        }
    }

    /// Notes who has taken the lock, if it is taken. Returns whether it is.
    #[inline(always)]
    fn took_if(&self, is_taken: bool) -> bool {
        if is_taken {
            self.took();
        }
        is_taken
    }

    /// Notes that there may be several holders, if the lock is taken. Returns whether it is.
    #[inline(always)]
    fn shared_if(&self, is_taken: bool) -> bool {
        if is_taken {
            self.shared();
        }
        is_taken
    }

    fn address(&self) -> u64 {
        (&raw const *self).addr() as u64
    }
}

/// The points of locks.
static ALL: [&Point; 3] = [&WAIT, &HOLD, &FAILED];

/// Whether the points are in the list. The first call after `init` puts them there.
fn are_listed(state: &State) -> bool {
    if ALL.iter().any(|point| point.is_unlisted()) {
        if state.config().is_none() {
            return false;
        }
        for point in ALL {
            POINTS.list(point);
            state.tell_point(point);
        }
    }
    true
}

/// Nanoseconds: sums of their differences are exact, while rounded differences would not add up.
fn now_ns<K: Profiled>(events: &'static Events<K>) -> u64 {
    ticks_to_ns(timestamp::read(), events.state.tsc_hz())
}

/// Keeps the compiler from making the call before this a jump, which would take the caller's frame from the stack. No
/// instruction.
#[inline(always)]
fn keep_frame() {
    #[cfg(not(miri))]
    // SAFETY: there is no instruction.
    unsafe {
        core::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
}
