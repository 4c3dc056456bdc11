//! Waiting: a thread sleeps until something is true, a time has come, or a signal arrives.
//!
//! A [`WaitQueue`] is a place in memory; its address is the key. Whoever makes something true calls [`WaitQueue::wake`]
//! afterwards. The condition is looked at under the scheduler's lock, so no wake-up is lost; it may only read atomics.
//! On the ground floor, because files and devices wait too; the scheduler installs itself.

/// What the scheduler does for those who wait.
pub struct Scheduler {
    /// Blocks the running thread at the place with this key until the condition holds, the deadline has come, or, if
    /// asked for, a signal is pending.
    pub wait: fn(usize, &mut dyn FnMut() -> bool, Option<u64>, bool) -> Wakeup,
    /// Lets all who wait at the place with this key look again.
    pub wake: fn(usize),
}

static SCHEDULER: spin::Once<Scheduler> = spin::Once::new();

/// Says who makes threads wait. Before the first thread runs; later calls change nothing.
pub fn install(scheduler: Scheduler) {
    SCHEDULER.call_once(|| scheduler);
}

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
        let scheduler = SCHEDULER.get().expect("nothing waits before there is a scheduler");
        (scheduler.wait)(self.key(), &mut ready, deadline_ns, interruptible)
    }

    /// Lets all who wait here look at their conditions again. Interrupt or thread context.
    pub fn wake(&self) {
        if let Some(scheduler) = SCHEDULER.get() {
            (scheduler.wake)(self.key());
        }
    }
}

static SLEEPING: WaitQueue = WaitQueue::new();

/// Sleeps until `deadline_ns` (since boot) or, if asked for, until a signal is pending.
pub fn sleep_until(deadline_ns: u64, interruptible: bool) -> Wakeup {
    SLEEPING.wait_full(|| false, Some(deadline_ns), interruptible)
}
