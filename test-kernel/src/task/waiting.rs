//! How threads wait: the implementation of `crate::wait::WaitQueue`, under the scheduler's lock.

use core::sync::atomic::Ordering;

use super::scheduler::{self, SCHEDULER};
use super::{signal, thread};
use crate::cpu::clock;
use crate::wait::{Reason, Wakeup};

/// Blocks the running thread in the wait queue with this key; see [`crate::wait::WaitQueue::wait_full`].
pub fn wait(
    key: usize,
    reason: Reason,
    ready: &mut dyn FnMut() -> bool,
    deadline_ns: Option<u64>,
    interruptible: bool,
) -> Wakeup {
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
        me.waiting_on.store(key, Ordering::Relaxed);
        me.waits_for.store(reason as u8, Ordering::Relaxed);
        me.blocked.store(true, Ordering::Relaxed);
        me.deadline_ns.store(deadline_ns.unwrap_or(u64::MAX), Ordering::Relaxed);
        if let Some(deadline) = deadline_ns {
            scheduler.sleepers.insert((deadline, me.id), me.clone());
        }
        scheduler.waiting.entry(key).or_default().push(me);
        scheduler::block(scheduler);
    }
}

/// Makes all threads in the wait queue with this key check their conditions again. Runs in: thread or interrupt.
pub fn wake(key: usize) {
    let mut scheduler = SCHEDULER.lock();
    while let Some(thread) = scheduler.waiting.get(&key).and_then(|threads| threads.first().cloned()) {
        scheduler.end_wait(&thread);
    }
}
