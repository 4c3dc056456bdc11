//! What a task did with its time: how long it ran, was ready to run, and was blocked for which reason. Stage: read.
//!
//! In: the lines `# task-times`, each with what the task did since the line before. Out: sums over a boot, and whether
//! they are the whole time, to the tick.

use kprof_format::line::TaskTimes as Line;
use kprof_format::waiting::{BLOCKED_PREFIX, TaskPart};
use std::collections::BTreeMap;

/// The time of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskTimes {
    /// The ticks of each part, by its name.
    pub parts: BTreeMap<String, u64>,
    /// The time of all lines, by their ends.
    pub wall: u64,
    /// The TSC time that the lines cover, from the first to the last.
    pub covered: Option<(u64, u64)>,
    /// Lines whose parts are not their time, and times between two lines.
    pub faults: u64,
}

impl TaskTimes {
    /// Adds a line.
    pub fn add(&mut self, line: &Line<'_>) {
        let (from, to) = (line.from.0, line.tsc.0);
        let mut sum = 0_u64;
        for (name, ticks) in line.counters.in_text() {
            sum = sum.saturating_add(ticks);
            let part = self.parts.entry(name.to_owned()).or_default();
            *part = part.saturating_add(ticks);
        }
        let is_whole = to.checked_sub(from) == Some(sum);
        let goes_on = self.covered.is_none_or(|(_, end)| end == from);
        self.faults += u64::from(!is_whole) + u64::from(!goes_on);
        self.wall = self.wall.saturating_add(to.saturating_sub(from));
        self.covered = Some(self.covered.map_or((from, to), |(first, last)| (first.min(from), last.max(to))));
    }

    /// Adds the time of another task, or of a later part of this one.
    pub fn add_times(&mut self, other: &Self) {
        for (name, ticks) in &other.parts {
            let part = self.parts.entry(name.clone()).or_default();
            *part = part.saturating_add(*ticks);
        }
        self.wall = self.wall.saturating_add(other.wall);
        self.faults = self.faults.saturating_add(other.faults);
        if let Some((from, to)) = other.covered {
            self.covered = Some(self.covered.map_or((from, to), |(first, last)| (first.min(from), last.max(to))));
        }
    }

    /// The ticks of a part; 0 if there are none.
    pub fn part(&self, part: TaskPart) -> u64 {
        self.parts.get(part.name()).copied().unwrap_or(0)
    }

    /// The ticks in which the task was ready to run, and others ran.
    pub fn ready(&self) -> u64 {
        let parts = [TaskPart::Woken, TaskPart::Preempted, TaskPart::Yielded];
        parts.into_iter().fold(0, |sum, part| sum.saturating_add(self.part(part)))
    }

    /// The ticks in which the task was blocked, by reason; without one first.
    pub fn blocked(&self) -> impl Iterator<Item = (&str, u64)> {
        self.parts.iter().filter_map(|(name, ticks)| match name.strip_prefix(BLOCKED_PREFIX) {
            Some(reason) => Some((reason, *ticks)),
            None => (name == TaskPart::Blocked.name()).then_some(("[not known]", *ticks)),
        })
    }

    /// Whether every line's parts are its time, and each line begins where the one before it has ended.
    pub fn is_balanced(&self) -> bool {
        self.faults == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(lines: &[&str]) -> TaskTimes {
        let mut times = TaskTimes::default();
        lines.iter().for_each(|line| times.add(&Line::read(line).expect("a line")));
        times
    }

    #[test]
    fn lines_are_added_up_and_are_the_whole_time() {
        let times = times(&[
            "tsc=20 from=10 id=8 running=10 woken=6 task=dd",
            "tsc=60 from=20 id=8 preempted=4 blocked.pipe=40 blocked=20 task=dd",
        ]);
        assert_eq!((times.wall, times.covered, times.is_balanced()), (0x50, Some((0x10, 0x60)), true));
        assert_eq!((times.part(TaskPart::Running), times.ready()), (10, 10));
        assert_eq!(times.blocked().collect::<Vec<_>>(), [("[not known]", 20), ("pipe", 40)]);
        assert_eq!(times.parts.values().sum::<u64>(), times.wall);
    }

    #[test]
    fn a_tick_too_few_and_a_time_between_two_lines_are_noticed() {
        assert!(!times(&["tsc=20 from=10 id=8 running=15 task=dd"]).is_balanced());
        assert!(
            !times(&["tsc=20 from=10 id=8 running=16 task=dd", "tsc=22 from=21 id=8 running=1 task=dd"]).is_balanced()
        );
        assert!(!times(&["tsc=10 from=20 id=8 task=dd"]).is_balanced());
    }
}
