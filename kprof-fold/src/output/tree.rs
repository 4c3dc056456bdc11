//! Callers and callees as a tree, like `perf report --stdio`. Stage: output.
//!
//! In: folded stacks. Out: text: from the roots inwards (callees), or, for each function by self time, from it outwards
//! (callers). Branches below a limit are not shown, and a line says how many samples they have.

use crate::fold::Folded;
use crate::fold::frames::FrameId;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// In which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Direction {
    /// From the roots to what they call
    Callees,
    /// From where time is spent to who called it
    Callers,
}

/// Maximum number of levels shown by indentation. A deeper line gives its depth as a number.
const MAX_INDENTED: usize = 64;

/// A node of the tree. Its parent comes before it in the list, so that the tree is built and written without recursion,
/// however deep a stack is.
#[derive(Default)]
struct Node {
    frame: FrameId,
    samples: u64,
    below: BTreeMap<FrameId, usize>,
}

/// All nodes; the first one is the root.
fn nodes(folded: &Folded, direction: Direction) -> Vec<Node> {
    let mut nodes = vec![Node::default()];
    for stack in &folded.stacks {
        let frames = folded.frames_of(stack);
        let mut at = 0;
        nodes[at].samples += stack.samples;
        for place in 0..frames.len() {
            let frame = frames[if direction == Direction::Callers { frames.len() - 1 - place } else { place }];
            let next = nodes.len();
            at = *nodes[at].below.entry(frame).or_insert(next);
            if at == next {
                nodes.push(Node { frame, ..Node::default() });
            }
            nodes[at].samples += stack.samples;
        }
    }
    nodes
}

/// A line that is still to be written.
enum Line {
    /// A node, and whether it is the last child of its parent.
    Place { node: usize, depth: usize, is_last: bool },
    /// The number of samples below a node that are not shown.
    LeftOut { samples: u64, depth: usize },
}

/// Formats the text; branches with less than `limit` (0 to 1) of all samples are not shown.
pub fn text(folded: &Folded, direction: Direction, limit: f64) -> String {
    let nodes = nodes(folded, direction);
    let whole = nodes[0].samples;
    let least = ((whole as f64 * limit).ceil() as u64).max(1);
    let (mut text, mut open) = (String::new(), Vec::new());
    let mut indents: Vec<&'static str> = Vec::new();
    push_below(folded, &nodes, (0, 0), least, &mut open);
    while let Some(line) = open.pop() {
        let (samples, depth) = match line {
            Line::Place { node, depth, .. } => (nodes[node].samples, depth),
            Line::LeftOut { samples, depth } => (samples, depth),
        };
        let percent = samples as f64 * 100.0 / whole.max(1) as f64;
        let _ = write!(text, "{percent:7.2} % {samples:>9}  ");
        indents.truncate(depth);
        indents.iter().take(MAX_INDENTED).for_each(|indent| text += indent);
        if depth > MAX_INDENTED {
            let _ = write!(text, "({depth}) ");
        }
        match line {
            Line::Place { node, is_last, .. } => {
                let edge = if is_last { "`-" } else { "|-" };
                let _ = writeln!(text, "{edge}{}", folded.frames.name(nodes[node].frame));
                indents.push(if is_last { "  " } else { "| " });
                push_below(folded, &nodes, (node, depth + 1), least, &mut open);
            }
            Line::LeftOut { .. } => text.push_str("`-... (below the limit)\n"),
        }
    }
    text
}

/// Pushes the lines below a node onto the stack of lines that are still to be written; the first line is on top.
fn push_below(folded: &Folded, nodes: &[Node], (node, depth): (usize, usize), least: u64, open: &mut Vec<Line>) {
    let of = |place: &usize| (nodes[*place].samples, folded.frames.name(nodes[*place].frame));
    let (mut below, left_out): (Vec<usize>, Vec<usize>) =
        nodes[node].below.values().partition(|place| nodes[**place].samples >= least);
    below.sort_by(|a, b| of(b).0.cmp(&of(a).0).then_with(|| of(a).1.cmp(of(b).1)));
    let samples: u64 = left_out.iter().map(|place| nodes[*place].samples).sum();
    if samples > 0 {
        open.push(Line::LeftOut { samples, depth });
    }
    for (number, place) in below.into_iter().rev().enumerate() {
        open.push(Line::Place { node: place, depth, is_last: number == 0 && samples == 0 });
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
