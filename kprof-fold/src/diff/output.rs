//! The comparison as text, Markdown or JSON. Stage: diff.
//!
//! In: a [`Diff`] and the names of the two sides. Out: text that always says which side is which: `from OLD to NEW`.

mod weights;

use super::{Diff, Row};
use crate::output::columns::Columns;
use serde_json::{Value, json};
use std::fmt::Write as _;
use weights::outside;
pub use weights::{beside, exactness};

/// How much is shown, and the names of the two sides.
#[derive(Clone, Debug)]
pub struct Style {
    /// Files of OLD.
    pub old_name: String,
    /// Files of NEW.
    pub new_name: String,
    /// Maximum number of rows; 0 shows all.
    pub top: usize,
}

fn share(part: u64, whole: f64) -> f64 {
    part as f64 * 100.0 / whole.max(1.0)
}

fn shown<'a>(diff: &'a Diff, style: &Style) -> &'a [Row] {
    let top = if style.top == 0 { diff.rows.len() } else { style.top.min(diff.rows.len()) };
    &diff.rows[..top]
}

fn verdict(row: &Row) -> &'static str {
    match (row.is_significant(), row.change.middle > 0.0) {
        (false, _) if row.is_within_loss => "within loss",
        (false, _) if row.is_exact() => "same",
        (false, _) => "within chance",
        (true, true) => "GREW",
        (true, false) => "SHRANK",
    }
}

/// What was compared, and how.
fn headline(diff: &Diff, style: &Style) -> String {
    let significant = diff.rows.iter().filter(|row| row.is_significant()).count();
    let (old, new) = (&style.old_name, &style.new_name);
    let runs = |count: usize| if count == 1 { String::new() } else { format!("{count} runs, ") };
    let (old_runs, new_runs) = (runs(diff.runs.0), runs(diff.runs.1));
    let unit = diff.unit();
    let work = match (diff.is_same_work, &diff.event) {
        (false, None) => "; shares are of the samples of each side".to_owned(),
        (false, Some(_)) => String::new(),
        (true, None) => "; numbers of samples of the same work, as parts of OLD".to_owned(),
        (true, Some(_)) => format!("; of the same work, so changes are in {unit}"),
    };
    let (name, exactness) = match &diff.event {
        Some(event) => (format!("{}: ", event.name), weights::exactness(event, diff.runs)),
        None => Default::default(),
    };
    let chance = if diff.rows.iter().all(Row::is_exact) && !diff.rows.is_empty() {
        String::new()
    } else {
        format!(
            " by more than chance at {} % confidence for the whole table ({}Newcombe intervals, Holm{})",
            diff.confidence * 100.0,
            if diff.event.is_none() { "exact test, " } else { "" },
            if diff.runs == (1, 1) { "" } else { ", spread between runs" },
        )
    };
    let notes: String = diff.notes.iter().map(|note| format!(" Note: {note}.")).collect();
    format!(
        "{name}From {old} (OLD, {old_runs}{} {unit}) to {new} (NEW, {new_runs}{} {unit}): {significant} of {} \
         comparisons changed{chance}{work}.{exactness}{notes}",
        diff.old_samples,
        diff.new_samples,
        diff.rows.len(),
    )
}

/// The unit of the changes: percent points of the shares, or what is counted if both sides did the same work.
fn unit_of_changes(diff: &Diff) -> &str {
    diff.event.as_ref().filter(|_| diff.is_same_work).map_or("%", |event| &event.unit)
}

/// The change of a row and its interval, in this unit.
fn change(diff: &Diff, row: &Row) -> [String; 2] {
    let ends = [row.change.middle, row.change.low, row.change.high];
    let [middle, low, high] = if unit_of_changes(diff) == "%" {
        ends.map(|end| format!("{:+.2}", end * 100.0))
    } else {
        // The same as in the comparison, so that the product is the number of the unit.
        let per_run = (diff.old_samples as f64 / diff.runs.0.max(1) as f64).max(1.0);
        ends.map(|end| format!("{:+.0}", end * per_run))
    };
    [format!("{middle} {}", unit_of_changes(diff)), format!("{low} to {high}")]
}

/// The shares of a row in OLD and in NEW, in percent.
fn shares(diff: &Diff, row: &Row) -> [String; 2] {
    let (old, new) = diff.wholes();
    [share(row.old, old), share(row.new, new)].map(|share| format!("{share:.2}"))
}

/// Formats a table for the terminal. Weights have two columns of numbers more.
pub fn text(diff: &Diff, style: &Style) -> String {
    let sides = ["OLD", "NEW"];
    let heads = diff.event.as_ref().map(|event| sides.map(|side| format!("{side} {}", event.unit)));
    let numbers = |(old, new): (u64, u64)| heads.iter().flat_map(move |_| [old.to_string(), new.to_string()]);
    let all = diff.rows.iter().flat_map(|row| [row.old, row.new]).max().unwrap_or(0);
    let width = heads.iter().flatten().map(String::len).fold(all.to_string().len(), usize::max);
    let first = [("change", 10), ("interval", 17), ("OLD %", 9), ("NEW %", 9)];
    let first = first.map(|(head, width)| (head.to_owned(), width)).into_iter();
    let of_numbers = heads.iter().flatten().map(|head| (head.clone(), width));
    let mut table = Columns::with_heads(first.chain(of_numbers), "verdict        kind     function");
    for row in shown(diff, style) {
        let cells = change(diff, row).into_iter().chain(shares(diff, row)).chain(numbers((row.old, row.new)));
        let fate = if row.fate().is_empty() { String::new() } else { format!(" ({})", row.fate()) };
        table.row(cells, format!("{:<14} {:<8} {}{fate}", verdict(row), row.kind.word(), row.name));
    }
    if let rows @ 1.. = diff.rows.len() - shown(diff, style).len() {
        table.line(format!("... {rows} more (--top 0 shows all)"));
    }
    for (name, weights) in diff.event.iter().flat_map(outside) {
        let cells = [const { String::new() }; 4].into_iter().chain(numbers(weights));
        table.row(cells, format!("{:<14} {:<8} {name}", "no function", "-"));
    }
    format!("{}\n\n{}", headline(diff, style), table.text())
}

/// Formats a table for a pull request.
pub fn markdown(diff: &Diff, style: &Style) -> String {
    let unit = diff.event.as_ref().map_or_else(String::new, |event| format!(" {}", event.unit));
    let mut text = format!(
        "{}\n\n| change | interval | OLD{unit} | NEW{unit} | verdict | kind | function |\n\
         |---:|---:|---:|---:|---|---|---|\n",
        headline(diff, style)
    );
    for row in shown(diff, style) {
        let ([change, interval], name) = (change(diff, row), row.name.replace('|', "\\|"));
        let (verdict, kind, fate) = (verdict(row), row.kind.word(), row.fate());
        let [old, new] = match &diff.event {
            Some(_) => [row.old, row.new].map(|weight| weight.to_string()),
            None => shares(diff, row).map(|share| share + " %"),
        };
        let _ = writeln!(text, "| {change} | {interval} | {old} | {new} | {verdict} | {kind} | `{name}` {fate} |");
    }
    for (name, (old, new)) in diff.event.iter().flat_map(outside) {
        let _ = writeln!(text, "| | | {old} | {new} | no function | | `{name}` |");
    }
    text
}

/// Three digits of a p value, nine of other numbers: the last ones differ from one implementation of the exponential
/// function to another.
fn rounded(number: f64, digits: usize) -> f64 {
    format!("{number:.*e}", digits - 1).parse().unwrap_or(number)
}

/// Makes JSON for other programs.
pub fn json(diff: &Diff, style: &Style) -> Value {
    let what = if diff.event.is_some() { "weight" } else { "samples" };
    let key = |side: &str| format!("{side}_{what}");
    let digits = |number: f64| if diff.event.is_some() { rounded(number, 9) } else { number };
    let row = |row: &Row| {
        let mut fields = json!({
            "kind": row.kind.word(),
            "name": row.name,
            "change": digits(row.change.middle),
            "change_low": digits(row.change.low),
            "change_high": digits(row.change.high),
            "p_value": rounded(row.p_value, 3),
            "significant": row.is_significant(),
            "fate": row.fate(),
        });
        (fields[key("old")], fields[key("new")]) = (json!(row.old), json!(row.new));
        match diff.event {
            Some(_) => {
                (fields["exact"], fields["within_loss"]) = (json!(row.is_exact()), json!(row.is_within_loss));
            }
            None => fields["spread_between_runs"] = json!(row.spread()),
        }
        fields
    };
    let mut document = json!({
        "old": style.old_name,
        "new": style.new_name,
        "old_runs": diff.runs.0,
        "new_runs": diff.runs.1,
        "confidence": diff.confidence,
        "same_work": diff.is_same_work,
        "method": match diff.event {
            Some(_) => weights::METHOD,
            None => "exact conditional test, Newcombe intervals of the difference of two shares, Holm over all rows",
        },
        "notes": diff.notes,
        "left_out": diff.rows.len() - shown(diff, style).len(),
        "rows": shown(diff, style).iter().map(row).collect::<Vec<_>>(),
    });
    (document[key("old")], document[key("new")]) = (json!(diff.old_samples), json!(diff.new_samples));
    for (name, value) in diff.event.iter().flat_map(weights::facts) {
        document[name] = value;
    }
    document
}
