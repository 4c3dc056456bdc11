//! The flame graph, an SVG drawn by the inferno library. Stage: output.
//!
//! In: sorted stacks, losses, words for title and subtitle. Out: an SVG; losses are drawn in it at their true width.
//! This module only adds what is specific to a kernel profile: losses and clock in the subtitle, samples as the unit, a
//! color for each kind of frame, which is that of the page, and a legend of them. An inlined frame has the mark `_[i]`,
//! as in perf's flame graphs: the library leaves it out of the labels, which have little room.

use crate::error::Error;
use crate::fold::Folded;
use crate::fold::frames::FrameId;
use crate::symbols::INLINED;
use crate::symbols::name::visible;
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{Direction, Options, TextTruncateDirection};
use std::collections::{BTreeSet, HashSet};
use std::io::Write;

/// The mark of an inlined frame.
const MARK: &str = "_[i]";
/// The kinds of frames, by the page's words, with the page's colors (`page/color.js`, the light theme).
const COLORS: [(&str, Color); 7] = [
    ("kernel", Color { r: 240, g: 174, b: 117 }),
    ("inlined", Color { r: 238, g: 215, b: 139 }),
    ("syscall", Color { r: 105, g: 194, b: 211 }),
    ("interrupt", Color { r: 199, g: 163, b: 224 }),
    ("lost", Color { r: 153, g: 153, b: 153 }),
    ("marker", Color { r: 189, g: 189, b: 189 }),
    ("user", Color { r: 145, g: 203, b: 134 }),
];
/// The index of user code in `COLORS`.
const USER: usize = 6;
/// How much the colors of two functions of one kind differ at most.
const SPREAD: u64 = 18;
/// The names by which the library looks up the color of the root, and this color.
const ROOT: [&str; 2] = ["", "all"];
const ROOT_COLOR: Color = Color { r: 214, g: 214, b: 214 };
const WHITE: Color = Color { r: 255, g: 255, b: 255 };
/// The legend's height, and the width of a word in it, in pixels.
const LEGEND_HEIGHT: u32 = 24;
const WORD_WIDTH: u32 = 96;

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
    // The end of a name says more than its beginning, which is often that of the names beside it.
    options.text_truncate_direction = TextTruncateDirection::Left;
    options.bgcolors = Some(BackgroundColor::Flat(WHITE));
    let users = folded.frames.of_users_only();
    let users: HashSet<String> = users.into_iter().map(|frame| line(folded, &[frame])).collect();
    let names = lines.iter().flat_map(|line| line.rsplit_once(' ')).flat_map(|(frames, _)| frames.split(';'));
    let kinds: BTreeSet<usize> = names.clone().map(|name| kind(name, &users)).collect();
    let mut palette = palette(names, &users);
    options.palette_map = Some(&mut palette);
    // Reversing changes the order, so the library then has to sort.
    options.no_sort = false;
    options.min_width = MIN_WIDTH_PERCENT;
    let (lines, mut svg) = (lines.iter().map(String::as_str), Vec::new());
    let failed = |error| Error::io("the flame graph", "write", error);
    inferno::flamegraph::from_lines(&mut options, lines, &mut svg).map_err(failed)?;
    let svg = with_legend(&String::from_utf8_lossy(&svg).replace(NO_BREAK_SPACE, " "), &kinds);
    out.write_all(svg.as_bytes()).map_err(failed)
}

/// The picture, made higher by a legend of these kinds of frames.
fn with_legend(svg: &str, kinds: &BTreeSet<usize>) -> String {
    let of_size = |svg: &str| svg.split_once("height=\"")?.1.split_once('"')?.0.parse::<u32>().ok();
    let (Some(height), Some(picture)) = (of_size(svg), svg.strip_suffix("</svg>")) else { return svg.to_owned() };
    let higher = height + LEGEND_HEIGHT;
    // The height is in the first tag, twice, and in that of the background.
    let mut picture = picture.replacen(&format!("height=\"{height}\""), &format!("height=\"{higher}\""), 2);
    picture = picture.replacen(&format!(" {height}\""), &format!(" {higher}\""), 1);
    for (kind, at) in kinds.iter().zip(0..) {
        let (word, Color { r, g, b }) = COLORS[*kind];
        let (left, top) = (10 + at * WORD_WIDTH, height + 4);
        let (text, base) = (left + 16, top + 10);
        picture += &format!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"12\" height=\"12\" fill=\"rgb({r},{g},{b})\"/>\
             <text x=\"{text}\" y=\"{base}\">{word}</text>"
        );
    }
    picture + "</svg>"
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
    for name in ROOT {
        palette.insert(name, ROOT_COLOR);
    }
    for name in names {
        if palette.get(name).is_none() {
            let shade = (crate::stacks::hash(name.as_bytes()) % SPREAD) as u8;
            let (_, Color { r, g, b }) = COLORS[kind(name, users)];
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

    /// Hue, saturation and lightness as red, green and blue.
    fn rgb([hue, saturation, lightness]: [f64; 3]) -> [f64; 3] {
        let amplitude = saturation * lightness.min(1.0 - lightness);
        [0.0, 8.0, 4.0].map(|offset| {
            let at = (offset + hue / 30.0) % 12.0;
            255.0 * (lightness - amplitude * (at - 3.0).min(9.0 - at).clamp(-1.0, 1.0))
        })
    }

    #[test]
    fn the_colors_are_those_of_the_page() {
        let page = include_str!("page/color.js");
        for (kind, color) in COLORS {
            let (_, rest) = page.split_once(&format!(" {kind}: [[")).expect("the page has this kind");
            let (numbers, _) = rest.split_once(']').expect("its color ends");
            let numbers: Vec<f64> = numbers.split(", ").map(|number| number.parse().expect("is a number")).collect();
            let expected = rgb([numbers[0], numbers[1] / 100.0, numbers[2] / 100.0]);
            let found = [color.r, color.g, color.b].map(f64::from);
            assert!(found.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1.0), "{kind}: {expected:?}");
        }
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
