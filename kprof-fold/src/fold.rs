//! Fold: from counted stacks of addresses to counted stacks of names. The third stage of the host end.
//!
//! In: counts per distinct stack, and symbols. Out: [`Folded`]: each stack of names once, outermost first, sorted by the
//! bytes of its folded line. Which frames a stack has, and which address each is looked up by, is decided in
//! [`walk`](mod@walk); names are looked up once per address.

pub mod frames;
pub mod walk;

use crate::select::Select;
use crate::stacks::{self, Encoding, StackId, Stacks, Traits};
use crate::symbols::Symbols;
use crate::tally::{By, Count};
use frames::{FrameId, Frames};
use std::cmp::Ordering;

/// A counted stack of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedStack {
    /// Frames, outermost first.
    pub frames: Box<[FrameId]>,
    /// How many samples.
    pub samples: u64,
}

/// The result.
#[derive(Debug, Default)]
pub struct Folded {
    /// The frames' names.
    pub frames: Frames,
    /// The stacks, sorted by bytes.
    pub stacks: Vec<FoldedStack>,
}

impl Folded {
    /// All samples of all stacks.
    pub fn samples(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.samples).sum()
    }

    /// Writes `frame;frame;frame` to `line`.
    pub fn write_stack(&self, stack: &FoldedStack, line: &mut String) {
        for (number, frame) in stack.frames.iter().enumerate() {
            if number > 0 {
                line.push(';');
            }
            line.push_str(self.frames.name(*frame));
        }
    }
}

/// Folds what was counted.
pub struct Folder<'a> {
    /// Names.
    pub symbols: &'a Symbols,
    /// The distinct stacks of the profile.
    pub stacks: &'a Stacks,
    /// The choice.
    pub select: &'a Select,
    /// What makes a root frame, and the names of the groups.
    pub by: By,
    /// Names of the groups that the counts speak of.
    pub groups: &'a [String],
}

impl Folder<'_> {
    /// Adds up stacks with the same names.
    pub fn fold(&self, counts: &[Count]) -> Folded {
        let mut frames = Frames::default();
        let mut names = Stacks::new(Encoding::Words);
        let mut samples: Vec<u64> = Vec::new();
        let (mut words, mut ids, mut key) = (Vec::new(), Vec::new(), Vec::new());
        for count in counts {
            if !self.select.admits_traits(self.stacks.traits(count.stack)) {
                continue;
            }
            self.stacks.words(count.stack, &mut words);
            ids.clear();
            frames.resolve(&words, self.select.user, self.symbols, &mut ids);
            if !self.cut(&frames, &mut ids) {
                continue;
            }
            if self.by != By::None {
                ids.push(frames.named(&self.groups[count.group as usize]));
            }
            key.clear();
            ids.iter().rev().for_each(|id| key.extend_from_slice(&id.to_le_bytes()));
            let at = intern(&mut names, &key) as usize;
            if at == samples.len() {
                samples.push(0);
            }
            samples[at] += count.samples;
        }
        let stack = |(id, samples): (usize, &u64)| {
            let bytes = names.bytes(id as StackId);
            FoldedStack {
                frames: bytes.as_chunks().0.iter().map(|id| u32::from_le_bytes(*id)).collect(),
                samples: *samples,
            }
        };
        let mut folded = Folded { stacks: samples.iter().enumerate().map(stack).collect(), frames };
        folded.sort();
        folded
    }

    /// Applies `--under` and `--not`; false if the stack does not count. `ids` are innermost first.
    fn cut(&self, frames: &Frames, ids: &mut Vec<FrameId>) -> bool {
        let fits = |patterns: &[crate::select::Pattern], id: &FrameId| {
            let name = frames.function(*id);
            patterns.iter().any(|pattern| pattern.fits(name))
        };
        if !self.select.not.is_empty() && ids.iter().any(|id| fits(&self.select.not, id)) {
            return false;
        }
        if !self.select.under.is_empty() {
            let Some(outermost) = ids.iter().rposition(|id| fits(&self.select.under, id)) else { return false };
            ids.truncate(outermost + 1);
        }
        true
    }
}

fn intern(table: &mut Stacks, bytes: &[u8]) -> StackId {
    let hash = stacks::hash(bytes);
    table.find(bytes, hash).unwrap_or_else(|| table.insert(bytes, hash, Traits::default()))
}

impl Folded {
    /// Sorts the stacks by the bytes of `frame;frame;frame`, without writing them out.
    pub fn sort(&mut self) {
        let frames = &self.frames;
        let rank = frames.ranks();
        self.stacks.sort_unstable_by(|a, b| {
            let (a, b) = (&a.frames, &b.frames);
            let same = a.iter().zip(b.iter()).take_while(|(a, b)| a == b).count();
            match (&a[same..], &b[same..]) {
                ([], _) | (_, []) => a.len().cmp(&b.len()),
                // Between two names that both have a `;` behind them, the order of `name;` decides.
                ([one, _, ..], [other, _, ..]) => rank[*one as usize].cmp(&rank[*other as usize]),
                (one, other) => compare_bytes(frames, one, other),
            }
        });
    }
}

fn compare_bytes(frames: &Frames, one: &[FrameId], other: &[FrameId]) -> Ordering {
    let text = |ids: &[FrameId]| ids.iter().map(|id| frames.name(*id)).collect::<Vec<_>>().join(";");
    text(one).cmp(&text(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_joined_bytes() {
        let names = ["a", "a!", "a<b", "ab", "b", "A", "a:", "aé"];
        let mut folded = Folded::default();
        let ids: Vec<_> = names.iter().map(|name| folded.frames.named(name)).collect();
        for one in &ids {
            folded.stacks.push(FoldedStack { frames: Box::from([*one]), samples: 1 });
            for two in &ids {
                folded.stacks.push(FoldedStack { frames: Box::from([*one, *two]), samples: 1 });
                folded.stacks.push(FoldedStack { frames: Box::from([*one, *two, ids[0]]), samples: 1 });
            }
        }
        folded.sort();
        let lines = folded.stacks.iter().map(|stack| {
            let mut line = String::new();
            folded.write_stack(stack, &mut line);
            line
        });
        assert!(lines.collect::<Vec<_>>().is_sorted());
    }
}
