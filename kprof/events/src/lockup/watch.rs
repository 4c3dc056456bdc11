//! What the sampler knows of one CPU, to find out whether it is locked up.
//!
//! In: before each tick, what the CPU has shown since the tick before: samples, counters, ticks that it has not taken.
//! Out: the reason why it is locked up, once for each lockup. Runs in: the sampler CPU; no atomics, no pointers, so it
//! is tested on plain numbers.
//!
//! A lockup is a time without any sign of progress. Time counts only while the sampler watches: each step counts as at
//! most a quarter of the time after which a lockup is reported. So a sampler that was away (a virtual machine that was
//! paused, a report on a slow serial port, a rate that is too low) needs at least four ticks to find one.

#[cfg(test)]
mod tests;

use super::places::Places;
use kprof::format::lockup::Reason;
use kprof::format::record::NO_TASK;

/// A sample of a CPU, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) tsc: u64,
    pub(crate) task: u64,
    pub(crate) address: u64,
    pub(crate) interrupts_off: bool,
    /// Kernel code, and not that of the idle task.
    pub(crate) is_at_work: bool,
    /// Where user code was left, if that is known.
    pub(crate) user_instruction: Option<u64>,
}

/// What a CPU has shown since the last check, beside its samples.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    /// Ticks that were sent and not taken.
    pub(crate) pending: u64,
    /// A tick was taken.
    pub(crate) answered: bool,
    /// User code or the idle task ran, or the task was switched.
    pub(crate) progress: bool,
    /// An interrupt was served.
    pub(crate) interrupt: bool,
    /// Ticks that certainly found kernel code of the same task, but have no sample.
    pub(crate) unknown: u64,
}

/// A time without a sign of progress.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// When it began.
    from: u64,
    /// How long the sampler has watched since then.
    watched: u64,
}

/// The state of one CPU.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The counters at the last check.
    pub(crate) before: Counters,
    /// Where the next record of the ring begins.
    pub(crate) position: u64,
    /// Where the newest record begins, if there was one.
    pub(crate) newest: Option<u64>,
    /// When the last check was.
    last: u64,
    /// Kernel code of one task, whether interrupts were off or not.
    one_task: Option<Span>,
    interrupts_off: Option<Span>,
    no_answer: Option<Span>,
    /// The task of `one_task`.
    task: u64,
    /// Where this task has left user code, if that is known.
    user_instruction: Option<u64>,
    ticks: u64,
    unknown: u64,
    places: Places,
    /// This check has seen the CPU at work.
    is_seen: bool,
    has_told_soft: bool,
    has_told_hard: bool,
}

/// The counters of a CPU that show what it has done. The meaning of each is in `kprof/src/account.rs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// The newest tick taken.
    pub(crate) seen: u64,
    /// Ticks of user code and of the idle task that were filtered, and of a halted CPU.
    pub(crate) filtered: u64,
    pub(crate) lost_full: u64,
    pub(crate) lost_torn: u64,
    pub(crate) switches: u64,
    pub(crate) interrupts: u64,
}

impl Watch {
    pub(crate) const fn new() -> Self {
        let before = Counters { seen: 0, filtered: 0, lost_full: 0, lost_torn: 0, switches: 0, interrupts: 0 };
        Self {
            before,
            position: 0,
            newest: None,
            last: 0,
            one_task: None,
            interrupts_off: None,
            no_answer: None,
            task: NO_TASK,
            user_instruction: None,
            ticks: 0,
            unknown: 0,
            places: Places::new(),
            is_seen: false,
            has_told_soft: false,
            has_told_hard: false,
        }
    }

    /// Begins anew, at this time. Records before `position` are not looked at.
    pub(crate) fn restart(&mut self, now: u64, before: Counters, position: u64) {
        let newest = self.newest;
        *self = Self { before, position, newest, last: now, ..Self::new() };
    }

    /// Begins a check. `threshold` is the time after which a lockup is reported.
    pub(crate) fn begin(&mut self, now: u64, threshold: u64) {
        let step = now.saturating_sub(self.last).min(threshold / 4);
        for span in [&mut self.one_task, &mut self.interrupts_off, &mut self.no_answer].into_iter().flatten() {
            span.watched += step;
        }
        self.is_seen = false;
    }

    /// Takes a sample that is new since the last check; the oldest comes first.
    pub(crate) fn sample(&mut self, sample: &Sample) {
        if !sample.is_at_work {
            return self.progress();
        }
        // A task that has left user code at another instruction has run there since: as a program that makes one system
        // call after the other.
        let is_same = |instruction| self.user_instruction.is_none_or(|before| before == instruction);
        if self.task == sample.task && !sample.user_instruction.is_none_or(is_same) {
            self.progress();
        }
        self.user_instruction = sample.user_instruction.or(self.user_instruction);
        self.is_seen = true;
        let begins = Span { from: sample.tsc, watched: 0 };
        if !sample.interrupts_off {
            self.interrupts_off = None;
        }
        if self.task != sample.task && self.task != NO_TASK {
            (self.one_task, self.user_instruction) = (None, sample.user_instruction);
        }
        if self.one_task.is_none() && self.interrupts_off.is_none() {
            self.forget_places();
        }
        self.one_task.get_or_insert(begins);
        if sample.interrupts_off {
            self.interrupts_off.get_or_insert(begins);
        }
        self.task = sample.task;
        self.ticks += 1;
        self.places.add(sample.address);
    }

    /// Ends a check. Returns the reason if the CPU turns out to be locked up, the first time.
    pub(crate) fn end(&mut self, now: u64, shown: &Shown, threshold: u64) -> Option<Reason> {
        let last = core::mem::replace(&mut self.last, now);
        if shown.unknown > 0 {
            self.unknown_ticks(shown.unknown, last);
        }
        if shown.progress {
            self.progress();
        }
        if shown.interrupt {
            self.interrupts_off = None;
        }
        let is_late = |span: &Option<Span>| span.is_some_and(|span| span.watched >= threshold);
        match shown {
            // The tick that is pending was sent right after the last check.
            Shown { pending: 1.., answered: false, .. } => {
                let watched = now.saturating_sub(last).min(threshold / 4);
                self.no_answer.get_or_insert(Span { from: last, watched });
            }
            _ => (self.no_answer, self.has_told_hard) = (None, false),
        }
        if is_late(&self.no_answer) {
            self.progress();
            self.has_told_soft = false;
            return (!core::mem::replace(&mut self.has_told_hard, true)).then_some(Reason::NoAnswer);
        }
        let soft = match (is_late(&self.interrupts_off), is_late(&self.one_task)) {
            (true, _) => Reason::InterruptsOff,
            (_, true) => Reason::OneTask,
            _ => {
                self.has_told_soft = false;
                return None;
            }
        };
        (self.is_seen && !core::mem::replace(&mut self.has_told_soft, true)).then_some(soft)
    }

    /// What was found, for this reason. `pending` is the number of ticks that were not taken.
    pub(crate) fn found(&self, reason: Reason, pending: u64) -> Found {
        let span = match reason {
            Reason::InterruptsOff => self.interrupts_off,
            Reason::OneTask => self.one_task,
            Reason::NoAnswer => self.no_answer,
        };
        let from = span.map_or(self.last, |span| span.from);
        let (tsc, task, ticks, unknown, places) = match reason {
            Reason::NoAnswer => (self.last, NO_TASK, pending, pending, Places::new()),
            _ => (self.last, self.task, self.ticks, self.unknown, self.places),
        };
        Found { reason, tsc, from, task, ticks, unknown, places, holder: None }
    }

    /// Ticks without a sample, since `last` at the latest.
    fn unknown_ticks(&mut self, ticks: u64, last: u64) {
        // Whether interrupts were off is not known.
        self.interrupts_off = None;
        if self.one_task.is_none() {
            self.forget_places();
            self.task = NO_TASK;
        }
        self.one_task.get_or_insert(Span { from: last, watched: 0 });
        self.ticks += ticks;
        self.unknown += ticks;
        self.is_seen = true;
    }

    fn progress(&mut self) {
        (self.one_task, self.interrupts_off, self.task, self.user_instruction) = (None, None, NO_TASK, None);
    }

    fn forget_places(&mut self) {
        (self.ticks, self.unknown, self.places) = (0, 0, Places::new());
    }
}

/// A lockup that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) reason: Reason,
    /// When it was found, and since when there was no sign of progress.
    pub(crate) tsc: u64,
    pub(crate) from: u64,
    /// [`NO_TASK`] if it is not known.
    pub(crate) task: u64,
    pub(crate) ticks: u64,
    /// Those of the ticks that have no address.
    pub(crate) unknown: u64,
    pub(crate) places: Places,
    /// The lock that the CPU waits for, and the CPU on which it was taken, if that is known.
    pub(crate) holder: Option<(u64, u64)>,
}
