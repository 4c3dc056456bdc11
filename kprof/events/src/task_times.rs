//! What one task does with its time: the state that a kernel keeps in its own structure of the task.
//!
//! In: changes of what the task does, each with the time of the change. Out: the ticks of each part of its time, which
//! add up to the time between two reports exactly; and for each time off the CPU how it was divided. Runs in: any but
//! NMI. A lock for each task, held with interrupts off for a few instructions, keeps a report whole.
//!
//! While tasks are not watched, nothing is noted of them. So what a task does is not known when a watch begins. The
//! first change tells it: a task that leaves its CPU has run since then, one that is woken was blocked since then, and
//! one that is switched to was ready since then, because any other change would have been the first.

use crate::kernel::TaskState;
use kprof::format::waiting::{PARTS, TaskPart, blocked_part, is_blocked};
use kprof::internals::interrupts;

const RUNNING: u8 = TaskPart::Running as u8;
const IDLE: u8 = TaskPart::Idle as u8;
const OTHER_TASKS: u8 = TaskPart::OtherTasks as u8;
const WOKEN: u8 = TaskPart::Woken as u8;
/// Its time does not count: it was created and has not been woken, or it has ended.
const NOTHING: u8 = u8::MAX;

/// What a task does with its time. A kernel has one in its structure of each task, and hands it to
/// [`Events::switched`](crate::Events::switched) and the other calls of its scheduler. With the feature `profiling` off
/// it is empty.
pub struct TaskTimes {
    is_idle: bool,
    times: spin::Mutex<Times>,
}

/// A time that a task was off its CPU, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OffCpu {
    /// What the task did first: a part of its time.
    pub(crate) cause: u8,
    pub(crate) blocked: u64,
    pub(crate) ready: u64,
}

/// What a task did between two TSC times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) parts: [u64; PARTS],
}

struct Times {
    /// The watch for which the rest holds: when it began. 0: none yet.
    watch: u64,
    /// `parts` have the time from here to `since`.
    from: u64,
    /// The task does `part` since then.
    since: u64,
    parts: [u64; PARTS],
    part: u8,
    /// The time off the CPU: since when, what the task did first, and since when it was ready; 0: it was not.
    left: u64,
    cause: u8,
    ready: u64,
    /// The last time off the CPU, until it is taken.
    off_cpu: Option<OffCpu>,
}

impl TaskTimes {
    /// Nothing is known of the task.
    pub const fn new() -> Self {
        Self { is_idle: false, times: spin::Mutex::new(Times::new()) }
    }

    /// As `new`, for a CPU's idle task.
    pub const fn idle() -> Self {
        Self { is_idle: true, times: spin::Mutex::new(Times::new()) }
    }

    fn with<R>(&self, work: impl FnOnce(&mut Times) -> R) -> R {
        interrupts::without(|| work(&mut self.times.lock()))
    }

    /// The task is created. `watch` is the time at which the present watch began.
    pub(crate) fn create(&self, watch: u64) {
        self.with(|times| times.begin(watch, NOTHING));
    }

    /// The task leaves its CPU.
    pub(crate) fn leave(&self, watch: u64, now: u64, becomes: TaskState) {
        let part = if self.is_idle { OTHER_TASKS } else { part_of(becomes) };
        self.with(|times| {
            times.know(watch, now, self.runs());
            times.change(part, now);
            (times.left, times.cause, times.ready) = (times.since, part, 0);
            times.off_cpu = None;
            if !is_blocked(part.into()) {
                times.ready = times.since;
            }
        });
    }

    /// The task gets a CPU.
    pub(crate) fn enter(&self, watch: u64, now: u64) {
        self.with(|times| {
            times.know(watch, now, if self.is_idle { OTHER_TASKS } else { WOKEN });
            let was_off = times.part != self.runs();
            times.change(self.runs(), now);
            if was_off && !self.is_idle {
                let whole = times.since.saturating_sub(times.left);
                let ready = if times.ready == 0 { 0 } else { times.since.saturating_sub(times.ready) };
                times.off_cpu = Some(OffCpu { cause: times.cause, blocked: whole.saturating_sub(ready), ready });
            }
        });
    }

    /// The task is ready again. No change if it was not blocked.
    pub(crate) fn wake(&self, watch: u64, now: u64) {
        self.with(|times| {
            let is_new = times.watch == watch && times.part == NOTHING;
            times.know(watch, now, if is_new { WOKEN } else { TaskPart::Blocked as u8 });
            if is_blocked(times.part.into()) {
                times.change(WOKEN, now);
                times.ready = times.since;
            }
        });
    }

    /// Takes the last time off the CPU.
    pub(crate) fn take_off_cpu(&self) -> Option<OffCpu> {
        self.with(|times| times.off_cpu.take())
    }

    /// Takes what the task did since the last report or since the watch began, up to `now`. `state` is what it does
    /// now, if that is not known. `None`: no time has gone by.
    pub(crate) fn take(&self, watch: u64, now: u64, state: TaskState) -> Option<Report> {
        let part = match state {
            _ if !self.is_idle => part_of(state),
            TaskState::Running => IDLE,
            _ => OTHER_TASKS,
        };
        self.with(|times| {
            if times.watch != watch {
                times.begin(watch, part);
            }
            times.change(times.part, now);
            let report = Report { from: times.from, to: times.since, parts: times.parts };
            (times.from, times.parts) = (times.since, [0; PARTS]);
            (report.from < report.to).then_some(report)
        })
    }

    /// Puts back what was taken and could not be written. It is lost if more was taken meanwhile, or a new watch has
    /// begun.
    pub(crate) fn put_back(&self, watch: u64, report: &Report) {
        self.with(|times| {
            if times.watch == watch && times.from == report.to {
                times.from = report.from;
                times.parts.iter_mut().zip(report.parts).for_each(|(part, told)| *part = part.wrapping_add(told));
            }
        });
    }

    /// What the task does while it has a CPU.
    fn runs(&self) -> u8 {
        if self.is_idle { IDLE } else { RUNNING }
    }
}

impl Default for TaskTimes {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(size_of::<TaskTimes>() == 280, "the documentation says so");

impl Times {
    const fn new() -> Self {
        Self {
            watch: 0,
            from: 0,
            since: 0,
            parts: [0; PARTS],
            part: NOTHING,
            left: 0,
            cause: NOTHING,
            ready: 0,
            off_cpu: None,
        }
    }

    /// Forgets earlier watches.
    fn begin(&mut self, watch: u64, part: u8) {
        *self = Self { watch, from: watch, since: watch, part, left: watch, cause: part, ..Self::new() };
        if !is_blocked(part.into()) {
            self.ready = watch;
        }
    }

    /// If it is not known what the task did: it did `part`, since the watch began, or since now if it is a new task.
    fn know(&mut self, watch: u64, now: u64, part: u8) {
        if self.watch != watch {
            self.begin(watch, part);
        } else if self.part == NOTHING {
            self.begin(watch, part);
            (self.from, self.since, self.left) = (now, now, now);
            self.ready = if self.ready == 0 { 0 } else { now };
        }
    }

    /// The task does something else from now on. The clocks of two CPUs may differ a little: time does not go back.
    fn change(&mut self, part: u8, now: u64) {
        if self.part != NOTHING {
            let now = now.max(self.since);
            if let Some(ticks) = self.parts.get_mut(usize::from(self.part)) {
                *ticks = ticks.wrapping_add(now - self.since);
            }
            self.since = now;
        }
        self.part = part;
    }
}

/// The part of a task's time that this state is.
fn part_of(state: TaskState) -> u8 {
    match state {
        TaskState::Running => RUNNING,
        TaskState::Woken => WOKEN,
        TaskState::Preempted => TaskPart::Preempted as u8,
        TaskState::Yielded => TaskPart::Yielded as u8,
        TaskState::Blocked(reason) => blocked_part(reason.into()) as u8,
        TaskState::Ended => NOTHING,
    }
}

#[cfg(test)]
mod tests;
