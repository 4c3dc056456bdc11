//! How long requests to disks took, by disk and size. Stage: output.
//!
//! In: groups of requests. Out: a table for each point, or a JSON document.

use crate::output::columns::Columns;
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
    let mut text = String::new();
    let all: Vec<(&Key, &Group)> = groups.iter().collect();
    for of_point in all.chunk_by(|((one, ..), _), ((other, ..), _)| one == other) {
        let first = [("device", 8), ("size in bytes", 24), ("requests", 9), ("mean ns", 11)].into_iter();
        let mut table = Columns::with_heads(first.chain(QUANTILES.map(|(name, _)| (name, 10))), "");
        for ((_, device, size), group) in of_point {
            let (least, greatest) = weights(*size);
            let mean = format!("{:.1}", group.sum() as f64 / group.ns.len().max(1) as f64);
            let first = [device.to_string(), format!("{least} to {greatest}"), group.ns.len().to_string(), mean];
            table.row(first.into_iter().chain(QUANTILES.map(|(_, share)| group.quantile(share).to_string())), "");
        }
        let ((point, ..), _) = of_point[0];
        let _ = write!(text, "{}\n{}", account(point), table.text());
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
