//! The points of a profile: how often each was hit, and how its weights are distributed. Stage: output.
//!
//! In: the points of all boots. Out: text, or a JSON document. A quantile is given as the least and the greatest value
//! that it can have, because the kernel keeps a histogram by powers of two.

use crate::output::columns::{Columns, bar};
use crate::points::{Counts, Point};
use crate::symbols::name::visible;
use kprof_format::point::{PointCounter, weights};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The quantiles that are shown, and their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];

/// Formats the text.
pub fn text(points: &BTreeMap<String, Point>) -> String {
    let mut text = String::new();
    for (name, point) in points {
        one(&visible(name), point, &mut text);
    }
    text
}

fn one(name: &str, point: &Point, text: &mut String) {
    let unit = visible(&point.unit);
    let mean = point.mean().map_or_else(String::new, |mean| format!(", mean {mean:.1} {unit}"));
    let (hits, lost) = (point.hits(), point.count(PointCounter::Lost));
    let _ = writeln!(text, "{name}: {hits} hits, {} {unit} in all{mean}", point.weight());
    for (label, share) in QUANTILES {
        if let Some((least, greatest)) = point.quantile(share) {
            let _ = writeln!(text, "  {label} {:>28} {unit}", range(least, greatest));
        }
    }
    let buckets = point.buckets();
    let most = buckets.iter().copied().max().unwrap_or(0);
    let used = |bucket: &usize| buckets[*bucket] > 0;
    let first = (0..buckets.len()).find(used);
    let last = (0..buckets.len()).rfind(used);
    if let Some((first, last)) = first.zip(last) {
        let mut table =
            Columns::with_heads([(format!("weight in {unit}"), 34), ("hits".into(), 12), ("%".into(), 7)], "");
        for (bucket, count) in buckets.iter().enumerate().take(last + 1).skip(first) {
            let (least, greatest) = weights(bucket);
            let share = format!("{:.2}", 100.0 * *count as f64 / point.weighed() as f64);
            table.row([range(least, greatest), count.to_string(), share], bar(*count, most));
        }
        text.push_str(&table.text());
    }
    for (cpu, counts) in point.cpus.iter().filter(|(_, counts)| counts.hits() > 0) {
        let hits = counts.hits();
        let _ = match cpu {
            Some(cpu) => writeln!(text, "  CPU {cpu}: {hits} hits"),
            None => writeln!(text, "  CPUs without memory for this point: {hits} hits, lost"),
        };
    }
    let balance = if point.is_balanced() { "balanced" } else { "not balanced" };
    let (recorded, filtered) = (point.count(PointCounter::Recorded), point.count(PointCounter::Filtered));
    let _ = write!(text, "  {balance}: {hits} hits = {recorded} recorded + {filtered} only counted + {lost} lost");
    let _ = writeln!(text, "{}", point.doubt());
}

fn range(least: u64, greatest: u64) -> String {
    if least == greatest { least.to_string() } else { format!("{least} to {greatest}") }
}

/// The JSON document: every point with its histogram.
pub fn document(points: &BTreeMap<String, Point>) -> Value {
    let point = |(name, point): (&String, &Point)| {
        let quantile = |(label, share): (&str, f64)| {
            let (least, greatest) = point.quantile(share)?;
            Some((label.to_owned(), json!({ "at_least": least, "at_most": greatest })))
        };
        let bucket = |(bucket, hits): (usize, &u64)| {
            let (least, greatest) = weights(bucket);
            (*hits > 0).then(|| json!({ "at_least": least, "at_most": greatest, "hits": hits }))
        };
        let cpu = |(cpu, counts): (&Option<u64>, &Counts)| match counts.hits() {
            0 => None,
            hits => Some(json!({ "cpu": cpu, "hits": hits })),
        };
        json!({
            "name": name,
            "unit": point.unit,
            "hits": point.hits(),
            "recorded": point.count(PointCounter::Recorded),
            "filtered": point.count(PointCounter::Filtered),
            "lost": point.count(PointCounter::Lost),
            "weight": point.weight().to_string(),
            "mean": point.mean(),
            "quantiles": QUANTILES.into_iter().filter_map(quantile).collect::<serde_json::Map<_, _>>(),
            "histogram": point.buckets().iter().enumerate().filter_map(bucket).collect::<Vec<_>>(),
            "cpus": point.cpus.iter().filter_map(cpu).collect::<Vec<_>>(),
            "balanced": point.is_balanced(),
        })
    };
    json!({ "points": points.iter().map(point).collect::<Vec<_>>() })
}
