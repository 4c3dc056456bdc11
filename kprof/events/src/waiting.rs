//! What tasks wait for: the calls of the kernel's scheduler.
//!
//! In: that a task leaves its CPU, is woken, gets a CPU, runs again; the kernel's state of that task. Out: for each
//! time off the CPU hits of the points `sched.off-cpu`, `sched.blocked` and `sched.latency`, with the stack of the task
//! that was off; records of [`Kind::TaskTimes`]. Runs in: the scheduler, with its locks held and interrupts off; never
//! an NMI. It takes the lock of one task at a time. While the three points are off, only the load of one word remains.
//!
//! A hit comes when the task runs again, in the task itself: its stack is then the one that it had when it left, its
//! duration is known, and nothing has to be stored meanwhile but five words in the kernel's state of the task.

use crate::events::Events;
use crate::kernel::{EventKernel, TaskState};
use crate::points::{BLOCKED, LATENCY, OFF_CPU, POINTS, WAITS, handle, own_frame};
use crate::task_times::{Report, TaskTimes};
use core::fmt::Write;
use kprof::clock::ticks_to_ns;
use kprof::format::record::Kind;
use kprof::format::waiting::{are_reasons, is_blocked, part_names};
use kprof::internals::{MAX_TEXT, timestamp};

/// See [`crate::Events::created`].
#[cold]
#[inline(never)]
pub(crate) fn created(times: &TaskTimes) {
    if let Some(watch) = WAITS.begun() {
        times.create(watch);
    }
}

/// See [`crate::Events::switched`].
#[cold]
#[inline(never)]
pub(crate) fn switched<K: EventKernel>(
    events: &'static Events<K>,
    from: &TaskTimes,
    to: &TaskTimes,
    becomes: TaskState,
) {
    if events.state.wait_reasons.get().is_none() {
        list(events);
    }
    let Some(watch) = WAITS.begun() else { return };
    // One time for both, so that the CPU is never without a task.
    let now = timestamp::read();
    from.leave(watch, now, known::<K>(becomes));
    to.enter(watch, now);
}

/// See [`crate::Events::woken`].
#[cold]
#[inline(never)]
pub(crate) fn woken(times: &TaskTimes) {
    if let Some(watch) = WAITS.begun() {
        times.wake(watch, timestamp::read());
    }
}

/// See [`crate::Events::resumed`]. It is a function of its own, so that the walk can begin at its frame.
#[cold]
#[inline(never)]
pub(crate) fn resumed<K: EventKernel>(events: &'static Events<K>, times: &TaskTimes) {
    let Some(off) = times.take_off_cpu() else { return };
    let ns = |ticks| ticks_to_ns(ticks, events.state.tsc_hz());
    // Rounded so that the two parts add up to the whole.
    let (whole, ready) = (ns(off.blocked.saturating_add(off.ready)), ns(off.ready));
    let (cause, frame) = (u64::from(off.cause), own_frame());
    handle(events, &OFF_CPU, whole, &[cause, ready], OFF_CPU.state_word(), frame);
    // All with the same number of arguments, so that the kernel has one copy of what records them.
    handle(events, &LATENCY, ready, &[cause, whole], LATENCY.state_word(), frame);
    if is_blocked(off.cause.into()) {
        handle(events, &BLOCKED, whole.saturating_sub(ready), &[cause, whole], BLOCKED.state_word(), frame);
    }
}

/// See [`crate::Events::task_times`].
#[inline(never)]
pub(crate) fn report<K: EventKernel>(events: &'static Events<K>, id: u64, times: &TaskTimes, state: TaskState) {
    let Some(watch) = WAITS.last() else { return };
    let now = watch.ended.unwrap_or_else(timestamp::read);
    if let Some(report) = times.take(watch.begun, now, known::<K>(state))
        && !events.state.meta().put(Kind::TaskTimes, [id, report.from, report.to], &text(K::WAIT_REASONS, &report))
    {
        times.put_back(watch.begun, &report);
    }
}

/// A state with a reason that the kernel has named, or with none.
fn known<K: EventKernel>(state: TaskState) -> TaskState {
    match state {
        TaskState::Blocked(reason) if usize::from(reason) >= K::WAIT_REASONS.len() => TaskState::Blocked(u8::MAX),
        known => known,
    }
}

/// The parts of a report that are not 0, as `NAME=TICKS`.
fn text(reasons: &[&str], report: &Report) -> heapless::String<MAX_TEXT> {
    let mut text = heapless::String::new();
    let parts = part_names(reasons).zip(report.parts).filter(|(_, ticks)| *ticks > 0);
    // It fits: there are at most 23 names of at most 24 bytes, each with at most 20 digits.
    for ((prefix, name), ticks) in parts {
        let _ = write!(text, " {prefix}{name}={ticks}");
    }
    text
}

/// Puts the points into the list, at the first switch after `init`.
#[cold]
#[inline(never)]
fn list<K: EventKernel>(events: &'static Events<K>) {
    const { assert!(are_reasons(K::WAIT_REASONS), "at most 16 reasons, each a short name") };
    if events.state.config().is_none() {
        return;
    }
    events.state.wait_reasons.call_once(|| K::WAIT_REASONS);
    for point in WAITS.points() {
        POINTS.list(point);
        events.state.tell_point(point);
    }
}
