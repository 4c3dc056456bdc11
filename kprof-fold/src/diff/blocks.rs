//! Blocks of time within a run: how much the shares of functions vary from block to block. Stage: diff.
//!
//! In: the time and stack of each sample. Out: the counts of each block. Samples near each other in time are alike,
//! because a function that runs goes on running, so a count varies more than that of independent samples. The means of
//! blocks that are much longer than such a burst are nearly independent (the method of batch means), so their spread
//! tells by how much ([`super::spread`]). The blocks are of equal time, and become twice as long as soon as there are
//! more than `MAX`.

use super::{Counts, Run};
use crate::fold::Folder;
use crate::read::consumer::{Consumer, Sample};
use crate::stacks::StackId;
use crate::tally::{Count, Tally};
use std::collections::{BTreeMap, HashMap};

/// The most blocks.
const MAX: usize = 32;
/// Fewer blocks than this give no estimate.
const MIN: usize = 8;
/// Runs with fewer samples than this per block give no estimate.
const MIN_SAMPLES: u64 = 20;

/// The samples of each block of time.
#[derive(Debug, Default)]
pub struct Blocks {
    shift: u32,
    blocks: BTreeMap<u64, HashMap<StackId, u64>>,
}

impl Blocks {
    /// Adds a sample.
    pub fn add(&mut self, tsc: u64, stack: StackId) {
        *self.blocks.entry(tsc >> self.shift).or_default().entry(stack).or_default() += 1;
        while self.blocks.len() > MAX {
            self.shift += 1;
            for (time, stacks) in std::mem::take(&mut self.blocks) {
                let block = self.blocks.entry(time >> 1).or_default();
                stacks.into_iter().for_each(|(stack, samples)| *block.entry(stack).or_default() += samples);
            }
        }
    }

    /// The counts of each block; none if there are too few samples.
    pub fn counts(&self, folder: &Folder<'_>, subtrees: bool) -> Vec<(Counts, u64)> {
        let count = |(stack, samples): (&StackId, &u64)| Count { group: 0, stack: *stack, samples: *samples };
        let run = |stacks: &HashMap<StackId, u64>| {
            let mut counts: Vec<Count> = stacks.iter().map(count).collect();
            counts.sort_unstable_by_key(|count| count.stack);
            let Run { counts, samples, .. } = Run::of(&folder.fold(&counts), subtrees);
            (counts, samples)
        };
        let blocks: Vec<(Counts, u64)> = self.blocks.values().map(run).filter(|(_, samples)| *samples > 0).collect();
        let samples: u64 = blocks.iter().map(|(_, samples)| samples).sum();
        if blocks.len() < MIN || samples < MIN_SAMPLES * blocks.len() as u64 { Vec::new() } else { blocks }
    }
}

/// A tally that also has the blocks.
#[derive(Debug)]
pub struct InBlocks {
    tally: Tally,
    /// The samples of all complete batches.
    pub blocks: Blocks,
    /// The provisional samples.
    open: Vec<(u64, StackId)>,
}

impl InBlocks {
    /// With this tally, before the first sample.
    pub fn new(tally: Tally) -> Self {
        Self { tally, blocks: Blocks::default(), open: Vec::new() }
    }
}

impl AsRef<Tally> for InBlocks {
    fn as_ref(&self) -> &Tally {
        &self.tally
    }
}

impl Consumer for InBlocks {
    fn sample(&mut self, sample: &Sample<'_>) {
        self.tally.sample(sample);
        if self.tally.select().admits_sample(sample) {
            self.open.push((sample.tsc, sample.stack));
        }
    }

    fn commit(&mut self) {
        self.tally.commit();
        for (tsc, stack) in self.open.drain(..) {
            self.blocks.add(tsc, stack);
        }
    }

    fn discard(&mut self) {
        self.tally.discard();
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_of_equal_time_and_no_sample_is_lost() {
        let mut blocks = Blocks::default();
        (0..1000).for_each(|at| blocks.add((1 << 40) + at * 1000, (at % 3) as StackId));
        let samples: Vec<u64> = blocks.blocks.values().map(|block| block.values().sum()).collect();
        assert_eq!(samples.iter().sum::<u64>(), 1000);
        assert!((MAX / 2..=MAX).contains(&samples.len()), "{samples:?}");
        let inner = &samples[1..samples.len() - 1];
        assert!(inner.iter().all(|count| count.abs_diff(inner[0]) <= 1), "{samples:?}");
    }
}
