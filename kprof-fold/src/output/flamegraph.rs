//! The flame graph, an SVG drawn by the inferno library. Stage: output.
//!
//! In: sorted stacks, losses, words for title and subtitle. Out: an SVG; losses are drawn in it at their true width.
//! This module only adds what is specific to a kernel profile: losses and clock in the subtitle, samples as the unit,
//! a color for each kind of frame. An inlined frame has the mark `_[i]`, as in perf's flame graphs: the library leaves
//! it out of the labels, which have little room.

use crate::error::Error;
use crate::fold::Folded;
use crate::fold::frames::FrameId;
use crate::symbols::INLINED;
use crate::symbols::name::visible;
use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{Direction, Options, TextTruncateDirection};
use std::collections::HashSet;
use std::io::Write;

/// The mark of an inlined frame.
const MARK: &str = "_[i]";
/// Colors: kernel functions, inlined ones, system calls, interrupts and exceptions, losses, other markers, user code.
const COLORS: [Color; 7] = [
    Color { r: 240, g: 160, b: 96 },
    Color { r: 238, g: 212, b: 124 },
    Color { r: 92, g: 189, b: 210 },
    Color { r: 184, g: 142, b: 222 },
    Color { r: 120, g: 120, b: 120 },
    Color { r: 190, g: 190, b: 190 },
    Color { r: 126, g: 196, b: 120 },
];
/// The index of user code in `COLORS`.
const USER: usize = 6;
/// How much the colors of two functions of one kind differ at most.
const SPREAD: u64 = 18;

/// The space before a number at the end of a name, until the picture is drawn.
const NO_BREAK_SPACE: &str = "\u{a0}";

/// Frames narrower than this part of the picture are not drawn; they still count for the frames under them.
const MIN_WIDTH_PERCENT: f64 = 0.01;

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
    /// What is counted; if empty, samples.
    pub unit: String,
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
    let all = beside.iter().try_fold(folded.samples(), |sum, (_, count)| sum.checked_add(*count));
    if all.is_none() {
        return Err(Error::unusable(file, "its counters are damaged: more was lost than a picture can show"));
    }
    // The library has to see whole stacks to reverse them.
    let min_samples = if style.reverse { 0 } else { narrowest(folded.samples(), beside) };
    let mut lines = drawn(folded, min_samples);
    lines.extend(beside.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}")));
    if lines.is_empty() {
        return Err(Error::unusable(file, "no sample is left to draw; `report` shows where the time went"));
    }
    let mut options = Options::default();
    options.title = if style.title.is_empty() { "kprof".to_owned() } else { visible(&style.title).into_owned() };
    options.subtitle = (!style.subtitle.is_empty()).then(|| style.subtitle.clone());
    options.count_name = if style.unit.is_empty() { "samples".to_owned() } else { style.unit.clone() };
    options.reverse_stack_order = style.reverse;
    options.direction = if style.icicle { Direction::Inverted } else { Direction::Straight };
    options.hash = true;
    options.deterministic = true;
    options.text_truncate_direction = TextTruncateDirection::Right;
    let users = folded.frames.of_users_only();
    let users: HashSet<String> = users.into_iter().map(|frame| line(folded, &[frame])).collect();
    let names = lines.iter().flat_map(|line| line.rsplit_once(' ')).flat_map(|(frames, _)| frames.split(';'));
    let mut palette = palette(names, &users);
    options.palette_map = Some(&mut palette);
    // Reversing changes the order, so the library then has to sort.
    options.no_sort = false;
    options.min_width = MIN_WIDTH_PERCENT;
    let (lines, mut svg) = (lines.iter().map(String::as_str), Vec::new());
    let failed = |error| Error::io("the flame graph", "write", error);
    inferno::flamegraph::from_lines(&mut options, lines, &mut svg).map_err(failed)?;
    out.write_all(String::from_utf8_lossy(&svg).replace(NO_BREAK_SPACE, " ").as_bytes()).map_err(failed)
}

/// The number of samples from which a frame is wide enough to be drawn.
fn narrowest(samples: u64, beside: &[(&str, u64)]) -> u64 {
    let all: u64 = beside.iter().fold(samples, |sum, (_, count)| sum.saturating_add(*count));
    // Rounded down, so that a frame near the limit is left to the library.
    (all as f64 * (MIN_WIDTH_PERCENT / 100.0)) as u64
}

/// The lines of all stacks, each as far as its frames are wide enough to be drawn: the library keeps every line that it
/// is given, and most frames of a large profile are too narrow.
fn drawn(folded: &Folded, min_samples: u64) -> Vec<String> {
    let mut lines: Vec<(String, u64)> = Vec::new();
    let mut before: &[FrameId] = &[];
    for (stack, depth) in folded.stacks.iter().zip(depths(folded, min_samples)) {
        let frames = &folded.frames_of(stack)[..depth];
        match lines.last_mut() {
            Some((_, samples)) if frames == before => *samples += stack.samples,
            _ => lines.push((line(folded, frames), stack.samples)),
        }
        before = frames;
    }
    lines.into_iter().map(|(line, samples)| format!("{line} {samples}")).collect()
}

/// For each stack, how many of its frames, counted from the root, have at least `min_samples` samples. The result is at
/// least one, because a line needs a frame.
fn depths(folded: &Folded, min_samples: u64) -> Vec<usize> {
    let mut depths = vec![0; folded.stacks.len()];
    // For each frame of the present stack: the index of the first stack that has it, and its samples so far.
    let mut open: Vec<(usize, u64)> = Vec::new();
    let mut before: &[FrameId] = &[];
    let mut close = |open: &mut Vec<(usize, u64)>, to: usize, end: usize| {
        while open.len() > to {
            let depth = open.len();
            let Some((first, samples)) = open.pop() else { return };
            if let Some((_, parent)) = open.last_mut() {
                *parent += samples;
            }
            if samples >= min_samples || depth == 1 {
                // Frames are closed from the innermost on, so the first that is wide enough is the deepest.
                depths[first..end].iter_mut().for_each(|known: &mut usize| *known = depth.max(*known));
            }
        }
    };
    for (number, stack) in folded.stacks.iter().enumerate() {
        let frames = folded.frames_of(stack);
        let common = frames.iter().zip(before).take_while(|(one, other)| one == other).count();
        close(&mut open, common, number);
        open.resize(frames.len(), (number, 0));
        if let Some((_, samples)) = open.last_mut() {
            *samples += stack.samples;
        }
        before = frames;
    }
    close(&mut open, 0, folded.stacks.len());
    depths
}

/// The frames of a line; an inlined frame has its mark.
fn line(folded: &Folded, frames: &[FrameId]) -> String {
    let mut line = String::new();
    for (number, frame) in frames.iter().enumerate() {
        let name = folded.frames.shown(*frame);
        let (bare, mark) = name.strip_suffix(INLINED).map_or((&name[..], ""), |bare| (bare, MARK));
        line.push_str(if number > 0 { ";" } else { "" });
        // The library takes a number at the end of a stack for a weight before the one that follows.
        match bare.rsplit_once(' ').filter(|(_, last)| mark.is_empty() && last.parse::<f64>().is_ok()) {
            Some((front, last)) => line.extend([front, NO_BREAK_SPACE, last]),
            None => line.extend([bare, mark]),
        }
    }
    line
}

/// The color of each frame: that of its kind, a little lighter or darker by its name, so that neighbours differ.
fn palette<'a>(names: impl Iterator<Item = &'a str>, users: &HashSet<String>) -> PaletteMap {
    let mut palette = PaletteMap::default();
    for name in names {
        if palette.get(name).is_none() {
            let shade = (crate::stacks::hash(name.as_bytes()) % SPREAD) as u8;
            let Color { r, g, b } = COLORS[kind(name, users)];
            palette.insert(name, Color { r: r - shade / 2, g: g - shade, b: b - shade });
        }
    }
    palette
}

/// The place of a frame's color in [`COLORS`].
fn kind(name: &str, users: &HashSet<String>) -> usize {
    let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
    match () {
        () if name.ends_with(MARK) && !users.contains(name) => 1,
        () if begins(&["[syscall]"]) => 2,
        () if begins(&["[interrupt ", "[exception ", "[entry]"]) => 3,
        () if begins(&["[lost", "[coalesced"]) => 4,
        () if begins(&["[unknown]", "[truncated]", "[running]"]) => 5,
        () if users.contains(name) => USER,
        () => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The samples of each frame, by its path from the root.
    fn widths<'a>(lines: impl IntoIterator<Item = (&'a [String], u64)>) -> BTreeMap<String, u64> {
        let mut widths = BTreeMap::new();
        for (names, samples) in lines {
            for depth in 1..=names.len() {
                *widths.entry(names[..depth].join(";")).or_default() += samples;
            }
        }
        widths
    }

    proptest! {
        #[test]
        fn every_frame_that_is_wide_enough_is_drawn_at_its_width(
            stacks in prop::collection::vec((prop::collection::vec(0..4_u32, 1..6), 1..50_u64), 1..60),
            min_samples in 0..200_u64,
        ) {
            let name = |number: u32| format!("f{number}{}", if number == 3 { INLINED } else { "" });
            let mut folded = Folded::default();
            for (numbers, samples) in &stacks {
                let ids: Vec<_> = numbers.iter().map(|number| folded.frames.named(&name(*number))).collect();
                folded.push(ids, *samples);
            }
            folded.sort();
            let shown = |numbers: &[u32]| -> Vec<String> {
                numbers.iter().map(|number| name(*number).replace(INLINED, MARK)).collect()
            };
            let paths: Vec<_> = stacks.iter().map(|(numbers, samples)| (shown(numbers), *samples)).collect();
            let mut all = widths(paths.iter().map(|(names, samples)| (&names[..], *samples)));
            all.retain(|path, samples| *samples >= min_samples || !path.contains(';'));
            let lines: Vec<(Vec<String>, u64)> = drawn(&folded, min_samples)
                .iter()
                .map(|line| {
                    let (names, samples) = line.rsplit_once(' ').expect("has samples");
                    (names.split(';').map(str::to_owned).collect(), samples.parse().expect("is a number"))
                })
                .collect();
            prop_assert_eq!(widths(lines.iter().map(|(names, samples)| (&names[..], *samples))), all);
        }
    }
}
