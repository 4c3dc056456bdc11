//! Callers and callees as a tree, like `perf report --stdio`. Stage: output.
//!
//! In: folded stacks. Out: text: from the roots inwards (callees), or for each function by own time from it outwards
//! (callers). Branches below a limit are left out and said to be.

use crate::fold::Folded;
use crate::fold::frames::FrameId;
use std::collections::BTreeMap;

/// In which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Direction {
    /// From the roots to what they call
    Callees,
    /// From where time is spent to who called it
    Callers,
}

#[derive(Default)]
struct Node {
    samples: u64,
    below: BTreeMap<FrameId, Node>,
}

/// The text; branches with less than `limit` (0 to 1) of all samples are left out.
pub fn text(folded: &Folded, direction: Direction, limit: f64) -> String {
    let mut root = Node::default();
    for stack in &folded.stacks {
        let mut frames = folded.frames_of(stack).to_vec();
        if direction == Direction::Callers {
            frames.reverse();
        }
        root.samples += stack.samples;
        let mut node = &mut root;
        for frame in frames {
            node = node.below.entry(frame).or_default();
            node.samples += stack.samples;
        }
    }
    let least = ((root.samples as f64 * limit).ceil() as u64).max(1);
    let mut text = String::new();
    write(folded, &root, root.samples, least, "", &mut text);
    text
}

fn write(folded: &Folded, node: &Node, whole: u64, least: u64, indent: &str, text: &mut String) {
    let mut below: Vec<(&FrameId, &Node)> = node.below.iter().filter(|(_, node)| node.samples >= least).collect();
    let name = |id: FrameId| folded.frames.name(id);
    below.sort_by(|a, b| b.1.samples.cmp(&a.1.samples).then_with(|| name(*a.0).cmp(name(*b.0))));
    let shown: u64 = below.iter().map(|(_, node)| node.samples).sum();
    let left_out = node.below.values().map(|node| node.samples).sum::<u64>() - shown;
    let last = below.len();
    for (number, (id, node)) in below.into_iter().enumerate() {
        let is_last = number + 1 == last && left_out == 0;
        let percent = node.samples as f64 * 100.0 / whole.max(1) as f64;
        text.push_str(&format!(
            "{percent:7.2} % {:>9}  {indent}{}{}\n",
            node.samples,
            if is_last { "`-" } else { "|-" },
            name(*id)
        ));
        let deeper = format!("{indent}{}", if is_last { "  " } else { "| " });
        write(folded, node, whole, least, &deeper, text);
    }
    if left_out > 0 {
        let percent = left_out as f64 * 100.0 / whole.max(1) as f64;
        text.push_str(&format!("{percent:7.2} % {left_out:>9}  {indent}`-... (below the limit)\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_account_for_every_sample() {
        let mut folded = Folded::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| folded.frames.named(name));
        for (frames, samples) in [(vec![a, b], 6), (vec![a, c], 3), (vec![a], 1)] {
            folded.push(frames, samples);
        }
        let callees = text(&folded, Direction::Callees, 0.0);
        assert_eq!(callees, " 100.00 %        10  `-a\n  60.00 %         6    |-b\n  30.00 %         3    `-c\n");
        let callers = text(&folded, Direction::Callers, 0.4);
        assert_eq!(
            callers,
            "  60.00 %         6  |-b\n  60.00 %         6  | `-a\n  40.00 %         4  `-... (below the limit)\n"
        );
    }
}
