//! The hits of a point on the page, instead of samples. Stage: output, part of the page.
//!
//! In: the recorded hits with the weights for which they stand, and what is known only as a sum. Out: the same for the
//! script, and the facts of the head: which point it is, and where all its weight went. A sum without a time is never
//! drawn at a time. What a heap has not freed is at the times at which it was allocated.

use crate::output::export::hits::{Hit, Hits};
use crate::output::folded::NOT_RECORDED;
use crate::select::Select;
use crate::timeline::{Event, Timeline};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The hits of a point.
pub struct OfPoint<'a> {
    /// The hits, by boot and time; those of the timeline in the same order.
    pub hits: &'a Hits,
    /// The unit of what they stand for: that of the weights, or `hits`.
    pub unit: &'a str,
    /// What the account of the point says, in one line.
    pub account: &'a str,
    /// What is known of the account, for people, and whether it is as it must be.
    pub verdict: (&'static str, bool),
    /// Whether the hits are allocations that were not freed.
    pub is_live: bool,
}

/// What is known of the account of a point.
pub fn verdict(is_balanced: bool) -> (&'static str, bool) {
    let balance = match is_balanced {
        true => "balanced: every hit is accounted for",
        false => "NOT BALANCED: a count of hits is missing",
    };
    (balance, is_balanced)
}

/// What is known of the allocations that were not freed.
pub fn verdict_of_live(is_doubtful: bool, has_frees: bool) -> (&'static str, bool) {
    match (is_doubtful, has_frees) {
        (true, _) => {
            ("NOT CERTAIN: records were lost, and an allocation whose free was lost counts as not freed", false)
        }
        (_, false) => ("NOT CERTAIN: no free is recorded, so every allocation counts as not freed", false),
        _ => ("complete: no record of an allocation or of a free was lost", true),
    }
}

/// The hits as a timeline with these conditions.
pub fn timeline(hits: &Hits, select: &Select) -> Timeline {
    let mut timeline = Timeline::new(select.clone());
    timeline.tasks.clone_from(&hits.tasks);
    let event = |hit: &Hit| {
        let (tsc, boot, task, stack) = (hit.tsc, hit.boot, hit.task, hit.stack);
        Event { tsc, boot, cpu: hit.cpu.unwrap_or(0), task, stack }
    };
    timeline.events = hits.hits.iter().map(event).collect();
    timeline
}

/// A weight and its unit, as the script shows them (`unit.js`): nanoseconds as milliseconds, with every digit.
fn shown(weight: u64, unit: &str) -> (String, &str) {
    match unit {
        "ns" => (format!("{}.{:06}", weight / 1_000_000, weight % 1_000_000), "ms"),
        _ => (weight.to_string(), unit),
    }
}

impl OfPoint<'_> {
    /// The weight for which each hit stands.
    pub fn weights(&self) -> impl Iterator<Item = u64> {
        self.hits.hits.iter().map(|hit| hit.stands_for)
    }

    /// The CPUs of what has no time.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.hits.beside.iter().filter_map(|(cpu, ..)| u32::try_from((*cpu)?).ok())
    }

    /// The facts for the script. What has no time: its CPU, whether it was lost (0) or not recorded (1), its weight.
    pub fn facts(&self) -> Value {
        let beside = self.hits.beside.iter().filter(|(.., weight)| *weight > 0);
        let row =
            |(cpu, name, weight): &(Option<u64>, &str, u64)| json!([cpu, u8::from(*name == NOT_RECORDED), weight]);
        let beside = beside.map(row).collect::<Vec<_>>();
        // Whether each hit stands for itself, so that its weight is that of one hit.
        let is_exact = self.unit == self.hits.unit && self.hits.hits.iter().all(|hit| hit.weight == hit.stands_for);
        let (name, unit, is_live) = (&self.hits.name, self.unit, self.is_live);
        json!({ "name": name, "unit": unit, "beside": beside, "isLive": is_live, "isExact": is_exact })
    }

    /// Where all the weight went: a heading, and rows of HTML.
    pub fn spent(&self) -> (String, String) {
        let recorded = self.weights().fold(0, u64::saturating_add);
        let [lost, only_counted] = sums_beside(self.hits);
        let all = (recorded as f64 + lost as f64 + only_counted as f64).max(1.0);
        let of_point =
            [(recorded, "recorded hits, with what they stand for"), (lost, "lost"), (only_counted, "not recorded")];
        let of_live = [(recorded, "recorded allocations that were not freed, with what they stand for")];
        let mut rows = String::new();
        for (weight, what) in if self.is_live { &of_live[..] } else { &of_point[..] } {
            let percent = *weight as f64 * 100.0 / all;
            let _ = writeln!(
                rows,
                "<tr><td class=\"number\">{percent:.1} %</td><td class=\"number\">{}</td><td>{what}</td></tr>",
                shown(*weight, self.unit).0
            );
        }
        let unit = shown(0, self.unit).1;
        (format!("Where all of {} is, in {unit} (chosen CPUs, whole recording)", self.hits.name), rows)
    }
}

/// What was lost of a point, and what was not recorded.
pub fn sums_beside(hits: &Hits) -> [u64; 2] {
    let sum = |is_recorded_never| {
        let beside = hits.beside.iter().filter(|(_, name, _)| (*name == NOT_RECORDED) == is_recorded_never);
        beside.map(|(.., weight)| *weight).fold(0, u64::saturating_add)
    };
    [sum(false), sum(true)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_shown_as_milliseconds_with_every_digit() {
        assert_eq!(shown(1_000_000_002, "ns"), ("1000.000002".to_owned(), "ms"));
        assert_eq!(shown(7, "bytes"), ("7".to_owned(), "bytes"));
    }

    #[test]
    fn the_head_has_all_weight_and_the_script_where_it_is() {
        let beside = vec![(Some(2), "[lost]", 5), (None, "[lost]", 1), (Some(2), NOT_RECORDED, 94)];
        let (name, unit, none) = ("a".to_owned(), "ns".to_owned(), Vec::new);
        let hits = Hits { name, unit, values: none(), tasks: none(), hits: Vec::new(), beside };
        let of = OfPoint { hits: &hits, unit: "ns", account: "", verdict: verdict(false), is_live: false };
        assert_eq!(of.facts()["beside"], json!([[2, 0, 5], [null, 0, 1], [2, 1, 94]]));
        let (heading, rows) = of.spent();
        assert!(heading.starts_with("Where all of a is, in ms"), "{heading}");
        assert!(rows.contains("6.0 %</td><td class=\"number\">0.000006<") && rows.contains("94.0 %"), "{rows}");
        assert!(of.verdict.0.starts_with("NOT BALANCED") && of.cpus().eq([2, 2]));
        assert_eq!(sums_beside(&hits), [6, 94]);
    }

    #[test]
    fn what_is_not_certain_of_the_heap_is_said() {
        let is = |is_doubtful, has_frees| verdict_of_live(is_doubtful, has_frees);
        assert!(is(false, true).1 && !is(true, true).1 && !is(false, false).1);
        assert!(is(true, true).0.contains("records were lost") && is(false, false).0.contains("no free is recorded"));
    }
}
