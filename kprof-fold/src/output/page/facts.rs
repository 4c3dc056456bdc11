//! The head of the page, and all facts that are not columns. Stage: output, part of the page.
//!
//! In: header, counters and account. Out: the HTML up to the data, which says what ran, how it was sampled, what was
//! lost, whether the account balances and where all the time went; and the JSON text for the script.

use super::event::sums_beside;
use super::stacks::Tree;
use super::{Input, gaps};
use crate::diff::ONE_RUN;
use crate::diff::output::exactness;
use crate::lockups::Lockup;
use crate::output::lockups;
use crate::output::{report, time};
use crate::profile::{Boot, Mark};
use crate::symbols::Inlines;
use crate::symbols::name::{markup, visible};
use kprof_format::fact::Fact;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const MICROS: u128 = 1_000_000;

/// Converts TSC to microseconds on the page: those of the first boot begin with its first sample or hit, those of a
/// later boot where the boot before it ends.
pub struct Clock {
    tsc_hz: u64,
    /// For each boot its first TSC, and the microseconds of all boots before it.
    zeros: Vec<(u64, u64)>,
}

impl Clock {
    /// The clock of a profile.
    pub fn new(input: &Input<'_>) -> Self {
        let tsc_hz = (input.tsc_hz as u64).max(1);
        let (mut before, mut zeros) = (0, Vec::new());
        for boot in &input.profile.boots {
            let (first, last) = boot.span().unwrap_or_default();
            zeros.push((first, before));
            before += micros(last - first, tsc_hz) + 1;
        }
        Self { tsc_hz, zeros }
    }

    /// The first TSC of a boot.
    pub fn first(&self, boot: usize) -> u64 {
        self.zeros.get(boot).map_or(0, |zero| zero.0)
    }

    /// The time of a TSC of a boot, rounded down.
    pub fn micros(&self, boot: u32, tsc: u64) -> u64 {
        let (first, before) = self.zeros.get(boot as usize).copied().unwrap_or_default();
        before + micros(tsc.saturating_sub(first), self.tsc_hz)
    }
}

fn micros(ticks: u64, tsc_hz: u64) -> u64 {
    (u128::from(ticks) * MICROS / u128::from(tsc_hz)) as u64
}

/// The CPUs that have samples or ticks without one, ascending.
pub fn cpus(input: &Input<'_>) -> Vec<u32> {
    let events = input.timeline.events.iter().map(|event| event.cpu);
    let admitted = |cpu: &u32| input.timeline.select().admits_cpu(*cpu);
    let beside: Vec<u32> = match &input.event {
        Some(event) => event.cpus().collect(),
        None => input.profile.gaps.iter().map(|gap| gap.cpu).collect(),
    };
    let mut cpus: Vec<u32> = events.chain(beside).filter(admitted).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// The facts for the script.
pub fn text(input: &Input<'_>, tree: &Tree) -> Value {
    let clock = Clock::new(input);
    let boots = || input.profile.boots.iter().zip(0u32..);
    let marks = boots().flat_map(|(boot, number)| boot.marks.iter().map(move |mark| (number, mark)));
    let begins: Vec<Value> = boots()
        .skip(1)
        .map(|(boot, number)| json!([clock.zeros[number as usize].1, format!("boot {}", boot.id())]))
        .collect();
    let mark = |(boot, mark): (u32, &Mark)| {
        let name = String::from_utf8_lossy(&mark.name).into_owned();
        json!([clock.micros(boot, mark.tsc), visible(&name)])
    };
    let lockups = boots().flat_map(|(boot, number)| boot.lockups.iter().map(move |lockup| (number, lockup)));
    let lockup = |(boot, lockup): (u32, &Lockup)| {
        json!([clock.micros(boot, lockup.tsc), lockups::sentence(lockup, Some(input.tsc_hz))])
    };
    let mut facts = json!({
        "title": input.title,
        "cpus": cpus(input),
        "tasks": input.timeline.tasks,
        "tscHz": input.tsc_hz as u64,
        "boots": input.profile.boots.len(),
        "marks": begins.into_iter().chain(marks.map(mark)).chain(lockups.map(lockup)).collect::<Vec<_>>(),
        "gaps": gaps::losses(input, &clock),
        "filtered": gaps::filtered(input, &clock),
        "user": input.user,
        "inline": match input.inlines {
            Inlines::All => "all",
            Inlines::Own => "own",
            Inlines::None => "none",
        },
        "tree": tree.text(),
    });
    if let Some(event) = &input.event {
        // Losses of samples and filtered ticks say nothing of the hits.
        (facts["gaps"], facts["filtered"]) = (json!([]), json!([]));
        facts["event"] = event.facts();
    }
    if let Some(old) = &input.old {
        facts["old"] = changes(tree, old);
    }
    facts
}

/// The comparison: its rows, and for each frame its rows by self and by total samples.
fn changes(tree: &Tree, old: &super::Old<'_>) -> Value {
    use crate::diff::{Kind, unify};
    // If records of frees were lost, nothing is certain of what was not freed.
    let is_doubtful = old.diff.event.as_ref().is_some_and(|event| event.is_doubtful);
    let rows: Vec<Value> = old
        .diff
        .rows
        .iter()
        .map(|row| {
            let ends = row.change;
            let (is_significant, is_exact) = (row.is_significant() && !is_doubtful, row.is_exact() && !is_doubtful);
            json!([row.old, row.new, ends.low, ends.middle, ends.high, is_significant, is_exact, row.is_within_loss])
        })
        .collect();
    let place = |row: &crate::diff::Row| (row.kind, row.name.clone());
    let places: BTreeMap<_, usize> = old.diff.rows.iter().enumerate().map(|(at, row)| (place(row), at)).collect();
    let find = |kind, name: &str| places.get(&(kind, unify(name))).copied();
    let of_frame: Vec<Value> =
        tree.names().map(|name| json!([find(Kind::SelfSamples, &name), find(Kind::Total, &name)])).collect();
    json!({
        "samples": old.counts().fold(0, u64::saturating_add),
        // What was lost and what was not recorded; of samples this is not compared.
        "beside": old.hits.map_or(Vec::new(), |hits| sums_beside(hits).to_vec()),
        "isDoubtful": is_doubtful,
        "confidence": old.diff.confidence,
        "rows": rows,
        "frames": of_frame,
    })
}

/// The HTML up to the data.
pub fn head(input: &Input<'_>) -> String {
    let mut facts = String::new();
    for (name, value) in rows(input) {
        let _ = writeln!(facts, "<dt>{}</dt><dd>{}</dd>", markup(name), markup(&value));
    }
    let mut spent = String::new();
    for row in time::rows(input.profile, input.account) {
        let percent = row.per_mille as f64 / 10.0;
        let ticks = if row.ticks > 0 { row.ticks.to_string() } else { String::new() };
        let _ = writeln!(
            spent,
            "<tr><td class=\"number\">{percent:.1} %</td><td class=\"number\">{ticks}</td><td>{}</td></tr>",
            row.what
        );
    }
    if spent.is_empty() {
        spent.push_str("<tr><td>not known: the profile has no account</td></tr>\n");
    }
    if let Some(below) = time::below(input.profile, input.account) {
        let _ = writeln!(spent, "<tr><td></td><td></td><td>{}</td></tr>", markup(&below));
    }
    if let Some(event) = &input.event {
        let (heading, spent) = event.spent();
        let about = ("where all of its weight is", &heading[..]);
        return page(input, about, (&facts, &spent), event.verdict);
    }
    let balance = match (input.account.cpus.is_empty(), input.account.is_balanced()) {
        (true, _) => "no account: losses were not counted at the source",
        (_, true) => "balanced: every tick is accounted for",
        (_, false) => "NOT BALANCED, or not closed",
    };
    let heading = time::heading(input.profile, input.account);
    let about = ("where all the time went", &heading[..]);
    page(input, about, (&facts, &spent), (balance, input.account.is_balanced()))
}

/// The page with these facts and this table, what the table is about, and whether the account is balanced.
fn page(
    input: &Input<'_>,
    (about, heading): (&str, &str),
    (facts, spent): (&str, &str),
    (balance, is_good): (&str, bool),
) -> String {
    let doubt = |doubt: &String| format!("<p class=\"bad\">{}</p>\n", markup(&visible(doubt)));
    let old = input.old.iter().flat_map(|old| old.doubts);
    let mut doubts: String = input.profile.doubts.iter().chain(old).map(doubt).collect();
    if input.old.is_some() && input.event.is_none() {
        doubts += &format!("<p class=\"caveat\">{}</p>\n", markup(ONE_RUN));
    }
    HTML.replace("{{style}}", STYLE)
        .replace("{{doubts}}", &doubts)
        .replace("{{about}}", about)
        .replace("{{facts}}", facts)
        .replace("{{heading}}", &markup(heading))
        .replace("{{spent}}", spent)
        .replace("{{balance}}", balance)
        .replace("{{verdict}}", if is_good { "good" } else { "bad" })
        .replace("{{title}}", &markup(input.title))
}

/// What ran and how it was sampled, in the order of the page.
fn rows(input: &Input<'_>) -> Vec<(&'static str, String)> {
    let boots = &input.profile.boots;
    let fact = |fact: Fact| boots.iter().find_map(|boot| boot.fact(fact));
    let (samples, lost) = input.profile.kept_and_lost();
    let part = lost as f64 * 100.0 / samples.saturating_add(lost).max(1) as f64;
    let notes = report::notes(input.profile);
    let mut rows = Vec::new();
    let mut row = |name, value: Option<String>| rows.extend(value.map(|value| (name, visible(&value).into_owned())));
    let (profile, kernel) = input.files;
    row("Profile", Some(name_of(profile)));
    row("Compared with", input.old.as_ref().map(compared));
    row("Symbols", Some(name_of(kernel)));
    row("Build id", fact(Fact::BuildId).filter(|id| *id != "-").map(str::to_owned));
    row("Hits", input.event.as_ref().map(|event| event.account.to_owned()));
    row("Samples", Some(format!("{samples}; {lost} lost ({part:.2} %)")));
    row("Rate", fact(Fact::Hz).map(|hz| format!("{hz} per second and CPU")));
    row("Event", fact(Fact::Event).map(str::to_owned));
    row("Trigger", boots.iter().find_map(Boot::trigger).map(str::to_owned));
    let ghz = input.tsc_hz / 1e9;
    row("Clock", Some(format!("TSC, {ghz:.3} GHz{notes}")));
    row("Boots", (boots.len() > 1).then(|| boots.iter().map(Boot::id).collect::<Vec<_>>().join(", ")));
    row("Account", Some(input.account.to_string()));
    rows
}

/// The older profile, and with weights how exactly they are known.
fn compared(old: &super::Old<'_>) -> String {
    let name = name_of(old.file);
    match &old.diff.event {
        None => name,
        Some(event) => format!("{name} (OLD; this profile is NEW).{}", exactness(event, old.diff.runs)),
    }
}

/// The name of a file without its folders.
pub fn name_of(file: &str) -> String {
    Path::new(file).file_name().map_or_else(|| file.to_owned(), |name| name.to_string_lossy().into_owned())
}
