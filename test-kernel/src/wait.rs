//! Waiting: a thread sleeps until a condition is true, a time is reached, or a signal arrives.
//!
//! The address of a [`WaitQueue`] is its key. Code that makes a condition true calls [`WaitQueue::wake`] afterwards.
//! The condition is checked under the scheduler's lock, so no wake-up is lost; it may only read atomics. This is one of
//! the lowest modules, because files and devices wait too. The scheduler sets its functions with [`install`].

/// Whether a thread need not wait any longer. It may only read atomics.
type Condition<'a> = &'a mut dyn FnMut() -> bool;

/// Pointers to the scheduler's functions that block and wake threads: the scheduler is a higher module, on which
/// this one must not depend.
pub struct Scheduler {
    /// Blocks the running thread in the queue with this key until the condition holds, the deadline is reached, or, if
    /// requested, a signal is pending.
    pub wait: fn(usize, Reason, Condition<'_>, Option<u64>, bool) -> Wakeup,
    /// Makes all threads in the queue with this key check their conditions again.
    pub wake: fn(usize),
}

static SCHEDULER: spin::Once<Scheduler> = spin::Once::new();

/// Sets the functions of the scheduler. Called before the first thread runs; later calls have no effect.
pub fn install(scheduler: Scheduler) {
    SCHEDULER.call_once(|| scheduler);
}

/// A queue of waiting threads, and what they wait for.
pub struct WaitQueue(Reason);

/// What threads wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// A time.
    Sleep,
    /// Data or space in a pipe.
    Pipe,
    /// A child process.
    Child,
    /// A lock of a file.
    FileLock,
    /// A signal.
    Signal,
    /// A device's answer, or space in its queue.
    Device,
    /// Records of the profiler.
    Records,
    /// Another thread of a workload.
    Workload,
}

impl Reason {
    /// The names of all reasons, by number.
    pub const NAMES: &[&str] = &["sleep", "pipe", "child", "file-lock", "signal", "device", "records", "workload"];
}

/// What a thread does from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It runs.
    Running,
    /// It is ready to run: it was woken.
    Woken,
    /// It is ready to run: its slice is over, or a thread that was woken runs before it.
    Preempted,
    /// It is ready to run: it has given up the CPU.
    Yielded,
    /// It waits for the [`Reason`] with this number.
    Blocked(u8),
    /// It has ended.
    Ended,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// The condition is true.
    Ready,
    /// The deadline is reached.
    TimedOut,
    /// A signal is pending.
    Interrupted,
}

impl WaitQueue {
    /// A new queue, in which threads wait for this.
    pub const fn new(reason: Reason) -> Self {
        Self(reason)
    }

    fn key(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    /// Waits until `ready` is true. Signals do not end the wait.
    pub fn wait(&self, ready: impl FnMut() -> bool) {
        self.wait_full(ready, None, false);
    }

    /// Waits until `ready` is true or a signal is pending.
    pub fn wait_interruptible(&self, ready: impl FnMut() -> bool) -> Wakeup {
        self.wait_full(ready, None, true)
    }

    /// Waits until `ready` is true, `deadline_ns` (since boot) is reached, or, if requested, a signal is pending.
    #[inline(never)]
    pub fn wait_full(&self, mut ready: impl FnMut() -> bool, deadline_ns: Option<u64>, interruptible: bool) -> Wakeup {
        let scheduler = SCHEDULER.get().expect("nothing waits before there is a scheduler");
        (scheduler.wait)(self.key(), self.0, &mut ready, deadline_ns, interruptible)
    }

    /// Makes all threads in this queue check their conditions again. Runs in: thread or interrupt.
    pub fn wake(&self) {
        if let Some(scheduler) = SCHEDULER.get() {
            (scheduler.wake)(self.key());
        }
    }
}

static SLEEPING: WaitQueue = WaitQueue::new(Reason::Sleep);

/// Sleeps until `deadline_ns` (since boot) or, if requested, until a signal is pending.
pub fn sleep_until(deadline_ns: u64, interruptible: bool) -> Wakeup {
    SLEEPING.wait_full(|| false, Some(deadline_ns), interruptible)
}
