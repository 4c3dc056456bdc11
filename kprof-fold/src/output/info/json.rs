//! The description of a profile for programs: JSON with everything that the text has, and all tasks. Stage: output.
//!
//! In: as for the text. Out: one JSON object. Only the histogram of intervals is not in it.

use crate::account::Account;
use crate::aliasing::Verdict;
use crate::lockups::Lockup;
use crate::output::report::json::account as account_json;
use crate::output::time;
use crate::overview::Overview;
use crate::profile::{Boot, Mark, Profile};
use crate::symbols::users::plain;
use kprof_format::fact::Fact;
use serde_json::{Value, json};

/// The whole description.
pub fn document(
    profile: &Profile,
    overview: &Overview,
    (account, aliasing): (&Account, &Verdict),
    form: &str,
    tsc_hz: Option<f64>,
) -> Value {
    let tasks = overview.tasks();
    let tasks = tasks.iter().map(|(name, samples)| json!({ "name": name, "samples": samples }));
    json!({
        "form": form,
        "lines": profile.lines,
        "bytes": profile.bytes,
        "samples": profile.samples(),
        "lost": profile.lost(),
        "boots": profile.boots.iter().map(|boot| boot_json(boot, tsc_hz)).collect::<Vec<_>>(),
        "tasks": tasks.collect::<Vec<_>>(),
        "aliasing": aliasing.to_string(),
        "self_cost": time::below(profile, account),
        "account": account_json(account),
    })
}

fn boot_json(boot: &Boot, tsc_hz: Option<f64>) -> Value {
    let tsc_hz = boot.tsc_hz().map(|hz| hz as f64).or(tsc_hz);
    let mark = |mark: &Mark| json!({ "name": String::from_utf8_lossy(&mark.name), "tsc": mark.tsc });
    let lockup = |lockup: &Lockup| {
        let Lockup { cpu, kind, reason, from, tsc, .. } = lockup;
        json!({ "cpu": cpu, "kind": kind, "reason": reason, "from_tsc": from, "tsc": tsc })
    };
    let marks = |marks: &[Mark]| marks.iter().map(mark).collect::<Vec<_>>();
    let header: serde_json::Map<String, Value> =
        boot.header.iter().map(|(key, value)| (key.clone(), Value::from(value.clone()))).collect();
    let anchor = |(name, address): &(String, u64)| json!({ "name": name, "address": format!("{:x}", plain(*address)) });
    let cpus = boot.cpus.iter().map(|(number, cpu)| {
        let seen = &cpu.seen;
        let seconds = seen.tsc_min().zip(seen.tsc_max()).zip(tsc_hz).map(|((from, to), hz)| (to - from) as f64 / hz);
        json!({
            "cpu": number,
            "samples": seen.samples(),
            "kernel": seen.kernel(),
            "idle": seen.idle(),
            "seconds": seconds,
            "ticks_per_second": tsc_hz.and_then(|hz| cpu.ticks.rate(hz, &boot.settings)),
            "asked_per_second": boot.number(Fact::Hz),
            "repeated_batches": cpu.repeated_batches,
        })
    });
    let events = boot.events.iter().map(|(task, counts)| (String::from_utf8_lossy(task).into_owned(), json!(counts)));
    json!({
        "header": header,
        "anchors": boot.anchors.iter().map(anchor).collect::<Vec<_>>(),
        "marks": marks(&boot.marks),
        "settings": marks(&boot.settings),
        "zero_tsc": boot.span().map(|(first, _)| first),
        "lockups": boot.lockups.iter().map(lockup).collect::<Vec<_>>(),
        "events": events.collect::<serde_json::Map<_, _>>(),
        "cpus": cpus.collect::<Vec<_>>(),
    })
}
