//! Overview: what `info` says of the samples, in memory that does not grow with them. Stage: fold; a consumer like the
//! tally.
//!
//! In: samples, which are provisional until their batch ends. Out: the number of samples of each task, the times
//! between samples of each CPU, and the first kernel samples of each CPU for the aliasing check. What is provisional is
//! counted apart, and added or dropped when its batch ends.

use crate::by_address::AddressHasher;
use crate::intervals::Intervals;
use crate::read::consumer::{Consumer, Sample};
use crate::read::escape::unescape;
use crate::stacks::Stacks;
use crate::symbols::name::visible;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// Kernel samples of each CPU that are checked for aliasing: the first two minutes at 1 kHz. More would find smaller
/// effects, and take 16 bytes each.
pub const CHECKED: usize = 1 << 17;

/// What is known of a CPU in one boot.
#[derive(Debug, Default)]
struct Cpu {
    boot: usize,
    cpu: u32,
    /// The time of the last sample, and of the last one that is no longer provisional.
    last: Option<u64>,
    certain_last: Option<u64>,
    /// Time and stack of the first kernel samples, and how many of them are no longer provisional.
    first: Vec<(u64, u64)>,
    certain: usize,
    is_open: bool,
}

/// The samples of a task: those that count, and those that are provisional.
#[derive(Debug, Default)]
struct Task {
    name: String,
    certain: u64,
    open: u64,
}

/// The overview.
#[derive(Debug, Default)]
pub struct Overview {
    /// The times between two samples of a CPU.
    pub intervals: Intervals,
    open_intervals: Intervals,
    tasks: Vec<Task>,
    numbers: HashMap<Vec<u8>, usize, BuildHasherDefault<AddressHasher>>,
    cpus: Vec<Cpu>,
    /// CPUs and tasks with provisional samples.
    open_cpus: Vec<usize>,
    open_tasks: Vec<usize>,
    /// The CPU of the last sample.
    last: usize,
}

impl Overview {
    /// The tasks with their samples, most samples first.
    pub fn tasks(&self) -> Vec<(&str, u64)> {
        let counted = self.tasks.iter().filter(|task| task.certain > 0);
        let mut tasks: Vec<_> = counted.map(|task| (&task.name[..], task.certain)).collect();
        tasks.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        tasks
    }

    /// Time and innermost address of the first kernel samples of each CPU, and whether a CPU may have more of them.
    pub fn places(&mut self, stacks: &Stacks) -> (Vec<Vec<(u64, u64)>>, bool) {
        self.cpus.sort_by_key(|cpu| (cpu.boot, cpu.cpu));
        let is_part = self.cpus.iter().any(|cpu| cpu.first.len() == CHECKED);
        let mut words = Vec::new();
        let mut innermost: Vec<Option<u64>> = vec![None; stacks.len()];
        let mut places: Vec<Vec<(u64, u64)>> = self.cpus.iter_mut().map(|cpu| std::mem::take(&mut cpu.first)).collect();
        for samples in &mut places {
            for (_, stack) in samples.iter_mut() {
                *stack = *innermost[*stack as usize].get_or_insert_with(|| {
                    stacks.words(*stack as u32, &mut words);
                    words.first().copied().unwrap_or(0)
                });
            }
            samples.sort_unstable();
        }
        (places, is_part)
    }

    #[inline]
    fn cpu(&mut self, boot: usize, cpu: u32) -> &mut Cpu {
        let is_same = |one: &Cpu| one.boot == boot && one.cpu == cpu;
        if !self.cpus.get(self.last).is_some_and(is_same) {
            self.last = self.cpus.iter().position(is_same).unwrap_or_else(|| {
                self.cpus.push(Cpu { boot, cpu, ..Cpu::default() });
                self.cpus.len() - 1
            });
        }
        if !self.cpus[self.last].is_open {
            self.cpus[self.last].is_open = true;
            self.open_cpus.push(self.last);
        }
        &mut self.cpus[self.last]
    }

    fn task(&mut self, name: &[u8]) -> &mut Task {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => {
                let shown = visible(&String::from_utf8_lossy(&unescape(name))).into_owned();
                self.tasks.push(Task { name: shown, ..Task::default() });
                self.numbers.insert(name.to_vec(), self.tasks.len() - 1);
                self.tasks.len() - 1
            }
        };
        if self.tasks[number].open == 0 {
            self.open_tasks.push(number);
        }
        &mut self.tasks[number]
    }
}

impl Consumer for Overview {
    fn sample(&mut self, sample: &Sample<'_>) {
        self.task(sample.task).open += 1;
        let cpu = self.cpu(sample.boot, sample.cpu);
        if sample.traits.is_kernel() && cpu.first.len() < CHECKED {
            cpu.first.push((sample.tsc, u64::from(sample.stack)));
        }
        // Samples of one CPU come in the order of time, except where a part is read again later.
        if let Some(before) = cpu.last.replace(sample.tsc).filter(|before| *before <= sample.tsc) {
            self.open_intervals.add(sample.tsc - before);
        }
    }

    fn commit(&mut self) {
        self.intervals.take(&mut self.open_intervals);
        for task in self.open_tasks.drain(..) {
            self.tasks[task].certain += std::mem::take(&mut self.tasks[task].open);
        }
        for cpu in self.open_cpus.drain(..) {
            let cpu = &mut self.cpus[cpu];
            (cpu.certain, cpu.certain_last, cpu.is_open) = (cpu.first.len(), cpu.last, false);
        }
    }

    fn discard(&mut self) {
        self.open_intervals.clear();
        for task in self.open_tasks.drain(..) {
            self.tasks[task].open = 0;
        }
        for cpu in self.open_cpus.drain(..) {
            let cpu = &mut self.cpus[cpu];
            cpu.first.truncate(cpu.certain);
            (cpu.last, cpu.is_open) = (cpu.certain_last, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::hex::hex64;
    use crate::stacks::{Encoding, Traits, hash};

    #[test]
    fn only_what_was_committed_is_counted_and_places_are_those_of_the_kernel() {
        let mut stacks = Stacks::new(Encoding::Hex);
        for bytes in [&b"ffffffff80001000"[..], b"1000"] {
            stacks.insert_parsed(bytes, hash(bytes), &[hex64(bytes).expect("is hex")]);
        }
        let mut overview = Overview::default();
        let sample = |overview: &mut Overview, task: &str, tsc, stack| {
            let (task, traits) = (task.as_bytes(), Traits::of(&[[0xffff_ffff_8000_1000, 0x1000][stack as usize]]));
            overview.sample(&Sample { boot: 0, task, cpu: 3, tsc, stack, traits });
        };
        for (batch, counts) in [true, false, true].into_iter().enumerate() {
            let from = batch as u64 * 1000;
            sample(&mut overview, "a", from, 0);
            sample(&mut overview, "a", from + 10, 1);
            sample(&mut overview, ["b", "c", "d%20e"][batch], from + 30, 0);
            if counts { overview.commit() } else { overview.discard() }
        }
        assert_eq!(overview.tasks(), [("a", 4), ("b", 1), ("d e", 1)]);
        let intervals: Vec<_> = overview.intervals.iter().map(|(interval, count)| (interval as u64, count)).collect();
        assert_eq!(intervals, [(10, 2), (20, 2), (1970, 1)]);
        let place = 0xffff_ffff_8000_1000;
        let expected = vec![vec![(0, place), (30, place), (2000, place), (2030, place)]];
        assert_eq!(overview.places(&stacks), (expected, false));
    }
}
