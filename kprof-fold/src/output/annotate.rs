//! A function's source lines with their share of its samples. Stage: output.
//!
//! In: a timeline, symbols with DWARF, the name of a function. Out: text: the source lines that have samples, with self
//! and total counts, and the source itself if the file can be read. A note says when lines are inexact: under `tcg` a
//! sample is at the start of a block; under `icount` time is counted in instructions; with `ipi` a sample may be at the
//! instruction that enables interrupts.

use crate::fold::walk::{Step, walk};
use crate::profile::Profile;
use crate::select::Pattern;
use crate::stacks::Stacks;
use crate::symbols::Symbols;
use crate::symbols::elf::Location;
use crate::timeline::Timeline;
use kprof_format::fact::Fact;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Number of source lines shown before and after a line with samples.
const AROUND: u32 = 2;

/// Samples per source line: those in which it is innermost, and those in whose stack it is.
#[derive(Default)]
pub struct Lines {
    lines: BTreeMap<Location, (u64, u64)>,
    own: u64,
    total: u64,
    /// Functions that match the pattern.
    pub functions: BTreeSet<String>,
}

/// Collects the lines of all functions that match.
pub fn collect(timeline: &Timeline, stacks: &Stacks, symbols: &Symbols, function: &Pattern, user: bool) -> Lines {
    let mut found = Lines::default();
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    timeline.events.iter().for_each(|event| *counts.entry(event.stack).or_default() += 1);
    let mut words = Vec::new();
    for (stack, samples) in counts {
        stacks.words(stack, &mut words);
        let (mut innermost, mut seen, mut any_own) = (true, BTreeSet::new(), false);
        walk(&words, user, |step| {
            let address = match step {
                Step::Address(address) => address,
                Step::Running => {
                    innermost = false;
                    return;
                }
                Step::Candidate { .. } | Step::Marker(_) => return,
            };
            let Some(number) = symbols.find(address) else {
                innermost = false;
                return;
            };
            let physical = symbols.plain_name(number);
            for frame in symbols.inlined(address) {
                let name = frame.name.as_deref().unwrap_or(&physical);
                if let (true, Some(place)) = (function.fits(name), frame.location) {
                    found.functions.insert(name.to_owned());
                    let line = found.lines.entry(place.clone()).or_default();
                    if innermost {
                        line.0 += samples;
                        any_own = true;
                    }
                    if seen.insert(place) {
                        line.1 += samples;
                    }
                }
                innermost = false;
            }
        });
        found.own += if any_own { samples } else { 0 };
        found.total += if seen.is_empty() { 0 } else { samples };
    }
    found
}

/// Formats the text.
pub fn text(found: &Lines, profile: &Profile) -> String {
    let mut text = String::new();
    for note in roughness(profile) {
        let _ = writeln!(text, "note: {note}");
    }
    for name in &found.functions {
        let _ = writeln!(text, "{name}");
    }
    let _ = writeln!(text, "{} samples innermost, {} anywhere in the stack", found.own, found.total);
    let files: BTreeSet<&str> = found.lines.keys().map(|place| &place.file[..]).collect();
    for file in files {
        let _ = writeln!(text, "\n{file}\n  self %  total %  line");
        let lines: BTreeMap<u32, (u64, u64)> = found
            .lines
            .iter()
            .filter(|(place, _)| place.file == file)
            .map(|(place, counts)| (place.line, *counts))
            .collect();
        let source: Option<Vec<String>> =
            std::fs::read(file).ok().map(|bytes| String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect());
        let around = lines.keys().flat_map(|line| line.saturating_sub(AROUND)..=line + AROUND);
        let shown: BTreeSet<u32> = if source.is_some() { around.collect() } else { lines.keys().copied().collect() };
        let mut before = None;
        for line in shown {
            let source_line = source.as_ref().map(|source| source.get((line as usize).wrapping_sub(1)));
            if let Some(None) = source_line {
                continue;
            }
            if before.is_some_and(|before| line > before + 1) {
                text.push_str("                    ...\n");
            }
            before = Some(line);
            let percent = |part: u64| format!("{:.2}", part as f64 * 100.0 / found.total.max(1) as f64);
            let (own, total) =
                lines.get(&line).map_or_else(Default::default, |(own, total)| (percent(*own), percent(*total)));
            let _ =
                writeln!(text, "{own:>8} {total:>8} {line:>6}  {}", source_line.flatten().map_or("", String::as_str));
        }
    }
    text
}

/// The reasons why lines may be inexact.
fn roughness(profile: &Profile) -> Vec<&'static str> {
    let says = |fact, value| profile.boots.iter().any(|boot| boot.fact(fact) == Some(value));
    let notes = [
        (
            says(Fact::Accel, "tcg"),
            "places are rough (multi-threaded TCG): samples land on the starts of translated blocks",
        ),
        (
            says(Fact::Clock, "instructions"),
            "time is counted in instructions: a slow instruction weighs no more than a fast one",
        ),
        (
            says(Fact::Trigger, "ipi"),
            "places are rough: time with interrupts off appears at the instruction that turns them on",
        ),
        (says(Fact::Trigger, "published"), "places are entries into the kernel, not instructions"),
    ];
    notes.into_iter().filter(|(applies, _)| *applies).map(|(_, note)| note).collect()
}
