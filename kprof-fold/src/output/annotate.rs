//! A function's source lines and instructions with their share of its samples. Stage: output.
//!
//! In: a timeline, symbols from an ELF file, the name of a function. Out: text: the source lines that have samples,
//! with self and total counts, the source itself if the file is found, and below each line its instructions with
//! samples. Code without lines, such as assembly, is shown as instructions alone. A note says when places are inexact:
//! under `tcg` a sample is at the start of a block; under `icount` time is counted in instructions; with `ipi` a sample
//! may be at the instruction that enables interrupts.

pub mod code;
pub(super) mod source;

use crate::profile::Profile;
use crate::resolve::{Frame, Function, Resolver};
use crate::select::Pattern;
use crate::stacks::{StackId, Stacks};
use crate::symbols::Symbols;
use crate::symbols::elf::Location;
use crate::symbols::users::plain;
use kprof_format::fact::Fact;
use kprof_format::precision::Precision;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Number of source lines and of instructions shown before and after one with samples.
const AROUND: u32 = 2;

/// How it is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style<'a> {
    /// Whether all instructions are shown in the order of their addresses, instead of source lines.
    pub instructions: bool,
    /// Folders with the source.
    pub source: &'a [String],
    /// What is counted with `--event`: its unit, and what of it may be in any function, in words.
    pub event: Option<(&'a str, &'a str)>,
}

/// Samples of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Those in which it is innermost.
    pub self_samples: u64,
    /// Those in whose stack it is.
    pub total: u64,
}

impl std::ops::Add for Samples {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { self_samples: self.self_samples + other.self_samples, total: self.total + other.total }
    }
}

/// Samples per source line and per address.
#[derive(Default)]
pub struct Lines {
    lines: BTreeMap<Location, Samples>,
    /// The samples of each address, and the line of those that have one.
    places: BTreeMap<u64, Samples>,
    line_of: BTreeMap<u64, Location>,
    all: Samples,
    /// Functions that match the pattern.
    pub functions: BTreeSet<String>,
    /// All functions with samples.
    pub known: BTreeSet<String>,
}

/// Collects the places of all functions that match, from the samples or the weight of each stack.
pub fn collect(
    counts: BTreeMap<StackId, u64>,
    stacks: &Stacks,
    symbols: &Symbols,
    function: &Pattern,
    user: bool,
) -> Lines {
    let mut found = Lines::default();
    let mut words = Vec::new();
    let mut resolver = Resolver::new(symbols);
    for stack in counts.keys() {
        stacks.words(*stack, &mut words);
        resolver.frames(&words, user, |_| ());
    }
    let known: BTreeSet<String> = resolver.functions().map(|function| function.name.clone()).collect();
    let function = function.among(&known);
    for (stack, samples) in counts {
        stacks.words(stack, &mut words);
        let mut one =
            Sample { samples, innermost: true, is_self: false, lines: BTreeSet::new(), places: BTreeSet::new() };
        resolver.frames(&words, user, |frame| match frame {
            Frame::At(address, place) => {
                for Function { name, location, .. } in place.functions.iter().filter(|_| place.symbol.is_some()) {
                    if function.is(name) {
                        found.functions.insert(name.clone());
                        found.add(&mut one, address, location.clone());
                    }
                    one.innermost = false;
                }
                one.innermost = false;
            }
            Frame::Running => one.innermost = false,
            Frame::Marker(_) | Frame::Nothing => {}
        });
        found.all.self_samples += if one.is_self { samples } else { 0 };
        found.all.total += if one.places.is_empty() { 0 } else { samples };
    }
    found.known = known;
    found
}

/// A stack whose frames are being counted: how many samples have it, and what was already counted for these samples.
struct Sample {
    samples: u64,
    innermost: bool,
    is_self: bool,
    lines: BTreeSet<Location>,
    places: BTreeSet<u64>,
}

impl Lines {
    fn add(&mut self, one: &mut Sample, address: u64, line: Option<Location>) {
        let self_samples = if one.innermost { one.samples } else { 0 };
        one.is_self |= one.innermost;
        let samples = |is_new| Samples { self_samples, total: if is_new { one.samples } else { 0 } };
        let place = self.places.entry(address).or_default();
        *place = *place + samples(one.places.insert(address));
        let Some(line) = line.filter(|line| line.line > 0) else { return };
        self.line_of.entry(address).or_insert_with(|| line.clone());
        let counts = self.lines.entry(line.clone()).or_default();
        *counts = *counts + samples(one.lines.insert(line));
    }
}

/// Formats the text.
pub fn text(found: &Lines, symbols: &Symbols, profile: &Profile, style: Style<'_>) -> String {
    let mut text = String::new();
    let (unit, note) = style.event.unwrap_or(("samples", ""));
    // A hit is where its point was called, however samples are taken.
    let notes = if style.event.is_none() { roughness(profile) } else { vec![note] };
    for note in notes.into_iter().filter(|note| !note.is_empty()) {
        let _ = writeln!(text, "note: {note}");
    }
    for name in &found.functions {
        let _ = writeln!(text, "{name}");
    }
    let _ = writeln!(
        text,
        "{} {unit} innermost, {} anywhere in the stack; shares are of the latter",
        found.all.self_samples, found.all.total
    );
    let code = found.code(symbols);
    if !style.instructions {
        let files: BTreeSet<&str> = found.lines.keys().map(|place| &place.file[..]).collect();
        for file in files {
            found.file(file, &code, style, &mut text);
        }
    }
    for (number, lines) in &code {
        let mut places = found.places.keys().filter(|address| symbols.find(**address) == Some(*number));
        if style.instructions || places.any(|address| !found.line_of.contains_key(address)) {
            let _ = writeln!(text, "\n{}\n  self %  total %  instruction", symbols.function(*number));
            found.listing(lines, style.instructions, &mut text);
        }
    }
    text
}

impl Lines {
    /// The instructions of each function that has a place with samples, by the number of its symbol.
    fn code(&self, symbols: &Symbols) -> BTreeMap<usize, Vec<code::Line>> {
        let mut code = BTreeMap::new();
        for address in self.places.keys() {
            if let Some(number) = symbols.find(*address) {
                code.entry(number).or_insert_with(|| code::function(symbols, *address, &self.places));
            }
        }
        code
    }

    fn percent(&self, part: u64) -> f64 {
        part as f64 * 100.0 / self.all.total.max(1) as f64
    }

    /// Writes the lines of one file, and below each line its instructions with samples.
    fn file(&self, file: &str, code: &BTreeMap<usize, Vec<code::Line>>, style: Style<'_>, text: &mut String) {
        let source = source::lines(file, style.source);
        let hint = if source.is_none() { "  (not found here; --source DIR says where the source is)" } else { "" };
        let _ = writeln!(text, "\n{file}{hint}\n  self %  total %  line");
        let of_file = self.lines.iter().filter(|(place, _)| place.file == file);
        let lines: BTreeMap<u32, Samples> = of_file.map(|(place, samples)| (place.line, *samples)).collect();
        let around = lines.keys().flat_map(|line| line.saturating_sub(AROUND)..=line.saturating_add(AROUND));
        let shown: BTreeSet<u32> = if source.is_some() { around.collect() } else { lines.keys().copied().collect() };
        let mut before = None;
        for line in shown {
            let words = source.as_ref().map(|source| source.get((line as usize).wrapping_sub(1)));
            if let Some(None) = words {
                continue;
            }
            if before.is_some_and(|before| line > before + 1) {
                text.push_str("                    ...\n");
            }
            before = Some(line);
            let (own, total) = lines.get(&line).map_or_else(Default::default, |samples| {
                let shown = |part| format!("{:.2}", self.percent(part));
                (shown(samples.self_samples), shown(samples.total))
            });
            let _ = writeln!(text, "{own:>8} {total:>8} {line:>6}  {}", words.flatten().map_or("", String::as_str));
            self.instructions(&Location { file: file.to_owned(), line }, code, text);
        }
    }

    fn instructions(&self, line: &Location, code: &BTreeMap<usize, Vec<code::Line>>, text: &mut String) {
        let next = |instruction: &code::Line| {
            let mut after = self.line_of.range(instruction.address..);
            after.next().is_some_and(|(_, place)| place == line)
        };
        for instruction in code.values().flatten().filter(|line| line.samples.total > 0 && !line.text.is_empty()) {
            if next(instruction) {
                self.row(instruction, "        ", text);
            }
        }
    }

    /// Writes instructions: all of them, or those with samples and a few before and after.
    fn listing(&self, lines: &[code::Line], all: bool, text: &mut String) {
        let around = AROUND as usize;
        let is_near = |at: usize| {
            let near = &lines[at.saturating_sub(around)..(at + around + 1).min(lines.len())];
            near.iter().any(|line| line.samples.total > 0)
        };
        let mut before = None;
        for (at, line) in lines.iter().enumerate().filter(|(at, _)| all || is_near(*at)) {
            if before.is_some_and(|before| at > before + 1) {
                text.push_str("                    ...\n");
            }
            before = Some(at);
            self.row(line, " ", text);
        }
    }

    fn row(&self, line: &code::Line, space: &str, text: &mut String) {
        let shown =
            |part: u64| if line.samples.total > 0 { format!("{:.2}", self.percent(part)) } else { String::new() };
        let (own, total) = (shown(line.samples.self_samples), shown(line.samples.total));
        let _ = writeln!(text, "{own:>8} {total:>8}{space} {:x}  {}", plain(line.address), line.text);
    }
}

/// The reasons why lines may be inexact.
fn roughness(profile: &Profile) -> Vec<&'static str> {
    let says = |fact, value| profile.boots.iter().any(|boot| boot.fact(fact) == Some(value));
    let sampled_by = |trigger| profile.boots.iter().any(|boot| boot.trigger() == Some(trigger));
    let notes = [
        (
            says(Fact::Precision, Precision::Block.name()),
            "places are rough (multi-threaded TCG): samples land on the starts of translated blocks",
        ),
        (
            says(Fact::Clock, "instructions"),
            "time is counted in instructions: a slow instruction weighs no more than a fast one",
        ),
        (sampled_by("ipi"), "places are rough: time with interrupts off appears at the instruction that turns them on"),
        (sampled_by("published"), "places are entries into the kernel, not instructions"),
    ];
    notes.into_iter().filter(|(applies, _)| *applies).map(|(_, note)| note).collect()
}
