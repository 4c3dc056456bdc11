//! The report as JSON: units are in the keys. In: what probes have found. Out: one value.

use super::output::{QUANTILES, Report, sorted};
use crate::found::{Hit, Probed};
use crate::histogram;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

impl Report<'_> {
    /// The report. Times are those of the guest's clock. Quantiles are the first time of their range in the histogram:
    /// the exact one is at most 1/128 longer.
    pub fn json(&self, expressions: &[String]) -> Value {
        let called = self.called();
        let functions: Vec<Value> = called.iter().filter_map(|probed| self.function(probed, expressions)).collect();
        json!({
            "clock": "guest",
            "latency_quantile_error_percent": 0.8,
            "functions": functions,
            "functions_not_called": self.watched.len() - called.len(),
        })
    }

    fn function(&self, probed: &Probed, expressions: &[String]) -> Option<Value> {
        let watched = self.watched.get(probed.number as usize)?;
        let (expression, found) = (&self.expressions[watched.expression], &self.counted.probes);
        let mut all = Map::new();
        let mut add = |key: &str, value: Value| drop(all.insert(key.to_owned(), value));
        add("function", json!(self.functions.name(watched.function)));
        add("expression", json!(expressions[watched.expression]));
        add("calls", json!(probed.calls));
        if let (Some(key), Some(keys)) = (expression.key, found.keys.get(&probed.number)) {
            let keys = sorted(keys).into_iter();
            let calls: Vec<Value> =
                keys.map(|(value, calls)| json!({ key.name(): self.shown(key, value), "calls": calls })).collect();
            add("by", json!(calls));
        }
        if expression.has_time {
            add("returned", json!(probed.returned));
            if let Some(times) = found.times.get(&probed.number).filter(|_| probed.returned > 0) {
                add("latency_min_ns", json!(probed.min));
                for (name, part) in QUANTILES {
                    add(&format!("latency_{name}_ns"), json!(probed.quantile(times, part)));
                }
                add("latency_max_ns", json!(probed.max));
                add("latency_sum_ns", json!(probed.sum));
                let ranges = times.iter().map(|(range, calls)| {
                    let (from, below) = (histogram::first(*range), histogram::first(range + 1));
                    json!({ "from_ns": from, "below_ns": below, "calls": calls })
                });
                add("latency_histogram", ranges.collect());
            }
        }
        if let Some(hit) = found.hits.get(&probed.number) {
            add("nth", self.one(hit));
        }
        Some(Value::Object(all))
    }

    fn one(&self, hit: &Hit) -> Value {
        let arguments: Map<String, Value> = super::expression::ARGUMENTS
            .iter()
            .zip(hit.arguments)
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        json!({ "time_ns": hit.time, "arguments": arguments, "stack": self.stack(hit) })
    }

    /// Folded stacks of the watched functions: names from the outermost, and calls.
    pub fn folded(&self) -> Vec<(String, u64)> {
        let watched: BTreeSet<u32> = self.watched.iter().map(|watched| watched.function).collect();
        let names = self.counted.names(self.functions).into_iter();
        let contexts = self.counted.contexts.iter().zip(names).skip(1);
        let called = contexts.filter(|(context, _)| context.calls > 0 && watched.contains(&context.function));
        let mut folded: Vec<(String, u64)> = called.map(|(context, name)| (name, context.calls)).collect();
        folded.sort();
        folded
    }
}
