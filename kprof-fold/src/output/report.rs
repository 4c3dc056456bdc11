//! The report: tables to be read in a terminal. Stage: output.
//!
//! In: folded stacks, profile and account. Out: text: functions by self and total time, how all the time was spent, and
//! the account of each CPU, balanced or not.

pub mod csv;
pub mod json;

use super::columns::Columns;
use super::folded::LOST;
use super::groups::{self, Group};
use super::lockups::sentence;
use super::table::{self, Row};
use super::time;
use crate::account::Account;
use crate::events::EventFacts;
use crate::fold::Folded;
use crate::profile::{Boot, Profile};
use kprof_format::account::FATES;
use kprof_format::counter::Counter;
use std::fmt::Write as _;
use std::io::{self, Write};

/// By what the functions are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Two tables: by self time, then by total time.
    #[default]
    Both,
    /// Samples in which the function is innermost.
    #[value(name = "self")]
    SelfSamples,
    /// Samples in whose stack the function stands.
    Total,
    /// The function's name.
    Name,
}

/// What the report shows.
#[derive(Clone, Debug)]
pub struct Style {
    /// The order of the functions.
    pub sort: Sort,
    /// Maximum number of rows of a table; 0 shows all.
    pub top: usize,
    /// Functions whose self and total shares are both smaller than this are not shown; 0 to 1.
    pub limit: f64,
    /// The name of the groups whose samples are shown instead of functions: `task`, `cpu`, `entry`. The root frame of
    /// each stack is then its group.
    pub by: Option<&'static str>,
    /// Whether each row is a source line of a function.
    pub has_lines: bool,
}

/// The data of a report.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The folded stacks.
    pub folded: &'a Folded,
    /// Header and counters.
    pub profile: &'a Profile,
    /// The account.
    pub account: &'a Account,
    /// Losses within the selection.
    pub lost: u64,
    /// Ticks without a sample that are rows too.
    pub ticks: &'a [(&'static str, u64)],
    /// For events instead of samples: what the numbers are.
    pub event: Option<&'a EventFacts>,
}

impl<'a> Input<'a> {
    /// The rows that are no function: lost samples and other ticks without a sample.
    fn beside(&self) -> impl Iterator<Item = (&'static str, u64)> + use<'a> {
        let lost = Some((LOST, self.lost)).into_iter();
        lost.chain(self.ticks.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// What shares are parts of. Counters of a damaged file can be so large that their sum does not fit into 64 bits.
    fn whole(&self) -> u64 {
        self.ticks
            .iter()
            .fold(self.folded.samples().saturating_add(self.lost), |sum, (_, ticks)| sum.saturating_add(*ticks))
    }
}

/// Writes the whole report.
///
/// # Errors
/// Errors of the writer.
pub fn write(input: Input<'_>, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut text = String::new();
    match style.by {
        Some(by) => groups(input, style, by, &mut text),
        None => functions(input, style, &mut text),
    }
    match input.event {
        Some(event) => {
            let _ = writeln!(text, "\n{}", event.account);
        }
        None => {
            where_time_went(input, &mut text);
            cpus(input, &mut text);
            lockups(input, &mut text);
        }
    }
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn functions(input: Input<'_>, style: &Style, text: &mut String) {
    let mut rows = table::rows(input.folded);
    let (samples, count) = (input.folded.samples(), rows.len());
    let note = notes(input.profile);
    let rows_are = if style.has_lines { "lines" } else { "functions" };
    let what = what(input);
    let _ = writeln!(text, "{samples} {what} in {count} {rows_are}, {} lost{note}", input.lost);
    if style.sort == Sort::Both {
        let _ = write!(text, "\nBy self time, {}", shares(input));
        table(input, style, &mut rows.clone(), text);
        let _ = write!(text, "\nBy total time, {}", shares(input));
        sort(input, &mut rows, Sort::Total);
    } else {
        sort(input, &mut rows, style.sort);
    }
    table(input, style, &mut rows, text);
}

/// Of what the shares of a table are parts.
pub fn shares(input: Input<'_>) -> String {
    let unit = input.event.map_or("samples", |event| &event.unit);
    let lost = if input.lost > 0 { " and the lost ones" } else { "" };
    let ticks = if input.ticks.is_empty() { "" } else { " and the ticks without a sample that are rows" };
    let not = if input.event.is_none() && input.ticks.is_empty() { ", not of all the time" } else { "" };
    format!("% of these {unit}{lost}{ticks}{not}")
}

/// What is counted.
fn what(input: Input<'_>) -> String {
    input.event.map_or_else(|| "samples".to_owned(), |event| format!("{} of {}", event.unit, event.name))
}

/// The functions in their order, and how many there were before `--top` and `--limit`.
fn chosen(input: Input<'_>, style: &Style) -> (Vec<Row>, usize) {
    let mut rows = table::rows(input.folded);
    let all = rows.len();
    sort(input, &mut rows, style.sort);
    cut(input, style, &mut rows);
    (rows, all)
}

/// The groups in their order, and how many there were before `--top`.
fn chosen_groups(input: Input<'_>, style: &Style) -> (Vec<Group>, usize) {
    let mut rows = groups::rows(input.folded);
    let all = rows.len();
    rows.truncate(if style.top > 0 { style.top } else { usize::MAX });
    (rows, all)
}

fn cut(input: Input<'_>, style: &Style, rows: &mut Vec<Row>) {
    let all = input.whole();
    rows.retain(|row| row.total as f64 >= style.limit * all as f64);
    rows.truncate(if style.top > 0 { style.top } else { usize::MAX });
}

fn groups(input: Input<'_>, style: &Style, by: &str, text: &mut String) {
    let ((rows, count), name) = (chosen_groups(input, style), |frame| input.folded.frames.shown(frame));
    let (samples, note) = (input.folded.samples(), notes(input.profile));
    let percent = |part: u64, all: u64| part as f64 * 100.0 / all.max(1) as f64;
    let all = input.whole();
    let _ = writeln!(text, "{samples} {}, {} lost{note}\n\nBy {by}, {}", what(input), input.lost, shares(input));
    let unit = input.event.map_or("samples", |event| &event.unit);
    let last = format!("{by:<24}  busiest function, with its part of the {by}");
    let mut table = Columns::with_heads([("%", 7), (unit, 9)], &last);
    let share = |part: u64| format!("{:.2}", percent(part, all));
    for row in &rows {
        let of_it = percent(row.busiest.1, row.samples);
        let last = format!("{:<24}  {} ({of_it:.0} %)", name(row.frame), name(row.busiest.0));
        table.row([share(row.samples), row.samples.to_string()], last);
    }
    input.beside().for_each(|(name, count)| table.row([share(count), count.to_string()], name));
    if rows.len() < count {
        table.line(format!("... {} more (--top 0 shows all)", count - rows.len()));
    }
    text.push_str(&table.text());
}

fn sort(input: Input<'_>, rows: &mut [Row], by: Sort) {
    let name = |row: &Row| input.folded.frames.name(row.frame);
    match by {
        Sort::SelfSamples | Sort::Both => {}
        Sort::Total => rows.sort_by(|a, b| {
            b.total.cmp(&a.total).then(b.self_samples.cmp(&a.self_samples)).then_with(|| name(a).cmp(name(b)))
        }),
        Sort::Name => rows.sort_by(|a, b| name(a).cmp(name(b))),
    }
}

/// Writes one table with the rows in their order.
fn table(input: Input<'_>, style: &Style, rows: &mut Vec<Row>, text: &mut String) {
    let (all, before) = (input.whole(), rows.len());
    cut(input, style, rows);
    let mut table = Columns::with_heads([("self %", 8), ("total %", 8), ("self", 9), ("total", 9)], "function");
    let mut row = |own: u64, total: u64, name: &str| {
        let share = |part: u64| format!("{:.2}", part as f64 * 100.0 / all.max(1) as f64);
        table.row([share(own), share(total), own.to_string(), total.to_string()], name);
    };
    rows.iter().for_each(|one| row(one.self_samples, one.total, &input.folded.frames.shown(one.frame)));
    input.beside().for_each(|(name, count)| row(count, count, name));
    if rows.len() < before {
        table.line(format!("... {} more (--top 0 --limit 0% shows all)", before - rows.len()));
    }
    let _ = write!(text, "\n{}", table.text());
}

/// Notes on what limits the exactness of times and addresses.
pub fn notes(profile: &Profile) -> String {
    noted(profile).map(|note| format!("; {note}")).collect()
}

/// Each of these words by itself.
fn noted(profile: &Profile) -> impl Iterator<Item = &str> {
    let is_any = |of: fn(&Boot) -> bool| profile.boots.iter().any(of);
    let instructions = is_any(Boot::counts_instructions).then_some("time is counted in instructions");
    let rough = is_any(Boot::has_rough_places).then_some("places are rough (multi-threaded TCG)");
    instructions.into_iter().chain(rough).chain(profile.doubts.iter().map(String::as_str))
}

fn where_time_went(input: Input<'_>, text: &mut String) {
    let rows = time::rows(input.profile, input.account);
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", time::heading(input.profile, input.account));
    let mut table = Columns::new(&[9, 10]);
    let percent = |per_mille: u64| format!("{:.1} %", per_mille as f64 / 10.0);
    for row in &rows {
        let ticks = if row.ticks > 0 { row.ticks.to_string() } else { "-".to_owned() };
        table.row([percent(row.per_mille), ticks], row.what);
    }
    table.row([percent(rows.iter().map(|row| row.per_mille).sum())], "");
    text.push_str(&table.text());
    if let Some(below) = time::below(input.profile, input.account) {
        let _ = writeln!(text, "{below}");
    }
}

fn lockups(input: Input<'_>, text: &mut String) {
    let all = sentences(input.profile);
    if !all.is_empty() {
        let _ = writeln!(text, "\nLockups (`kprof-fold lockups` has the stacks of all CPUs)");
    }
    for sentence in all {
        let _ = writeln!(text, "  {sentence}");
    }
}

/// A sentence for each CPU that was locked up.
fn sentences(profile: &Profile) -> Vec<String> {
    let of_boot = |boot: &Boot| {
        let hz = boot.tsc_hz().map(|hz| hz as f64);
        boot.lockups.iter().map(|lockup| sentence(lockup, hz)).collect::<Vec<_>>()
    };
    profile.boots.iter().flat_map(of_boot).collect()
}

fn cpus(input: Input<'_>, text: &mut String) {
    let account = input.account;
    if account.cpus.is_empty() {
        let _ = writeln!(text, "\n{account}");
        return;
    }
    let sums = account.fates();
    let shown = || FATES.iter().enumerate().filter(|(at, fate)| fate.is_shown(sums[*at]));
    let has_boots = account.cpus.iter().any(|cpu| cpu.boot != account.cpus[0].boot);
    for cpus in account.cpus.chunk_by(|a, b| a.boot == b.boot) {
        let heading = if has_boots { format!("Boot {}\n", cpus[0].boot + 1) } else { String::new() };
        let fates = shown().map(|(_, fate)| (fate.name, 9));
        let heads = [("CPU ", 4), (Counter::Sent.name(), 10)].into_iter().chain(fates).chain([("in file", 10)]);
        let mut table = Columns::with_heads(heads, "account");
        for cpu in cpus {
            // Only the final counters are those of all ticks.
            let count = |ticks: u64| if cpu.is_final || ticks > 0 { ticks.to_string() } else { "-".to_owned() };
            let verdict = match (cpu.is_final, cpu.faults.is_empty()) {
                (_, false) => cpu.faults.join("; "),
                (true, true) => "balanced".to_owned(),
                (false, true) => "not closed yet".to_owned(),
            };
            let fates = shown().map(|(at, _)| count(cpu.fates[at]));
            let first = [format!("{:<4}", cpu.cpu), count(cpu.get(Counter::Sent))].into_iter();
            table.row(first.chain(fates).chain([cpu.in_file.to_string()]), verdict);
        }
        let _ = write!(text, "\n{heading}{}", table.text());
    }
    let losses = account.losses_in_words();
    if !losses.is_empty() {
        let _ = writeln!(text, "lost: {losses}");
    }
    let _ = writeln!(text, "{account}");
}
