//! Samples by task, CPU or kernel entry. Stage: output, for `report --by`.
//!
//! In: folded stacks whose root frame is the group. Out: one row per group, with the function that has the most self
//! time in the group.

use crate::fold::Folded;
use crate::fold::frames::FrameId;
use std::collections::BTreeMap;

/// A group's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The frame that names it.
    pub frame: FrameId,
    /// Its samples.
    pub samples: u64,
    /// The function with the most self time in it, and its samples there.
    pub busiest: (FrameId, u64),
}

/// Rows of all groups, sorted by samples, then by name.
pub fn rows(folded: &Folded) -> Vec<Group> {
    let mut own: BTreeMap<FrameId, BTreeMap<FrameId, u64>> = BTreeMap::new();
    for stack in &folded.stacks {
        if let [root, .., last] | [root @ last] = folded.frames_of(stack) {
            *own.entry(*root).or_default().entry(*last).or_default() += stack.samples;
        }
    }
    let name = |frame: FrameId| folded.frames.name(frame);
    let group = |(frame, functions): (FrameId, BTreeMap<FrameId, u64>)| {
        let busiest = functions.iter().max_by(|a, b| a.1.cmp(b.1).then_with(|| name(*b.0).cmp(name(*a.0))));
        let busiest = busiest.map_or((frame, 0), |(function, samples)| (*function, *samples));
        Group { frame, samples: functions.values().sum(), busiest }
    };
    let mut rows: Vec<Group> = own.into_iter().map(group).collect();
    rows.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| name(a.frame).cmp(name(b.frame))));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_its_samples_and_its_busiest_function() {
        let mut folded = Folded::default();
        let [a, b, f, g] = ["a", "b", "f", "g"].map(|name| folded.frames.named(name));
        for (frames, samples) in [(vec![a, f], 2), (vec![a, f, g], 3), (vec![a, f, f], 1), (vec![b, g], 9)] {
            folded.push(frames, samples);
        }
        let group = |frame, samples, busiest| Group { frame, samples, busiest };
        // f and g have three samples each in a, so the name decides.
        assert_eq!(rows(&folded), [group(b, 9, (g, 9)), group(a, 6, (f, 3))]);
    }
}
