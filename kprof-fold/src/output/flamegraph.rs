//! The flame graph, an SVG drawn by the inferno library. Stage: output.
//!
//! In: sorted stacks, losses, words for title and subtitle. Out: an SVG; losses are drawn in it at their true width.
//! This module only adds what is specific to a kernel profile: losses and clock in the subtitle, samples as the unit.

use crate::error::Error;
use crate::fold::Folded;
use crate::symbols::name::visible;
use inferno::flamegraph::{Direction, Options};
use std::io::Write;

/// How it is drawn.
#[derive(Clone, Debug, Default)]
pub struct Style {
    /// The title; if empty, `kprof`.
    pub title: String,
    /// Line under the title.
    pub subtitle: String,
    /// Whether the roots are at the top.
    pub icicle: bool,
    /// Whether stacks are reversed, so that leaves become roots.
    pub reverse: bool,
}

/// Draws all stacks.
///
/// # Errors
/// If there is nothing to draw, or the writer fails.
pub fn write(
    folded: &Folded,
    beside: &[(&str, u64)],
    style: &Style,
    file: &str,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let mut lines: Vec<String> = Vec::with_capacity(folded.stacks.len() + 1);
    for stack in &folded.stacks {
        let mut line = String::new();
        folded.write_stack(stack, &mut line);
        lines.push(format!("{line} {}", stack.samples));
    }
    lines.extend(beside.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}")));
    if lines.is_empty() {
        return Err(Error::unusable(file, "no sample is left to draw; `report` shows where the time went"));
    }
    let mut options = Options::default();
    options.title = if style.title.is_empty() { "kprof".to_owned() } else { visible(&style.title).into_owned() };
    options.subtitle = (!style.subtitle.is_empty()).then(|| style.subtitle.clone());
    options.count_name = "samples".to_owned();
    options.reverse_stack_order = style.reverse;
    options.direction = if style.icicle { Direction::Inverted } else { Direction::Straight };
    options.hash = true;
    options.deterministic = true;
    // Reversing changes the order, so the library then has to sort.
    options.no_sort = false;
    let lines = lines.iter().map(String::as_str);
    inferno::flamegraph::from_lines(&mut options, lines, out)
        .map_err(|error| Error::io("the flame graph", "write", error))
}
