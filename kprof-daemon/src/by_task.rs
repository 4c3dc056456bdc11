//! Counts of context switches, page faults and interrupts by task: what `kprof-record stat` prints below the counts of
//! all tasks together.
//!
//! In: the text of event records, `EVENT=COUNT EVENT=COUNT ...`, and the task's name. Out: sums by task name. Runs in:
//! user process. Bounded: after [`ByTask::LIMIT`] task names, all new task names share one row.

use kprof_format::line::Events;
use kprof_format::record::{EVENT_NAMES, OTHER_TASKS_NAME};
use kprof_format::text::unescaped;
use std::collections::BTreeMap;

/// Sums of events by the (escaped) name of the task.
#[derive(Debug, Default)]
pub struct ByTask {
    rows: BTreeMap<Vec<u8>, [u64; EVENT_NAMES.len()]>,
}

impl ByTask {
    /// The number of task names that have a row of their own.
    pub const LIMIT: usize = 4096;

    /// Adds the counts in `text`. A word that is not `NAME=COUNT` of a known event is ignored.
    pub fn add(&mut self, task: &[u8], text: &[u8]) {
        let has_room = self.rows.len() < Self::LIMIT || self.rows.contains_key(task);
        let row = self.rows.entry(if has_room { task } else { OTHER_TASKS_NAME }.to_vec()).or_default();
        let text = String::from_utf8_lossy(text);
        for (name, count) in Events::counters_of(&text).in_text() {
            if let Some((sum, _)) = row.iter_mut().zip(EVENT_NAMES).find(|(_, event)| *event == name) {
                *sum = sum.saturating_add(count);
            }
        }
    }

    /// Name (not escaped) and counts in the order of [`EVENT_NAMES`], most first.
    pub fn table(&self) -> Vec<(String, [u64; EVENT_NAMES.len()])> {
        let shown = |name: &[u8]| String::from_utf8_lossy(&unescaped(name).collect::<Vec<u8>>()).into_owned();
        let mut table: Vec<_> = self.rows.iter().map(|(name, row)| (shown(name), *row)).collect();
        table.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n))));
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_task_add_up_over_records_and_cpus() {
        let mut events = ByTask::default();
        events.add(b"sh", b"context-switches=2 page-faults=5 interrupts=0");
        events.add(b"idle%201", b"context-switches=1 page-faults=1 interrupts=1");
        events.add(b"sh", b"context-switches=1 page-faults=x new-event=7");
        let table = events.table();
        assert_eq!(table, [("sh".to_owned(), [3, 5, 0]), ("idle 1".to_owned(), [1, 1, 1])]);
    }

    #[test]
    fn a_flood_of_names_stays_bounded_and_loses_nothing() {
        let mut events = ByTask::default();
        (0..10_000).for_each(|name: u32| events.add(name.to_string().as_bytes(), b"interrupts=1"));
        let table = events.table();
        assert!(table.len() <= ByTask::LIMIT + 1);
        assert_eq!(table.iter().map(|(_, counts)| counts[2]).sum::<u64>(), 10_000);
        assert_eq!(table[0].0.as_bytes(), OTHER_TASKS_NAME);
    }
}
