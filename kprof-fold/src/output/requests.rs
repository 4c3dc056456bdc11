//! How long requests to disks took, by disk and size. Stage: output.
//!
//! In: groups of requests. Out: a table for each point, or a JSON document.

use crate::requests::{Group, Key};
use crate::symbols::name::visible;
use kprof_format::point::weights;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The quantiles that are shown, and their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];

/// Formats the tables. `account` says in one line what became of the hits of a point.
pub fn text(groups: &BTreeMap<Key, Group>, account: impl Fn(&str) -> String) -> String {
    let (mut text, mut last) = (String::new(), None);
    for ((point, device, size), group) in groups {
        if last.replace(point) != Some(point) {
            let _ = writeln!(text, "{}", account(point));
            let _ = write!(text, "  device {:>24} {:>9} {:>11}", "size in bytes", "requests", "mean ns");
            QUANTILES.iter().for_each(|(name, _)| text.push_str(&format!(" {name:>10}")));
            text.push('\n');
        }
        let (least, greatest) = weights(*size);
        let mean = group.sum() as f64 / group.ns.len().max(1) as f64;
        let range = format!("{least} to {greatest}");
        let _ = write!(text, "  {device:>6} {range:>24} {:>9} {mean:>11.1}", group.ns.len());
        QUANTILES.iter().for_each(|(_, share)| text.push_str(&format!(" {:>10}", group.quantile(*share))));
        text.push('\n');
    }
    text
}

/// The JSON document: a list of the groups.
pub fn document(groups: &BTreeMap<Key, Group>) -> Value {
    let group = |((point, device, size), group): (&Key, &Group)| {
        let (least, greatest) = weights(*size);
        let quantile = |(name, share): (&str, f64)| (name.to_owned(), json!(group.quantile(share)));
        json!({
            "point": visible(point),
            "device": device,
            "size": { "at_least": least, "at_most": greatest },
            "requests": group.ns.len(),
            "bytes": group.bytes.to_string(),
            "ns": group.sum().to_string(),
            "quantiles_ns": QUANTILES.into_iter().map(quantile).collect::<serde_json::Map<_, _>>(),
        })
    };
    json!({ "requests": groups.iter().map(group).collect::<Vec<_>>() })
}
