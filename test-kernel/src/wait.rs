//! Waiting: a thread sleeps until something is true, a time has come, or a signal arrives.
//!
//! A [`WaitQueue`] is a place in memory; its address is the key. Whoever makes something true calls [`WaitQueue::wake`]
//! afterwards. The condition is looked at under the scheduler's lock, so no wake-up is lost; it may only read atomics.

use core::sync::atomic::Ordering;

use super::scheduler::{self, SCHEDULER};
use super::{signal, thread};
use crate::cpu::clock;

/// A place to wait at.
pub struct WaitQueue(#[allow(dead_code)] u8);

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// The condition is true.
    Ready,
    /// The time is over.
    TimedOut,
    /// A signal is pending.
    Interrupted,
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitQueue {
    /// A new place.
    pub const fn new() -> Self {
        Self(0)
    }

    fn key(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    /// Waits until `ready` is true; signals do not disturb it.
    pub fn wait(&self, ready: impl FnMut() -> bool) {
        self.wait_full(ready, None, false);
    }

    /// Waits until `ready` is true or a signal is pending.
    pub fn wait_interruptible(&self, ready: impl FnMut() -> bool) -> Wakeup {
        self.wait_full(ready, None, true)
    }

    /// Waits until `ready` is true, `deadline_ns` (since boot) has come, or, if asked for, a signal is pending.
    #[inline(never)]
    pub fn wait_full(&self, mut ready: impl FnMut() -> bool, deadline_ns: Option<u64>, interruptible: bool) -> Wakeup {
        loop {
            let mut scheduler = SCHEDULER.lock();
            if ready() {
                return Wakeup::Ready;
            }
            if deadline_ns.is_some_and(|deadline| clock::now_ns() >= deadline) {
                return Wakeup::TimedOut;
            }
            if interruptible && signal::is_pending() {
                return Wakeup::Interrupted;
            }
            let me = thread::current_arc();
            me.waiting_on.store(self.key(), Ordering::Relaxed);
            me.blocked.store(true, Ordering::Relaxed);
            me.deadline_ns.store(deadline_ns.unwrap_or(u64::MAX), Ordering::Relaxed);
            if let Some(deadline) = deadline_ns {
                scheduler.sleepers.insert((deadline, me.id), me.clone());
            }
            scheduler.waiting.entry(self.key()).or_default().push(me);
            scheduler::block(scheduler);
        }
    }

    /// Lets all who wait here look at their conditions again. Interrupt or thread context.
    pub fn wake(&self) {
        let mut scheduler = SCHEDULER.lock();
        while let Some(thread) = scheduler.waiting.get(&self.key()).and_then(|threads| threads.first().cloned()) {
            scheduler.end_wait(&thread);
        }
    }
}

static SLEEPING: WaitQueue = WaitQueue::new();

/// Sleeps until `deadline_ns` (since boot) or, if asked for, until a signal is pending.
pub fn sleep_until(deadline_ns: u64, interruptible: bool) -> Wakeup {
    SLEEPING.wait_full(|| false, Some(deadline_ns), interruptible)
}
