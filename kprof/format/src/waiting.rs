//! What tasks do with their time: the names of the points and of the parts of a task's time.
//!
//! In: numbers and names. Out: the other of the two. Runs in: any. Never allocates.
//!
//! ```text
//! # task-times tsc=5f from=1f id=8 running=20 woken=4 blocked.pipe=40 task=dd
//! # point-values tsc=1f values=running,idle,other-tasks,woken,... point=sched.off-cpu
//! ```
//!
//! A task does exactly one thing at a time, so the parts of a line add up to `tsc` - `from`, exactly. Each line goes on
//! where the line before it of the same task has ended.

use crate::table::table;

/// The point of a task's time off its CPU, hit when the task runs again.
pub const OFF_CPU: &str = "sched.off-cpu";
/// The point of the part of that time in which the task was blocked.
pub const BLOCKED: &str = "sched.blocked";
/// The point of the part of that time in which the task was ready to run.
pub const LATENCY: &str = "sched.latency";

table! {
    /// What a task does, apart from being blocked for a reason that the kernel gives.
    pub enum TaskPart {
        /// It runs.
        Running = "running",
        /// It is an idle task and runs.
        Idle = "idle",
        /// It is an idle task, and its CPU runs other tasks.
        OtherTasks = "other-tasks",
        /// It is ready to run since it was created or woken.
        Woken = "woken",
        /// It is ready to run since the kernel took the CPU from it.
        Preempted = "preempted",
        /// It is ready to run since it gave up the CPU.
        Yielded = "yielded",
        /// It is blocked, and the kernel has given no reason.
        Blocked = "blocked",
    }
}

/// The most reasons for which a kernel's tasks are blocked.
pub const MAX_REASONS: usize = 16;
/// The longest name of a reason in bytes.
pub const MAX_REASON_NAME: usize = 16;
/// The name of the time blocked for a reason is this prefix and the reason.
pub const BLOCKED_PREFIX: &str = "blocked.";
/// The number of parts of a task's time: those of [`TaskPart`], then one for each reason.
pub const PARTS: usize = TaskPart::ALL.len() + MAX_REASONS;

/// The part for the reason with this number, from 0; one without a reason if there cannot be so many.
#[inline]
pub const fn blocked_part(reason: usize) -> usize {
    if reason < MAX_REASONS { TaskPart::ALL.len() + reason } else { TaskPart::Blocked as usize }
}

/// Whether a part is time in which the task was blocked.
#[inline]
pub const fn is_blocked(part: usize) -> bool {
    part >= TaskPart::Blocked as usize && part < PARTS
}

/// Whether this can be the name of a reason: 1 to 16 visible ASCII characters, none of them `*`, `=`, or `,`.
///
/// ```
/// use kprof_format::waiting::is_reason;
/// assert!(is_reason("pipe") && !is_reason("a pipe") && !is_reason("a=b") && !is_reason("a,b") && !is_reason(""));
/// ```
pub const fn is_reason(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'=' || bytes[at] == b',' {
            return false;
        }
        at += 1;
    }
    crate::point::is_name(name) && bytes.len() <= MAX_REASON_NAME
}

/// Whether these can be a kernel's reasons.
pub const fn are_reasons(names: &[&str]) -> bool {
    let mut at = 0;
    while at < names.len() {
        if !is_reason(names[at]) {
            return false;
        }
        at += 1;
    }
    names.len() <= MAX_REASONS
}

/// The names of all parts, in order, each as a prefix and a name; `reasons` are those of the kernel.
///
/// ```
/// use kprof_format::waiting::{TaskPart, part_names};
/// let names: Vec<_> = part_names(&["pipe"]).map(|(prefix, name)| format!("{prefix}{name}")).collect();
/// assert_eq!((names.len(), names[TaskPart::Woken as usize].as_str()), (8, "woken"));
/// assert_eq!(names[7], "blocked.pipe");
/// ```
pub fn part_names<'a>(reasons: &'a [&'a str]) -> impl Iterator<Item = (&'static str, &'a str)> {
    let known = TaskPart::ALL.into_iter().map(|part| ("", part.name()));
    known.chain(reasons.iter().take(MAX_REASONS).map(|reason| (BLOCKED_PREFIX, *reason)))
}
