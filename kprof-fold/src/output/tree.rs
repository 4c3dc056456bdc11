//! Callers and callees as a tree, like `perf report --stdio`. Stage: output.
//!
//! In: folded stacks. Out: text: from the roots inwards (callees), or, for each function by self time, from it outwards
//! (callers). Functions that only lead to the next one are on one line with it. Branches below a limit, and all but the
//! largest lines, are not shown; a line says how many samples they have.

use crate::fold::Folded;
use crate::fold::frames::FrameId;
use ratatui::text::Span;
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
/// Maximum number of functions on one line.
const MAX_ON_LINE: usize = 8;

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

/// How the tree is shown.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// In which direction.
    pub direction: Direction,
    /// Branches with less than this part of all samples are not shown; 0 to 1.
    pub limit: f64,
    /// Maximum number of functions' lines; 0 shows all.
    pub top: usize,
    /// Columns of the terminal; longer lines are cut.
    pub width: Option<usize>,
    /// Whether shares and markers are coloured.
    pub is_coloured: bool,
}

/// A line that is still to be written.
enum Line {
    /// A node, and whether it is the last child of its parent.
    Place { node: usize, depth: usize, is_last: bool },
    /// The number of samples below a node that are not shown.
    LeftOut { samples: u64, depth: usize },
}

/// The tree with the decision which of its nodes are shown.
struct Tree<'a> {
    folded: &'a Folded,
    nodes: Vec<Node>,
    is_shown: Vec<bool>,
    /// What stands between the names on one line.
    between: &'static str,
}

/// Formats the text.
pub fn text(folded: &Folded, style: &Style) -> String {
    let tree = Tree::new(folded, style);
    let whole = tree.nodes[0].samples;
    let (mut text, mut open, mut is_cut) = (String::new(), Vec::new(), false);
    let mut indents: Vec<&'static str> = Vec::new();
    tree.push_below(0, 0, &mut open);
    while let Some(line) = open.pop() {
        let (samples, depth) = match line {
            Line::Place { node, depth, .. } => (tree.nodes[node].samples, depth),
            Line::LeftOut { samples, depth } => (samples, depth),
        };
        let percent = samples as f64 * 100.0 / whole.max(1) as f64;
        let mut rest = format!(" {samples:>9}  ");
        indents.truncate(depth);
        indents.iter().take(MAX_INDENTED).for_each(|indent| rest += indent);
        if depth > MAX_INDENTED {
            let _ = write!(rest, "({depth}) ");
        }
        match line {
            Line::Place { node, is_last, .. } => {
                let (chain, last) = tree.chain(node);
                let _ = write!(rest, "{}{chain}", if is_last { "`-" } else { "|-" });
                indents.push(if is_last { "  " } else { "| " });
                tree.push_below(last, depth + 1, &mut open);
            }
            Line::LeftOut { .. } => {
                is_cut = true;
                rest.push_str("`-...");
            }
        }
        style.line(percent, &rest, &mut text);
    }
    if is_cut {
        text.push_str("... stands for what is left out; --top 0 --limit 0% shows all\n");
    }
    text
}

impl Style {
    /// Writes one line, cut and coloured.
    fn line(&self, percent: f64, rest: &str, text: &mut String) {
        let share = format!("{percent:7.2} %");
        let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(share.len()));
        let rest = if Span::raw(rest).width() > room { cut(rest, room) } else { rest.to_owned() };
        let colour = match percent {
            _ if !self.is_coloured => "",
            _ if percent >= 10.0 => "\x1b[31m",
            _ if percent >= 1.0 => "\x1b[33m",
            _ => "",
        };
        let end = if colour.is_empty() { "" } else { "\x1b[0m" };
        let _ = writeln!(text, "{colour}{share}{end}{rest}");
    }
}

/// As much of the text as has room beside the mark of a cut line. A letter of another script may take two columns, and
/// one with accents or an emoji is several characters.
fn cut(text: &str, columns: usize) -> String {
    let mut left = columns.saturating_sub(2);
    let mut cut = String::new();
    for letter in Span::raw(text).styled_graphemes(ratatui::style::Style::new()) {
        let Some(rest) = left.checked_sub(Span::raw(letter.symbol).width()) else { break };
        left = rest;
        cut.push_str(letter.symbol);
    }
    cut + ".."
}

impl<'a> Tree<'a> {
    fn new(folded: &'a Folded, style: &Style) -> Self {
        let nodes = nodes(folded, style.direction);
        let least = ((nodes[0].samples as f64 * style.limit).ceil() as u64).max(1);
        // The first node of the line that each node is on. A parent comes before its children in the list.
        let mut heads: Vec<usize> = (0..nodes.len()).collect();
        let mut places = vec![1; nodes.len()];
        for (at, node) in nodes.iter().enumerate().skip(1) {
            if let Some(next) = only_child(&nodes, node).filter(|_| places[at] < MAX_ON_LINE) {
                (heads[next], places[next]) = (heads[at], places[at] + 1);
            }
        }
        let mut lines: Vec<usize> =
            (1..nodes.len()).filter(|at| heads[*at] == *at && nodes[*at].samples >= least).collect();
        // No child has more samples than its parent, so the largest lines are a tree too.
        lines.sort_by_key(|at| (std::cmp::Reverse(nodes[*at].samples), *at));
        lines.truncate(if style.top > 0 { style.top } else { usize::MAX });
        let mut is_shown = vec![false; nodes.len()];
        lines.into_iter().for_each(|at| is_shown[at] = true);
        let between = if style.direction == Direction::Callers { " < " } else { " > " };
        Self { folded, nodes, is_shown, between }
    }

    /// The names on the line of a node, and the last node on it.
    fn chain(&self, mut at: usize) -> (String, usize) {
        let mut names = self.folded.frames.shown(self.nodes[at].frame).into_owned();
        for _ in 1..MAX_ON_LINE {
            let Some(next) = only_child(&self.nodes, &self.nodes[at]) else { break };
            names = names + self.between + &self.folded.frames.shown(self.nodes[next].frame);
            at = next;
        }
        (names, at)
    }

    /// Pushes the lines below a node onto the stack of lines that are still to be written; the first line is on top.
    fn push_below(&self, node: usize, depth: usize, open: &mut Vec<Line>) {
        let of = |place: &usize| (self.nodes[*place].samples, self.folded.frames.name(self.nodes[*place].frame));
        let (mut below, left_out): (Vec<usize>, Vec<usize>) =
            self.nodes[node].below.values().partition(|place| self.is_shown[**place]);
        below.sort_by(|a, b| of(b).0.cmp(&of(a).0).then_with(|| of(a).1.cmp(of(b).1)));
        let samples: u64 = left_out.iter().map(|place| self.nodes[*place].samples).sum();
        if samples > 0 {
            open.push(Line::LeftOut { samples, depth });
        }
        for (number, place) in below.into_iter().rev().enumerate() {
            open.push(Line::Place { node: place, depth, is_last: number == 0 && samples == 0 });
        }
    }
}

/// The child of a node that has all its samples.
fn only_child(nodes: &[Node], node: &Node) -> Option<usize> {
    let next = node.below.values().next().filter(|_| node.below.len() == 1)?;
    (nodes[*next].samples == node.samples).then_some(*next)
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
        let style = |direction, limit| Style { direction, limit, top: 0, width: None, is_coloured: false };
        let callees = text(&folded, &style(Direction::Callees, 0.0));
        assert_eq!(callees, " 100.00 %        10  `-a\n  60.00 %         6    |-b\n  30.00 %         3    `-c\n");
        let callers = text(&folded, &style(Direction::Callers, 0.4));
        assert_eq!(
            callers,
            "  60.00 %         6  |-b < a\n  40.00 %         4  `-...\n\
             ... stands for what is left out; --top 0 --limit 0% shows all\n"
        );
    }

    #[test]
    fn lines_are_collapsed_limited_cut_and_coloured() {
        let mut folded = Folded::default();
        let [a, b, c, d] = ["a", "b", "c::c::c", "d"].map(|name| folded.frames.named(name));
        for (frames, samples) in [(vec![a, b, c, d], 90), (vec![a, b, d], 9), (vec![d, a], 1)] {
            folded.push(frames, samples);
        }
        let all = Style { direction: Direction::Callees, limit: 0.0, top: 2, width: None, is_coloured: false };
        let lines = |style: &Style| text(&folded, style).lines().map(str::to_owned).collect::<Vec<_>>();
        let expected = [
            "  99.00 %        99  |-a > b".to_owned(),
            "  90.00 %        90  | |-c::c::c > d".to_owned(),
            "   9.00 %         9  | `-...".to_owned(),
            "   1.00 %         1  `-...".to_owned(),
            "... stands for what is left out; --top 0 --limit 0% shows all".to_owned(),
        ];
        assert_eq!(lines(&all), expected);
        let narrow = lines(&Style { width: Some(28), is_coloured: true, ..all });
        assert_eq!(narrow[1], "\x1b[31m  90.00 %\x1b[0m        90  | |-c..");
        assert_eq!(narrow[2], "\x1b[33m   9.00 %\x1b[0m         9  | `-...");
        assert_eq!(lines(&Style { top: 0, ..all }).len(), 4);
    }

    #[test]
    fn names_are_cut_by_the_columns_that_they_take_on_the_screen() {
        assert_eq!(cut("漢字::map", 6), "漢字..");
        assert_eq!(cut("漢字::map", 7), "漢字:..");
        // An accent and the parts of an emoji take no column of their own.
        assert_eq!(cut("e\u{301}e\u{301}e\u{301}eee", 5), "e\u{301}e\u{301}e\u{301}..");
        assert_eq!(cut("👩\u{200d}👩\u{200d}👧 family", 4), "👩\u{200d}👩\u{200d}👧..");
    }
}
