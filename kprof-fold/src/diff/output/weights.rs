//! What a comparison of weights says besides its rows. Stage: diff.
//!
//! In: the recorded hits of a point on both sides. Out: how exactly the weights are known, and what was lost or not
//! recorded. Such weight belongs to no function, so it has no change.

use crate::diff::Diff;
use crate::diff::weights::Event;
use crate::output::folded::{LOST, NOT_RECORDED};
use serde_json::{Value, json};

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
pub(super) fn outside(event: &Event) -> impl Iterator<Item = (&'static str, (u64, u64))> {
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

/// How weights are compared.
pub(super) const METHOD: &str = "Newcombe intervals of the difference of two shares with the variance of the weights, \
                                 Holm over all rows that are not exact";

/// What the document has of a comparison of weights only.
pub(super) fn facts(event: &Event) -> [(&'static str, Value); 9] {
    [
        ("event", json!(event.name)),
        ("unit", json!(event.unit)),
        ("old_lost", json!(event.lost.0)),
        ("new_lost", json!(event.lost.1)),
        ("old_not_recorded", json!(event.only_counted.0)),
        ("new_not_recorded", json!(event.only_counted.1)),
        ("old_sampled", json!(event.is_sampled.0)),
        ("new_sampled", json!(event.is_sampled.1)),
        ("lost_records", json!(event.is_doubtful)),
    ]
}
