//! The report for programs: JSON with everything in it. Stage: output.
//!
//! In: as for the text. Out: one object. Nothing is cut unless `--top` or `--limit` asks for it; `left_out` then says
//! how many rows are missing.

use super::{Group, Input, Row, Style, chosen, chosen_groups, noted, sentences};
use crate::account::{Account, CpuAccount};
use crate::events::EventFacts;
use crate::output::time;
use kprof_format::point::PointCounter;
use serde_json::{Value, json};

/// The whole report of events. The numbers of the rows are in the event's unit.
fn of_event(event: &EventFacts, input: Input<'_>, by: &str, (rows, left_out): (Vec<Value>, usize)) -> Value {
    let sums = event.sums.as_ref().map(|sums| {
        let count = |counter: PointCounter| sums.count(counter);
        json!({
            "hits": sums.hits(),
            "recorded": count(PointCounter::Recorded),
            "filtered": count(PointCounter::Filtered),
            "lost": count(PointCounter::Lost),
            // Text, because it may be larger than what JSON's readers hold exactly.
            "weight": sums.weight().to_string(),
            "unit": sums.unit,
            "in_file": sums.in_file(),
            "balanced": sums.is_balanced(),
        })
    });
    json!({
        "event": event.name,
        "unit": event.unit,
        "sum": input.folded.samples(),
        "lost": input.lost,
        "only_counted": event.only_counted,
        "notes": noted(input.profile).collect::<Vec<_>>(),
        "by": by,
        "rows": rows,
        "left_out": left_out,
        "account": sums,
        "account_in_words": event.account,
    })
}

/// The whole report.
pub fn document(input: Input<'_>, style: &Style) -> Value {
    let name = |frame| input.folded.frames.name(frame);
    let count = if input.event.is_some() { "sum" } else { "samples" };
    let (rows, left_out): (Vec<Value>, usize) = match style.by {
        Some(_) => {
            let (rows, all) = chosen_groups(input, style);
            let row = |row: &Group| {
                let (busiest, samples) = (name(row.busiest.0), row.busiest.1);
                json!({ "name": name(row.frame), (count): row.samples, "busiest": busiest, "busiest_self": samples })
            };
            (rows.iter().map(row).collect(), all - rows.len())
        }
        None => {
            let (rows, all) = chosen(input, style);
            let row = |row: &Row| {
                let mut fields = json!({ "name": name(row.frame), "self": row.self_samples, "total": row.total });
                if let Some(count) = input.folded.frames.merged(row.frame) {
                    fields["one_of"] = count.into();
                }
                fields
            };
            (rows.iter().map(row).collect(), all - rows.len())
        }
    };
    let by = style.by.unwrap_or("function");
    if let Some(event) = input.event {
        return of_event(event, input, by, (rows, left_out));
    }
    let time = time::rows(input.profile, input.account);
    let time = time.iter().map(|row| json!({ "what": row.what, "ticks": row.ticks, "per_mille": row.per_mille }));
    json!({
        "samples": input.folded.samples(),
        "lost": input.lost,
        "beside": input.beside().map(|(name, count)| json!({ "name": name, "samples": count })).collect::<Vec<_>>(),
        "notes": noted(input.profile).collect::<Vec<_>>(),
        "by": by,
        "rows": rows,
        "left_out": left_out,
        "time": time.collect::<Vec<_>>(),
        "time_of": time::of(input.profile),
        "self_cost": time::below(input.profile, input.account),
        "lockups": sentences(input.profile),
        "account": account(input.account),
    })
}

/// The account of each CPU: its counters as the kernel sent them, and what does not balance.
pub fn account(account: &Account) -> Value {
    let cpu = |cpu: &CpuAccount| {
        json!({
            "boot": cpu.boot + 1,
            "cpu": cpu.cpu,
            "counters": cpu.counters,
            "lost": cpu.lost(),
            "in_file": cpu.in_file,
            "closed": cpu.is_final,
            "faults": cpu.faults,
        })
    };
    let balanced = (!account.cpus.is_empty()).then(|| account.is_balanced());
    json!({ "balanced": balanced, "cpus": account.cpus.iter().map(cpu).collect::<Vec<_>>() })
}
