//! What threads wait for: the calls of the scheduler.
//!
//! In: what a thread does from now on. Out: kprof's times of the thread, and hits of its points. Runs in: the
//! scheduler, under its lock; `task_resumed` after it, `task_times` in ordinary code. While the points are off, each
//! call is one load and a branch that is not taken.

pub use kprof_events::TaskTimes;

use kprof_events::TaskState;

use super::EVENTS;
use crate::wait::Doing;

/// Called when a thread is made.
#[inline]
pub fn task_created(times: &TaskTimes) {
    EVENTS.created(times);
}

/// Called before the switch from one thread to another, which then does something else.
#[inline]
pub fn task_switched(from: &TaskTimes, to: &TaskTimes, becomes: Doing) {
    EVENTS.switched(from, to, state(becomes));
}

/// Called after a switch, in the thread that runs again.
#[inline]
pub fn task_resumed(times: &TaskTimes) {
    EVENTS.resumed(times);
}

/// Called when a thread is put into the queue of those that are ready.
#[inline]
pub fn task_woken(times: &TaskTimes) {
    EVENTS.woken(times);
}

/// Called before a thread ends or becomes another task, and for each thread when the times are asked for.
#[inline]
pub fn task_times(task: u64, times: &TaskTimes, doing: Doing) {
    EVENTS.task_times(task, times, state(doing));
}

/// The same for kprof.
#[inline]
fn state(doing: Doing) -> TaskState {
    match doing {
        Doing::Running => TaskState::Running,
        Doing::Woken => TaskState::Woken,
        Doing::Preempted => TaskState::Preempted,
        Doing::Yielded => TaskState::Yielded,
        Doing::Blocked(reason) => TaskState::Blocked(reason),
        Doing::Ended => TaskState::Ended,
    }
}
