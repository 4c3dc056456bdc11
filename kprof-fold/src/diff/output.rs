//! The comparison as text, Markdown or JSON. Stage: diff.
//!
//! In: a [`Diff`] and the names of the two sides. Out: text that always says which side is which: `from OLD to NEW`.

use super::{Diff, Row};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// How much is shown, and the names of the two sides.
#[derive(Clone, Debug)]
pub struct Style {
    /// File of OLD.
    pub old_name: String,
    /// File of NEW.
    pub new_name: String,
    /// Maximum number of rows; 0 shows all.
    pub top: usize,
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

fn shown<'a>(diff: &'a Diff, style: &Style) -> &'a [Row] {
    let top = if style.top == 0 { diff.rows.len() } else { style.top.min(diff.rows.len()) };
    &diff.rows[..top]
}

fn verdict(row: &Row) -> &'static str {
    match (row.is_significant(), row.change.middle > 0.0) {
        (false, _) => "within chance",
        (true, true) => "GREW",
        (true, false) => "SHRANK",
    }
}

/// One sentence about what was compared, and how.
fn headline(diff: &Diff, style: &Style) -> String {
    let significant = diff.rows.iter().filter(|row| row.is_significant()).count();
    format!(
        "From {} (OLD, {} samples) to {} (NEW, {} samples): {significant} of {} comparisons changed by more than chance at {} % \
         confidence for the whole table (Newcombe intervals, Bonferroni){}.",
        style.old_name,
        diff.old_samples,
        style.new_name,
        diff.new_samples,
        diff.rows.len(),
        diff.confidence * 100.0,
        if diff.is_same_work { "; numbers of samples of the same work, as parts of OLD" } else { "" }
    )
}

/// Formats a table for the terminal.
pub fn text(diff: &Diff, style: &Style) -> String {
    let mut text = format!(
        "{}\n\n   change          interval     OLD %     NEW %  verdict        kind     function\n",
        headline(diff, style)
    );
    for row in shown(diff, style) {
        let (low, middle, high) = (row.change.low * 100.0, row.change.middle * 100.0, row.change.high * 100.0);
        let interval = format!("{low:+.2} to {high:+.2}");
        let (old, new) = (share(row.old, diff.old_samples), share(row.new, diff.new_whole()));
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
    let mut text =
        format!("{}\n\n| change | interval | OLD | NEW | verdict | kind | function |\n", headline(diff, style));
    text.push_str("|---:|---:|---:|---:|---|---|---|\n");
    for row in shown(diff, style) {
        let (low, middle, high) = (row.change.low * 100.0, row.change.middle * 100.0, row.change.high * 100.0);
        let (old, new) = (share(row.old, diff.old_samples), share(row.new, diff.new_whole()));
        let name = row.name.replace('|', "\\|");
        let (verdict, kind, fate) = (verdict(row), row.kind.word(), row.fate());
        let _ = writeln!(
            text,
            "| {middle:+.2} % | {low:+.2} to {high:+.2} | {old:.2} % | {new:.2} % | {verdict} | {kind} | `{name}` {fate} |"
        );
    }
    text
}

/// Makes JSON for other programs.
pub fn json(diff: &Diff, style: &Style) -> Value {
    let row = |row: &Row| {
        json!({
            "kind": row.kind.word(),
            "name": row.name,
            "old_samples": row.old,
            "new_samples": row.new,
            "change": row.change.middle,
            "change_low": row.change.low,
            "change_high": row.change.high,
            "significant": row.is_significant(),
            "fate": row.fate(),
        })
    };
    json!({
        "old": style.old_name,
        "new": style.new_name,
        "old_samples": diff.old_samples,
        "new_samples": diff.new_samples,
        "confidence": diff.confidence,
        "same_work": diff.is_same_work,
        "method": "Newcombe intervals of the difference of two shares, Bonferroni over all rows",
        "rows": shown(diff, style).iter().map(row).collect::<Vec<_>>(),
    })
}
