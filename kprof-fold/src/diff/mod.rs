//! Diff: finds what changed from one profile to another, and whether the change is more than chance. Stage: after fold.
//!
//! In: two folded profiles, OLD and NEW. Out: a row per function (and per subtree) with its share before and after, the
//! change and its confidence interval. Each side's shares are parts of its own samples, so the two profiles may differ
//! in length and number of CPUs. If both sides did the same work at the same rate, numbers of samples are compared
//! instead, as parts of OLD. Then a function that got slower does not make the others look faster. A function counts
//! once per sample even if it is recursive.

pub mod claim;
pub mod output;
pub mod significance;

use crate::fold::Folded;
use crate::output::table;
use significance::{Interval, difference, z_for};
use std::collections::BTreeMap;

/// What a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Samples in which the function is innermost.
    Own,
    /// Samples in whose stack the function is.
    Total,
    /// Samples below one path from the root.
    Subtree,
}

impl Kind {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Own => "self",
            Self::Total => "total",
            Self::Subtree => "subtree",
        }
    }
}

/// One comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What the row counts.
    pub kind: Kind,
    /// The function, or the path with `;` between its frames.
    pub name: String,
    /// Samples in OLD.
    pub old: u64,
    /// Samples in NEW.
    pub new: u64,
    /// Change in share, NEW minus OLD, with its interval.
    pub change: Interval,
}

impl Row {
    /// Whether the interval does not contain 0.
    pub fn is_significant(&self) -> bool {
        self.change.low > 0.0 || self.change.high < 0.0
    }

    /// `new`, `vanished`, or empty.
    pub fn fate(&self) -> &'static str {
        match (self.old, self.new) {
            (0, _) => "new",
            (_, 0) => "vanished",
            _ => "",
        }
    }
}

/// The whole comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// Samples in OLD.
    pub old_samples: u64,
    /// Samples in NEW.
    pub new_samples: u64,
    /// Whether numbers of samples were compared instead of shares.
    pub is_same_work: bool,
    /// The requested confidence, 0 to 1, that no row of the table is called significant by chance.
    pub confidence: f64,
    /// Rows by size of change; significant rows come first.
    pub rows: Vec<Row>,
}

impl Diff {
    /// The number of samples that the shares of NEW are parts of: NEW's own samples, or for the same work those of OLD.
    pub fn new_whole(&self) -> u64 {
        if self.is_same_work { self.old_samples } else { self.new_samples }
    }
}

/// Number of frames of the longest path that is compared. Of a longer path only the beginning is compared.
pub const MAX_PATH: usize = 256;

/// Whether a stack is longer than the longest path.
pub fn has_longer_paths(folded: &Folded) -> bool {
    folded.stacks.iter().any(|stack| folded.frames_of(stack).len() > MAX_PATH)
}

/// Samples per name and kind.
pub type Counts = BTreeMap<(Kind, String), u64>;

fn counts(folded: &Folded, subtrees: bool) -> Counts {
    let mut counts = Counts::new();
    for row in table::rows(folded) {
        let name = unify(folded.frames.name(row.frame));
        *counts.entry((Kind::Own, name.clone())).or_default() += row.own;
        *counts.entry((Kind::Total, name)).or_default() += row.total;
    }
    if subtrees {
        for stack in &folded.stacks {
            let mut path = String::new();
            for frame in folded.frames_of(stack).iter().take(MAX_PATH) {
                if !path.is_empty() {
                    path.push(';');
                }
                path.push_str(&unify(folded.frames.name(*frame)));
                *counts.entry((Kind::Subtree, path.clone())).or_default() += stack.samples;
            }
        }
    }
    counts
}

/// Compares two profiles.
pub fn compare(old: &Folded, new: &Folded, confidence: f64, subtrees: bool, same_work: bool) -> Diff {
    let (old_counts, new_counts) = (counts(old, subtrees), counts(new, subtrees));
    let compare = if same_work { compare_work } else { compare_counts };
    compare(&old_counts, old.samples(), &new_counts, new.samples(), confidence)
}

/// Compares counts of samples of the same work. The counts are treated as shares of the samples of both sides together.
/// Their intervals are then those of two Poisson counts or a little wider.
pub fn compare_work(old: &Counts, old_samples: u64, new: &Counts, new_samples: u64, confidence: f64) -> Diff {
    let both = old_samples + new_samples;
    let diff = compare_counts(old, both, new, both, confidence);
    let scale = both as f64 / old_samples.max(1) as f64;
    let scaled = |change: Interval| Interval {
        low: change.low * scale,
        middle: change.middle * scale,
        high: change.high * scale,
    };
    let rows = diff.rows.into_iter().map(|row| Row { change: scaled(row.change), ..row }).collect();
    Diff { old_samples, new_samples, is_same_work: true, rows, ..diff }
}

/// Compares counts of samples.
pub fn compare_counts(old: &Counts, old_samples: u64, new: &Counts, new_samples: u64, confidence: f64) -> Diff {
    let names: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let get = |counts: &Counts, name: &(Kind, String)| counts.get(name).copied().unwrap_or(0);
    let compared: Vec<_> = names.into_iter().filter(|name| get(old, name) + get(new, name) > 0).collect();
    let z = z_for(confidence, compared.len());
    let row = |key: &&(Kind, String)| {
        let (old, new) = (get(old, key), get(new, key));
        let change = difference((old, old_samples), (new, new_samples), z);
        Row { kind: key.0, name: key.1.clone(), old, new, change }
    };
    let mut rows: Vec<Row> = compared.iter().map(row).collect();
    rows.sort_by(|a, b| {
        let size = |row: &Row| row.change.middle.abs();
        let by_size = || size(b).total_cmp(&size(a)).then_with(|| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        b.is_significant().cmp(&a.is_significant()).then_with(by_size)
    });
    Diff { old_samples, new_samples, is_same_work: false, confidence, rows }
}

/// A name without the parts that differ from build to build or from run to run: hashes of manglings, numbers of LLVM's
/// copies, ids of unnamed tasks.
pub fn unify(name: &str) -> String {
    let name = name.split(".llvm.").next().unwrap_or(name);
    let is_hash =
        |text: &str| text.len() == 17 && text.starts_with('h') && text[1..].bytes().all(|b| b.is_ascii_hexdigit());
    let name = match name.rsplit_once("::") {
        Some((path, last)) if is_hash(last) => path,
        _ => name,
    };
    match name.strip_prefix("id") {
        Some(digits)
            if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()) =>
        {
            "id*".to_owned()
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_run_are_unified() {
        for (name, unified) in [
            ("a::b::h0123456789abcdef", "a::b"),
            ("a::b.llvm.123456", "a::b"),
            ("id1f", "id*"),
            ("idle 0", "idle 0"),
            ("id", "id"),
            ("a::hello", "a::hello"),
        ] {
            assert_eq!(unify(name), unified);
        }
    }
}
