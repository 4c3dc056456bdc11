//! The comparison as text, Markdown or JSON. Stage: diff.
//!
//! In: a [`Diff`] and the names of the two sides. Out: text that always says which side is which: `from OLD to NEW`.

mod weights;

use super::{Diff, Row};
use serde_json::{Value, json};
use std::fmt::Write as _;
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

/// Formats a table for the terminal.
pub fn text(diff: &Diff, style: &Style) -> String {
    if let Some(event) = &diff.event {
        return weights::text(diff, event, style);
    }
    let mut text = format!(
        "{}\n\n   change          interval     OLD %     NEW %  verdict        kind     function\n",
        headline(diff, style)
    );
    let (old_whole, new_whole) = diff.wholes();
    for row in shown(diff, style) {
        let (low, middle, high) = (row.change.low * 100.0, row.change.middle * 100.0, row.change.high * 100.0);
        let interval = format!("{low:+.2} to {high:+.2}");
        let (old, new) = (share(row.old, old_whole), share(row.new, new_whole));
        let fate = if row.fate().is_empty() { String::new() } else { format!(" ({})", row.fate()) };
        let (verdict, kind) = (verdict(row), row.kind.word());
        let _ = writeln!(
            text,
            "{middle:+8.2} % {interval:>17} {old:9.2} {new:9.2}  {verdict:<14} {kind:<8} {}{fate}",
            row.name
        );
    }
    if shown(diff, style).len() < diff.rows.len() {
        let _ = writeln!(text, "... {} more (--top 0 shows all)", diff.rows.len() - shown(diff, style).len());
    }
    text
}

/// Formats a table for a pull request.
pub fn markdown(diff: &Diff, style: &Style) -> String {
    if let Some(event) = &diff.event {
        return weights::markdown(diff, event, style);
    }
    let mut text =
        format!("{}\n\n| change | interval | OLD | NEW | verdict | kind | function |\n", headline(diff, style));
    text.push_str("|---:|---:|---:|---:|---|---|---|\n");
    let (old_whole, new_whole) = diff.wholes();
    for row in shown(diff, style) {
        let (low, middle, high) = (row.change.low * 100.0, row.change.middle * 100.0, row.change.high * 100.0);
        let (old, new) = (share(row.old, old_whole), share(row.new, new_whole));
        let name = row.name.replace('|', "\\|");
        let (verdict, kind, fate) = (verdict(row), row.kind.word(), row.fate());
        let _ = writeln!(
            text,
            "| {middle:+.2} % | {low:+.2} to {high:+.2} | {old:.2} % | {new:.2} % | {verdict} | {kind} | \
             `{name}` {fate} |"
        );
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
    if let Some(event) = &diff.event {
        return weights::json(diff, event, style);
    }
    let row = |row: &Row| {
        json!({
            "kind": row.kind.word(),
            "name": row.name,
            "old_samples": row.old,
            "new_samples": row.new,
            "change": row.change.middle,
            "change_low": row.change.low,
            "change_high": row.change.high,
            "p_value": rounded(row.p_value, 3),
            "spread_between_runs": row.spread(),
            "significant": row.is_significant(),
            "fate": row.fate(),
        })
    };
    json!({
        "old": style.old_name,
        "new": style.new_name,
        "old_samples": diff.old_samples,
        "new_samples": diff.new_samples,
        "old_runs": diff.runs.0,
        "new_runs": diff.runs.1,
        "confidence": diff.confidence,
        "same_work": diff.is_same_work,
        "method": "exact conditional test, Newcombe intervals of the difference of two shares, Holm over all rows",
        "notes": diff.notes,
        "left_out": diff.rows.len() - shown(diff, style).len(),
        "rows": shown(diff, style).iter().map(row).collect::<Vec<_>>(),
    })
}
