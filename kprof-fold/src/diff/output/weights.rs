//! The comparison of weights as text, Markdown or JSON. Stage: diff.
//!
//! In: a [`Diff`] of the recorded hits of a point. Out: the tables of `output`, with the weights in their unit, and
//! what was lost or not recorded in rows of its own. Such weight belongs to no function, so it has no change.

use super::{Style, headline, rounded, share, shown, verdict};
use crate::diff::weights::Event;
use crate::diff::{Diff, Row};
use crate::output::folded::{LOST, NOT_RECORDED};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// How exactly the weights of both sides are known, in sentences.
pub fn exactness(event: &Event, runs: (usize, usize)) -> String {
    let mut text = match (event.is_sampled, runs) {
        ((false, false), (1, 1)) if !event.is_doubtful && event.lost == (0, 0) => {
            " Every hit is recorded, so there is no error of sampling: the differences are exact.".to_owned()
        }
        ((false, false), (1, 1)) => " Every hit was to be recorded, so there is no error of sampling.".to_owned(),
        ((false, false), ..) => {
            " Every hit was to be recorded, so the intervals are those of the spread between runs.".to_owned()
        }
        ((is_old, is_new), ..) => {
            let side = match (is_old, is_new) {
                (true, true) => "OLD and NEW",
                (true, false) => "OLD",
                _ => "NEW",
            };
            format!(" Not every hit of {side} was recorded, by choice: the intervals have the error of that.")
        }
    };
    if event.is_doubtful {
        text += " Records of allocations or frees were lost, so no difference is certain: an allocation whose free was \
                 lost counts as not freed.";
    }
    if event.lost != (0, 0) {
        text += " Lost hits may be of any function: the intervals are widened by all of them.";
    }
    if event.only_counted != (0, 0) {
        text += " Hits for which no record was asked are not compared.";
    }
    text
}

/// What is in no row: its name, and its weight in OLD and NEW.
fn outside(event: &Event) -> impl Iterator<Item = (&'static str, (u64, u64))> {
    let both = [(LOST, event.lost), (NOT_RECORDED, event.only_counted)];
    both.into_iter().filter(|(_, weights)| *weights != (0, 0))
}

/// What is in no row, in words; `None` if there is no such weight.
pub fn beside(diff: &Diff) -> Option<String> {
    let event = diff.event.as_ref()?;
    let each = outside(event).map(|(name, (old, new))| format!("{name} {old} {} in OLD, {new} in NEW", event.unit));
    let all: Vec<String> = each.collect();
    (!all.is_empty()).then(|| format!("without {}", all.join("; ")))
}

/// The change of a row with its interval: of shares in percent points, of the same work in the unit.
fn change(diff: &Diff, row: &Row) -> [String; 3] {
    let ends = [row.change.middle, row.change.low, row.change.high];
    if diff.is_same_work {
        // The same as in the comparison, so that the product is the number of the unit.
        let per_run = (diff.old_samples as f64 / diff.runs.0.max(1) as f64).max(1.0);
        return ends.map(|end| format!("{:+.0}", end * per_run));
    }
    ends.map(|end| format!("{:+.2}", end * 100.0))
}

/// Formats a table for the terminal.
pub(super) fn text(diff: &Diff, event: &Event, style: &Style) -> String {
    let unit = if diff.is_same_work { &event.unit } else { "%" };
    let [old, new] = ["OLD", "NEW"].map(|side| format!("{side} {}", event.unit));
    let rows = shown(diff, style).iter().map(|row| {
        let [middle, low, high] = change(diff, row);
        let fate = if row.fate().is_empty() { String::new() } else { format!(" ({})", row.fate()) };
        let (verdict, kind) = (verdict(row), row.kind.word());
        let (old_whole, new_whole) = diff.wholes();
        let [old_part, new_part] =
            [share(row.old, old_whole), share(row.new, new_whole)].map(|share| format!("{share:.2}"));
        let cells = [format!("{middle} {unit}"), format!("{low} to {high}"), old_part, new_part];
        (cells, (row.old, row.new), format!("{verdict:<14} {kind:<8} {}{fate}", row.name))
    });
    let beside = outside(event)
        .map(|(name, weights)| (Default::default(), weights, format!("{:<14} {:<8} {name}", "no function", "-")));
    let rows: Vec<([String; 4], (u64, u64), String)> = rows.chain(beside).collect();
    let width =
        |column: usize, least: usize| rows.iter().map(|(cells, ..)| cells[column].len()).fold(least, usize::max);
    let (first, second) = (width(0, 10), width(1, 17));
    let numbers = rows.iter().map(|(_, (old, new), _)| old.max(new).to_string().len());
    let number = numbers.fold(old.len(), usize::max);
    let mut text = format!(
        "{}\n\n{:>first$} {:>second$} {:>9} {:>9} {old:>number$} {new:>number$}  verdict        kind     function\n",
        headline(diff, style),
        "change",
        "interval",
        "OLD %",
        "NEW %"
    );
    for (at, ([change, interval, old_part, new_part], (old, new), rest)) in rows.iter().enumerate() {
        if at == shown(diff, style).len() {
            text += &more(diff, style);
        }
        let _ = writeln!(
            text,
            "{change:>first$} {interval:>second$} {old_part:>9} {new_part:>9} {old:>number$} {new:>number$}  {rest}"
        );
    }
    if rows.len() == shown(diff, style).len() {
        text += &more(diff, style);
    }
    text
}

/// How many rows are not shown.
fn more(diff: &Diff, style: &Style) -> String {
    match diff.rows.len() - shown(diff, style).len() {
        0 => String::new(),
        rows => format!("... {rows} more (--top 0 shows all)\n"),
    }
}

/// Formats a table for a pull request.
pub(super) fn markdown(diff: &Diff, event: &Event, style: &Style) -> String {
    let unit = if diff.is_same_work { &event.unit } else { "%" };
    let mut text = format!(
        "{}\n\n| change | interval | OLD {1} | NEW {1} | verdict | kind | function |\n",
        headline(diff, style),
        event.unit
    );
    text.push_str("|---:|---:|---:|---:|---|---|---|\n");
    for row in shown(diff, style) {
        let ([middle, low, high], name) = (change(diff, row), row.name.replace('|', "\\|"));
        let (old, new, verdict, kind, fate) = (row.old, row.new, verdict(row), row.kind.word(), row.fate());
        let _ = writeln!(
            text,
            "| {middle} {unit} | {low} to {high} | {old} | {new} | {verdict} | {kind} | `{name}` {fate} |"
        );
    }
    for (name, (old, new)) in outside(event) {
        let _ = writeln!(text, "| | | {old} | {new} | no function | | `{name}` |");
    }
    text
}

/// Makes JSON for other programs.
pub(super) fn json(diff: &Diff, event: &Event, style: &Style) -> Value {
    let row = |row: &Row| {
        json!({
            "kind": row.kind.word(),
            "name": row.name,
            "old_weight": row.old,
            "new_weight": row.new,
            "change": rounded(row.change.middle, 9),
            "change_low": rounded(row.change.low, 9),
            "change_high": rounded(row.change.high, 9),
            "p_value": rounded(row.p_value, 3),
            "exact": row.is_exact(),
            "significant": row.is_significant(),
            "within_loss": row.is_within_loss,
            "fate": row.fate(),
        })
    };
    json!({
        "old": style.old_name,
        "new": style.new_name,
        "event": event.name,
        "unit": event.unit,
        "old_weight": diff.old_samples,
        "new_weight": diff.new_samples,
        "old_lost": event.lost.0,
        "new_lost": event.lost.1,
        "old_not_recorded": event.only_counted.0,
        "new_not_recorded": event.only_counted.1,
        "old_sampled": event.is_sampled.0,
        "new_sampled": event.is_sampled.1,
        "lost_records": event.is_doubtful,
        "old_runs": diff.runs.0,
        "new_runs": diff.runs.1,
        "confidence": diff.confidence,
        "same_work": diff.is_same_work,
        "method": "Newcombe intervals of the difference of two shares with the variance of the weights, Holm over all \
                   rows that are not exact",
        "notes": diff.notes,
        "left_out": diff.rows.len() - shown(diff, style).len(),
        "rows": shown(diff, style).iter().map(row).collect::<Vec<_>>(),
    })
}
