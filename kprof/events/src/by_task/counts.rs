//! Counts the context switches, page faults and interrupts of a CPU, by task.
//!
//! In: one call for each event, on that CPU, interrupts off. Out: totals since boot, and counts by task, which are
//! reset when they are taken. Runs in: ordinary code and interrupts, never an NMI. Bounded: between two takes, a CPU
//! has separate counts for [`TASKS`] tasks; all other tasks share one count.

use crate::event::Event;
use crate::sync::{AtomicU64, Ordering};
use core::sync::atomic::AtomicBool;
use kprof::format::counter::Counter;
use kprof::format::record::{EVENT_NAMES, OTHER_TASKS};

/// The number of tasks that have counts of their own on a CPU.
const TASKS: usize = 31;
/// Entries of counts by task: one for each of these tasks, and the shared one.
const ENTRIES: usize = TASKS + 1;

/// One CPU's counts.
pub(crate) struct TaskCounts {
    totals: [AtomicU64; EVENT_NAMES.len()],
    /// The last entry is shared by all tasks that found no free entry.
    tasks: [Counts; ENTRIES],
    /// Counts are being taken, so no entry is given to another task.
    taking: AtomicBool,
}

/// The counts of one task on one CPU.
struct Counts {
    /// Set only by the CPU itself, interrupts off, while all counts here are 0.
    task: AtomicU64,
    events: [AtomicU64; EVENT_NAMES.len()],
}

impl TaskCounts {
    pub(crate) const fn new() -> Self {
        Self {
            totals: [const { AtomicU64::new(0) }; EVENT_NAMES.len()],
            tasks: [const {
                Counts { task: AtomicU64::new(OTHER_TASKS), events: [const { AtomicU64::new(0) }; EVENT_NAMES.len()] }
            }; ENTRIES],
            taking: AtomicBool::new(false),
        }
    }

    /// The totals since boot, by name.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (Counter, u64)> {
        Counter::EVENTS.into_iter().zip(&self.totals).map(|(counter, total)| (counter, total.load(Ordering::Relaxed)))
    }

    /// Counts one event. Must run on this CPU, with interrupts off.
    pub(crate) fn add(&self, event: Event, task: Option<u64>) {
        self.totals[event as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(counts) = task.and_then(|task| self.entry(task)) {
            // Release: whoever takes the count sees which task it belongs to.
            counts.events[event as usize].fetch_add(1, Ordering::Release);
        }
    }

    /// The entry of a task: its own, else one whose counts are all 0, else the shared one.
    fn entry(&self, task: u64) -> Option<&Counts> {
        let (others, entries) = self.tasks.split_last()?;
        let is_its_own = |entry: &&Counts| entry.task.load(Ordering::Relaxed) == task;
        entries.iter().find(is_its_own).or_else(|| {
            let is_free = |entry: &&Counts| entry.is_zero() && !self.taking.load(Ordering::SeqCst);
            let free = entries.iter().find(is_free);
            free.inspect(|entry| entry.task.store(task, Ordering::Relaxed)).or(Some(others))
        })
    }

    /// Takes all counts by task: passes task and counts to `write`, and keeps what it could not write. Only one caller
    /// at a time.
    pub(crate) fn take(&self, mut write: impl FnMut(u64, [u64; EVENT_NAMES.len()]) -> bool) {
        self.taking.swap(true, Ordering::SeqCst);
        for entry in self.tasks.iter().filter(|entry| !entry.is_zero()) {
            let task = entry.task.load(Ordering::Acquire);
            let counts = entry.events.each_ref().map(|count| count.swap(0, Ordering::AcqRel));
            // The CPU may have been giving this entry to another task when `taking` was set, at most once. Its counts
            // were 0 then, so what was taken belongs to the new task. It is put back, and taken the next time.
            let is_still_its_own = entry.task.load(Ordering::Acquire) == task;
            if !is_still_its_own || !write(task, counts) {
                for (count, taken) in entry.events.iter().zip(counts) {
                    count.fetch_add(taken, Ordering::Release);
                }
            }
        }
        self.taking.store(false, Ordering::SeqCst);
    }
}

impl Counts {
    fn is_zero(&self) -> bool {
        self.events.iter().all(|count| count.load(Ordering::Acquire) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(events: &TaskCounts) -> Vec<(u64, [u64; 3])> {
        let mut all = Vec::new();
        events.take(|task, counts| {
            all.push((task, counts));
            true
        });
        all
    }

    #[test]
    fn each_task_has_its_counts_and_they_are_taken_once() {
        let events = TaskCounts::new();
        for (event, task) in [(Event::ContextSwitch, 7), (Event::PageFault, 9), (Event::PageFault, 7)] {
            events.add(event, Some(task));
        }
        events.add(Event::Interrupt, None);
        assert_eq!(taken(&events), [(7, [1, 1, 0]), (9, [0, 1, 0])]);
        assert_eq!(taken(&events), []);
        let totals: Vec<u64> = events.totals().map(|(_, total)| total).collect();
        assert_eq!(totals, [1, 2, 1], "totals also count what no task is known for, and are never taken");
    }

    #[test]
    fn tasks_without_a_place_share_one_and_places_are_used_again() {
        let events = TaskCounts::new();
        (0..100).for_each(|task| events.add(Event::Interrupt, Some(task)));
        let first = taken(&events);
        assert_eq!(first.len(), TASKS + 1);
        assert_eq!(first[TASKS], (OTHER_TASKS, [0, 0, 100 - TASKS as u64]));
        (100..110).for_each(|task| events.add(Event::Interrupt, Some(task)));
        assert_eq!(taken(&events), (100..110).map(|task| (task, [0, 0, 1])).collect::<Vec<_>>());
    }

    #[test]
    fn what_cannot_be_written_is_kept() {
        let events = TaskCounts::new();
        events.add(Event::PageFault, Some(7));
        events.take(|_, _| false);
        events.add(Event::PageFault, Some(7));
        assert_eq!(taken(&events), [(7, [0, 2, 0])]);
    }

    #[test]
    fn nothing_is_lost_or_given_to_another_task_while_it_is_taken() {
        const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let (events, done) = (TaskCounts::new(), AtomicU64::new(0));
        let mut all = std::collections::HashMap::<u64, u64>::new();
        std::thread::scope(|scope| {
            // Tasks that run only once. The number of events of each follows from its task number.
            scope.spawn(|| {
                for task in 0..ROUNDS {
                    (0..task % 3 + 1).for_each(|_| events.add(Event::Interrupt, Some(task)));
                }
                done.store(1, Ordering::Release);
            });
            loop {
                let last = done.load(Ordering::Acquire) == 1;
                taken(&events).into_iter().for_each(|(task, counts)| *all.entry(task).or_default() += counts[2]);
                if last {
                    break;
                }
            }
        });
        assert_eq!(all.values().sum::<u64>(), (0..ROUNDS).map(|task| task % 3 + 1).sum::<u64>());
        let wrong = all.iter().find(|(task, count)| **task != OTHER_TASKS && **count > *task % 3 + 1);
        assert_eq!(wrong, None);
    }
}
