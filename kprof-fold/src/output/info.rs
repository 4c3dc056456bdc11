//! Describes a profile: header, account, rate reached, intervals, tasks, losses. Stage: output.
//!
//! In: a profile, an overview of its samples, the result of the aliasing check. Out: text. The histogram of intervals
//! shows when ticks come: random intervals spread around the period, fixed ones are a single bar.

pub mod csv;
pub mod json;

use crate::account::Account;
use crate::aliasing::Verdict;
use crate::intervals::Intervals;
use crate::output::columns::{self, Columns};
use crate::output::{lockups, time};
use crate::overview::{CHECKED, Overview};
use crate::profile::{Counters, Profile};
use crate::symbols::name::visible;
use crate::symbols::users::plain;
use kprof_format::fact::Fact;
use kprof_format::point::PointCounter;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Number of bars of the histogram, from 0 to twice the median interval.
const BARS: usize = 20;
/// Maximum number of lines in the table of tasks.
const MAX_TASKS: usize = 20;

/// Formats the text.
pub fn text(
    profile: &Profile,
    overview: &Overview,
    (account, aliasing, is_part): (&Account, &Verdict, bool),
    form: &str,
    tsc_hz: Option<f64>,
) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "form: {form}; {} lines, {} bytes", profile.lines, profile.bytes);
    for (number, boot) in profile.boots.iter().enumerate() {
        let _ = writeln!(text, "boot {}: {}", number + 1, if boot.id().is_empty() { "(not named)" } else { boot.id() });
        for (key, value) in boot.header.iter().filter(|(key, _)| *key != Fact::Boot.name()) {
            let _ = writeln!(text, "  {} {}", visible(key), visible(value));
        }
        for (name, address) in &boot.anchors {
            let _ = writeln!(text, "  anchor {name} at {:x}", plain(*address));
        }
        for (what, list) in [("mark", &boot.marks), ("setting", &boot.settings)] {
            for mark in list {
                let _ =
                    writeln!(text, "  {what} {} at TSC {:x}", visible(&String::from_utf8_lossy(&mark.name)), mark.tsc);
            }
        }
        for lockup in &boot.lockups {
            let _ = writeln!(text, "  {} until TSC {:x}", lockups::sentence(lockup, tsc_hz), lockup.tsc);
        }
        if let Some((first, _)) = boot.span() {
            let _ = writeln!(text, "  time 0 is that of the first sample or hit: TSC {first:x}");
        }
        events(&boot.events, boot.missing_meta_words, &mut text);
        for (name, point) in &boot.points {
            let recorded = point.count(PointCounter::Recorded);
            let events = match recorded.max(point.in_file()) {
                0 => String::new(),
                _ => format!("{recorded} recorded ({} events in the file), ", point.in_file()),
            };
            let _ = writeln!(
                text,
                "  point {}: {} hits, {} {} in all, {events}{} lost{}",
                visible(name),
                point.hits(),
                point.weight(),
                visible(&point.unit),
                point.count(PointCounter::Lost),
                point.doubt()
            );
        }
        for (number, cpu) in &boot.cpus {
            let (seen, repeated) = (&cpu.seen, cpu.repeated_batches);
            let span = seen.tsc_min().zip(seen.tsc_max()).map_or(0, |(from, to)| to - from);
            let _ = write!(
                text,
                "  CPU {number}: {} samples, {} in the kernel, {} idle",
                seen.samples(),
                seen.kernel(),
                seen.idle()
            );
            if let Some(hz) = boot.tsc_hz().map(|hz| hz as f64).or(tsc_hz).filter(|_| span > 0) {
                let seconds = span as f64 / hz;
                let _ = write!(text, "; {seconds:.3} s, {:.1} samples/s", (seen.samples() - 1) as f64 / seconds);
                // There are more ticks than samples, because filtered ticks were sent too.
                if let Some(rate) = cpu.ticks.rate(hz, &boot.settings) {
                    let _ = write!(text, ", {rate:.1} ticks/s");
                }
                if let Some(asked) = boot.number(Fact::Hz) {
                    let _ = write!(text, " of {asked} asked for");
                }
            }
            let _ = writeln!(
                text,
                "{}",
                if repeated > 0 { format!("; {repeated} batches seen again") } else { String::new() }
            );
        }
    }
    tasks(overview, &mut text);
    intervals(&overview.intervals, tsc_hz, &mut text);
    let part =
        if is_part { format!(" (looked at: the first {CHECKED} kernel samples of each CPU)") } else { String::new() };
    let _ = writeln!(text, "aliasing: {aliasing}{part}");
    let lost = profile.lost();
    let _ = writeln!(text, "lost: {lost}");
    if let Some(below) = time::below(profile, account) {
        let _ = writeln!(text, "{below}");
    }
    let _ = writeln!(text, "{account}");
    text
}

/// The events that the kernel counted by task; the largest counts come first. Records of such counts may have been
/// among the words of the meta stream that are missing.
fn events(events: &BTreeMap<Vec<u8>, Counters>, missing_meta_words: u64, text: &mut String) {
    let names: BTreeSet<&String> = events.values().flat_map(Counters::keys).collect();
    let mut rows: Vec<_> = events.iter().collect();
    rows.sort_by_key(|(_, counts)| Reverse(counts.values().fold(0, |sum: u64, count| sum.saturating_add(*count))));
    if !rows.is_empty() {
        let heads = [("  events", 8)].into_iter().chain(names.iter().map(|name| (&name[..], 17)));
        let mut table = Columns::with_heads(heads, "task");
        for (task, counts) in rows.iter().take(MAX_TASKS) {
            let counts = names.iter().map(|name| counts.get(*name).unwrap_or(&0).to_string());
            let cells = std::iter::once(String::new()).chain(counts);
            table.row(cells, visible(&String::from_utf8_lossy(task)));
        }
        text.push_str(&table.text());
    }
    if rows.len() > MAX_TASKS {
        let _ = writeln!(text, "        and {} tasks with fewer", rows.len() - MAX_TASKS);
    }
    if !rows.is_empty() && missing_meta_words > 0 {
        let what = "words of the meta stream are missing, which may have had more of them";
        let _ = writeln!(text, "        {missing_meta_words} {what}");
    }
}

fn tasks(overview: &Overview, text: &mut String) {
    let tasks = overview.tasks();
    let _ = writeln!(text, "tasks: {}", tasks.len());
    for (name, samples) in tasks.into_iter().take(MAX_TASKS) {
        let _ = writeln!(text, "  {samples:>9} {name}");
    }
}

fn intervals(all: &Intervals, tsc_hz: Option<f64>, text: &mut String) {
    let Some(middle) = all.middle().filter(|_| all.len() >= 10).map(|middle| middle.max(1.0)) else { return };
    let shown = |ticks: f64| match tsc_hz {
        Some(hz) => format!("{:.1} us", ticks * 1e6 / hz),
        None => format!("{ticks:.0} ticks"),
    };
    let _ =
        writeln!(text, "intervals between samples of one CPU: {} of them, the middle one {}", all.len(), shown(middle));
    let mut bars = [0u64; BARS + 1];
    for (interval, count) in all.iter() {
        let bar = interval * BARS as f64 / (2.0 * middle);
        bars[(bar as usize).min(BARS)] += count;
    }
    let most = bars.iter().copied().max().unwrap_or(1).max(1);
    for (number, count) in bars.iter().enumerate() {
        let from = shown(number as f64 * 2.0 * middle / BARS as f64);
        let bar = columns::bar(*count, most);
        let _ = writeln!(text, "  {}{from:>12} {count:>8} {bar}", if number == BARS { ">" } else { " " });
    }
}
