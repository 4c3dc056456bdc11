//! Tally: counts how often each stack was seen. Stage: fold; this is the consumer on the fast path.
//!
//! In: samples, which are provisional until their batch ends. Out: a count per stack, or per stack and group.
//! Discarding a batch takes the same small memory for any size of batch: one bit per batch says whether it counts. Each
//! cell keeps the samples of its last batch apart, with that batch's number. When a later batch reaches the cell, the
//! bit decides whether they are added.

use crate::read::consumer::{Consumer, Sample};
use crate::read::escape::unescape;
use crate::select::Select;
use crate::stacks::StackId;
use std::collections::HashMap;

/// What the root frame of each stack is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// No root frame is added.
    #[default]
    None,
    /// The task's name.
    Task,
    /// The CPU.
    Cpu,
    /// The innermost entry into the kernel: a system call, an interrupt, an exception.
    Entry,
    /// Why the task was off its CPU (only with `--event sched.off-cpu` and its like): what the first argument means.
    Reason,
    /// How old an allocation is (only with `--event heap.live`): at the last event of the profile.
    Age,
    /// The source line of the innermost frame (only with `report`; needs an ELF file with DWARF).
    Line,
}

impl By {
    /// Whether the group of a sample depends on something besides its stack.
    pub fn is_beside_the_stack(self) -> bool {
        matches!(self, Self::Task | Self::Cpu)
    }
}

/// Which batches count: one bit for each batch that has ended. `present` is the number of the current batch.
#[derive(Debug, Default)]
struct Outcomes {
    bits: Vec<u64>,
    present: u32,
}

impl Outcomes {
    fn close(&mut self, counts: bool) {
        let (word, bit) = (self.present as usize / 64, self.present % 64);
        self.bits.resize(word + 1, 0);
        self.bits[word] |= u64::from(counts) << bit;
        self.present += 1;
    }

    fn counts(&self, batch: u32) -> bool {
        self.bits.get(batch as usize / 64).is_some_and(|bits| bits >> (batch % 64) & 1 != 0)
    }
}

/// The count of one stack: `open` samples of the batch with number `batch`, and `settled` ones of batches before it.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    settled: u64,
    open: u32,
    batch: u32,
}

impl Cell {
    #[inline]
    fn add(&mut self, outcomes: &Outcomes) {
        if self.batch != outcomes.present {
            self.settle(outcomes);
        }
        self.open += 1;
    }

    fn settle(&mut self, outcomes: &Outcomes) {
        if outcomes.counts(self.batch) {
            self.settled += u64::from(self.open);
        }
        self.open = 0;
        self.batch = outcomes.present;
    }
}

/// One line of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Index into [`Tally::groups`]; 0 without grouping.
    pub group: u32,
    /// The stack.
    pub stack: StackId,
    /// How many samples.
    pub samples: u64,
}

/// The counts.
#[derive(Debug)]
pub struct Tally {
    select: Select,
    takes_all: bool,
    by: By,
    outcomes: Outcomes,
    touched: bool,
    cells: Vec<Cell>,
    grouped: HashMap<(u32, StackId), Cell>,
    group_numbers: HashMap<Vec<u8>, u32>,
    groups: Vec<String>,
}

impl Tally {
    /// A tally of the samples that `select` asks for.
    pub fn new(select: Select, by: By) -> Self {
        Self {
            takes_all: select.takes_every_sample() && !by.is_beside_the_stack(),
            select,
            by,
            outcomes: Outcomes::default(),
            touched: false,
            cells: Vec::new(),
            grouped: HashMap::new(),
            group_numbers: HashMap::new(),
            groups: Vec::new(),
        }
    }

    /// Names of the groups.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// The selection of samples.
    pub fn select(&self) -> &Select {
        &self.select
    }

    /// Every stack that was counted at least once, in no particular order.
    pub fn counts(&self) -> Vec<Count> {
        let settled = |mut cell: Cell| {
            cell.settle(&self.outcomes);
            cell.settled
        };
        let plain = self.cells.iter().zip(0..).map(|(cell, stack)| Count { group: 0, stack, samples: settled(*cell) });
        let grouped = self.grouped.iter().map(|((group, stack), cell)| Count {
            group: *group,
            stack: *stack,
            samples: settled(*cell),
        });
        let mut counts = Vec::with_capacity(self.cells.len() + self.grouped.len());
        counts.extend(plain.chain(grouped).filter(|count| count.samples > 0));
        counts
    }

    #[inline(always)]
    fn count(&mut self, stack: StackId) {
        self.touched = true;
        match self.cells.get_mut(stack as usize) {
            Some(cell) => cell.add(&self.outcomes),
            None => self.first(stack),
        }
    }

    #[cold]
    fn first(&mut self, stack: StackId) {
        self.cells.resize(stack as usize + 1, Cell::default());
        self.cells[stack as usize].add(&self.outcomes);
    }

    fn chosen(&mut self, sample: Sample<'_>) {
        if !self.select.admits_sample(&sample) {
            return;
        }
        let group = match self.by {
            By::None | By::Entry | By::Line | By::Reason | By::Age => return self.count(sample.stack),
            By::Cpu => self.group(format!("CPU {}", sample.cpu).into_bytes(), Vec::clone),
            By::Task => self.group(sample.task.to_vec(), |name| unescape(name).into_owned()),
        };
        self.grouped.entry((group, sample.stack)).or_default().add(&self.outcomes);
        self.touched = true;
    }

    fn group(&mut self, key: Vec<u8>, name: impl Fn(&Vec<u8>) -> Vec<u8>) -> u32 {
        let next = self.groups.len() as u32;
        let groups = &mut self.groups;
        *self.group_numbers.entry(key).or_insert_with_key(|key| {
            let name = String::from_utf8_lossy(&name(key)).into_owned();
            groups.push(if name.is_empty() { "[no name]".to_owned() } else { name });
            next
        })
    }

    fn close(&mut self, counts: bool) {
        if std::mem::take(&mut self.touched) {
            self.outcomes.close(counts);
        }
    }
}

impl AsRef<Tally> for Tally {
    fn as_ref(&self) -> &Tally {
        self
    }
}

impl Consumer for Tally {
    #[inline(always)]
    fn sample(&mut self, sample: &Sample<'_>) {
        if self.takes_all { self.count(sample.stack) } else { self.chosen(*sample) }
    }

    fn commit(&mut self) {
        self.close(true);
    }

    fn discard(&mut self) {
        self.close(false);
    }
}

/// A consumer that keeps no samples, for a first pass that only reads the metadata.
#[derive(Debug, Default)]
pub struct Nothing;

impl Consumer for Nothing {
    fn sample(&mut self, _: &Sample<'_>) {}
    fn commit(&mut self) {}
    fn discard(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::Traits;

    fn sample(task: &'static [u8], cpu: u32, stack: StackId) -> Sample<'static> {
        Sample { boot: 0, task, cpu, tsc: 0, stack, traits: Traits::default() }
    }

    #[test]
    fn only_what_was_committed_counts() {
        let mut tally = Tally::new(Select::default(), By::None);
        for (stack, good) in [(0, true), (0, false), (1, false), (0, true), (1, true)].repeat(100) {
            tally.sample(&sample(b"x", 0, stack));
            tally.sample(&sample(b"x", 0, stack));
            if good { tally.commit() } else { tally.discard() }
        }
        tally.sample(&sample(b"x", 0, 7));
        let counts = |stack, samples| Count { group: 0, stack, samples };
        assert_eq!(tally.counts(), [counts(0, 400), counts(1, 200)]);
    }

    #[test]
    fn groups_are_named_by_the_task_without_escapes() {
        let mut tally = Tally::new(Select { cpus: std::iter::once(1..=1).collect(), ..Select::default() }, By::Task);
        tally.sample(&sample(b"a%20b", 1, 3));
        tally.sample(&sample(b"c", 2, 3));
        tally.commit();
        assert_eq!((tally.groups(), tally.counts()[0].samples), (&["a b".to_owned()][..], 1));
    }
}
