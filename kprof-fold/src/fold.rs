//! Fold: from counted stacks of addresses to counted stacks of names. The third stage of the host tool.
//!
//! In: counts per distinct stack, and symbols. Out: [`Folded`]: each stack of names once, outermost first, sorted by
//! the bytes of its folded line. [`walk`](mod@walk) decides which frames a stack has, and by which address each of them
//! is looked up. Names are looked up once per address.

pub mod frames;
pub mod walk;

use crate::select::{Pattern, Select};
use crate::stacks::Stacks;
use crate::symbols::Symbols;
use crate::tally::{By, Count};
use frames::{FrameId, Frames};
use std::cmp::Ordering;

/// A counted stack of names; [`Folded::frames_of`] has its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldedStack {
    /// Where the frames of this stack begin in [`Folded::joined`], and how many they are.
    start: usize,
    len: u32,
    /// Number of samples.
    pub samples: u64,
}

/// The result of folding.
#[derive(Debug, Default)]
pub struct Folded {
    /// The frames' names.
    pub frames: Frames,
    /// The stacks, sorted by the bytes of their lines.
    pub stacks: Vec<FoldedStack>,
    /// The frames of all stacks, one stack after the other, so that a stack needs no allocation of its own.
    joined: Vec<FrameId>,
}

impl Folded {
    /// Adds a stack, outermost frame first. [`sort`](Self::sort) puts the stacks in order later.
    pub fn push(&mut self, frames: impl IntoIterator<Item = FrameId>, samples: u64) {
        let start = self.joined.len();
        self.joined.extend(frames);
        self.stacks.push(FoldedStack { start, len: (self.joined.len() - start) as u32, samples });
    }

    /// The frames of a stack, outermost first.
    #[inline]
    pub fn frames_of(&self, stack: &FoldedStack) -> &[FrameId] {
        &self.joined[stack.start..stack.start + stack.len as usize]
    }

    /// The number of samples in all stacks.
    pub fn samples(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.samples).sum()
    }

    /// Writes `frame;frame;frame` to `line`.
    pub fn write_stack(&self, stack: &FoldedStack, line: &mut String) {
        for (number, frame) in self.frames_of(stack).iter().enumerate() {
            if number > 0 {
                line.push(';');
            }
            line.push_str(self.frames.name(*frame));
        }
    }
}

/// Folds counted stacks.
pub struct Folder<'a> {
    /// The symbols that give the names.
    pub symbols: &'a Symbols,
    /// The distinct stacks of the profile.
    pub stacks: &'a Stacks,
    /// The selection of samples.
    pub select: &'a Select,
    /// The grouping whose name becomes the root frame.
    pub by: By,
    /// Names of the groups in the counts.
    pub groups: &'a [String],
}

impl Folder<'_> {
    /// Folds the counts; stacks with the same names are added up.
    pub fn fold(&self, counts: &[Count]) -> Folded {
        let mut folded = self.one_by_one(counts);
        folded.sort();
        folded.join_equal();
        folded
    }

    /// Names the stacks of the counts, each by itself and in their order. Those that do not count are left out.
    pub fn one_by_one(&self, counts: &[Count]) -> Folded {
        let mut folded = Folded::default();
        folded.frames.reserve(self.stacks.len());
        folded.stacks.reserve(counts.len());
        let (mut words, mut ids) = (Vec::new(), Vec::new());
        let chosen = self.chosen(counts, &mut folded.frames);
        for count in counts {
            if !self.select.admits_traits(self.stacks.traits(count.stack)) {
                continue;
            }
            self.resolve(count, &mut folded.frames, &mut words, &mut ids);
            if !chosen.cut(self.select, &mut ids) {
                continue;
            }
            match self.by {
                By::None | By::Line => {}
                // Samples have no reason, and so no group for it.
                By::Reason | By::Age if self.groups.is_empty() => {}
                By::Task | By::Cpu | By::Reason | By::Age => {
                    ids.push(folded.frames.named(&self.groups[count.group as usize]))
                }
                By::Entry => ids.push(folded.frames.named(&walk::entry_name(&words))),
            }
            folded.push(ids.iter().rev().copied(), count.samples);
        }
        folded
    }

    /// Which frames `--under`, `--not` and `--callers` mean, by their numbers. All names are needed for that, so it
    /// takes a first pass over the stacks; without these options there is none.
    fn chosen(&self, counts: &[Count], frames: &mut Frames) -> Chosen {
        if [&self.select.under, &self.select.not, &self.select.callers].into_iter().all(Vec::is_empty) {
            return Chosen::default();
        }
        let (mut words, mut ids) = (Vec::new(), Vec::new());
        for count in counts.iter().filter(|count| self.select.admits_traits(self.stacks.traits(count.stack))) {
            self.resolve(count, frames, &mut words, &mut ids);
        }
        let symbols: Vec<String> = (0..self.symbols.len()).map(|number| self.symbols.function(number).into()).collect();
        let names: Vec<&str> = (0..frames.len()).map(|id| frames.function(id as FrameId)).collect();
        let meant = |patterns: &[Pattern]| {
            let all = || names.iter().copied().chain(symbols.iter().map(String::as_str));
            let meant: Vec<_> = patterns.iter().map(|pattern| pattern.among(all())).collect();
            names.iter().map(|name| meant.iter().any(|meant| meant.is(name))).collect()
        };
        let Select { under, not, callers, .. } = self.select;
        Chosen { under: meant(under), not: meant(not), callers: meant(callers) }
    }

    /// The frames of a stack, innermost first.
    fn resolve(&self, count: &Count, frames: &mut Frames, words: &mut Vec<u64>, ids: &mut Vec<FrameId>) {
        self.stacks.words(count.stack, words);
        if !self.symbols.users.is_empty() {
            let task = self.groups.get(count.group as usize).map_or("", String::as_str);
            self.symbols.users.settle(task, words);
        }
        ids.clear();
        frames.resolve(words, self.stacks.traits(count.stack), self.select.user, self.symbols, ids);
    }
}

/// For each frame whether `--under`, `--not` or `--callers` means it; empty if there is no such option.
#[derive(Debug, Default)]
struct Chosen {
    under: Vec<bool>,
    not: Vec<bool>,
    callers: Vec<bool>,
}

impl Chosen {
    /// Removes what is outside of `--under`, and inside of `--callers`; returns false if the stack does not count.
    /// `ids` are innermost first.
    fn cut(&self, select: &Select, ids: &mut Vec<FrameId>) -> bool {
        let is_meant = |by: &[bool], id: &FrameId| by.get(*id as usize) == Some(&true);
        if ids.iter().any(|id| is_meant(&self.not, id)) {
            return false;
        }
        if !select.under.is_empty() {
            let Some(outermost) = ids.iter().rposition(|id| is_meant(&self.under, id)) else { return false };
            ids.truncate(outermost + 1);
        }
        if !select.callers.is_empty() {
            let Some(innermost) = ids.iter().position(|id| is_meant(&self.callers, id)) else { return false };
            ids.drain(..innermost);
        }
        true
    }
}

impl Folded {
    /// Sorts the stacks by the bytes of `frame;frame;frame`, without writing them out.
    ///
    /// Each stack becomes a sequence of small numbers with the same order ([`Frames::ranks`]); as many of these numbers
    /// as fit are packed into one key, which decides nearly every comparison.
    pub fn sort(&mut self) {
        let ranks = self.frames.ranks();
        let bits = usize::BITS - (2 * ranks.len() + 1).leading_zeros();
        let packed = (u128::BITS / bits.max(1)) as usize;
        let rank = |frames: &[FrameId], at: usize| match frames.get(at) {
            // 0 stands for positions after the end of the stack.
            Some(frame) if at + 1 == frames.len() => 1 + ranks[*frame as usize].last,
            Some(frame) => 1 + ranks[*frame as usize].inner,
            None => 0,
        };
        let key = |frames: &[FrameId]| (0..packed).fold(0, |key, at| key << bits | u128::from(rank(frames, at)));
        let mut keyed: Vec<(u128, u32)> =
            self.stacks.iter().zip(0..).map(|(stack, number)| (key(self.frames_of(stack)), number)).collect();
        keyed.sort_unstable_by(|(key_a, a), (key_b, b)| {
            key_a.cmp(key_b).then_with(|| {
                let [a, b] = [a, b].map(|number| self.frames_of(&self.stacks[*number as usize]));
                let mut rest = (packed..a.len().max(b.len())).map(|at| rank(a, at).cmp(&rank(b, at)));
                rest.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
            })
        });
        self.stacks = keyed.into_iter().map(|(_, number)| self.stacks[number as usize]).collect();
    }

    /// Adds up sorted stacks with the same frames.
    fn join_equal(&mut self) {
        let Self { stacks, joined, .. } = self;
        let frames = |stack: &FoldedStack| &joined[stack.start..stack.start + stack.len as usize];
        stacks.dedup_by(|next, one| {
            let same = frames(next) == frames(one);
            one.samples += if same { next.samples } else { 0 };
            same
        });
    }
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
            folded.push([*one], 1);
            for two in &ids {
                folded.push([*one, *two], 1);
                folded.push([*one, *two, ids[0]], 1);
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
