//! Diff: finds what changed from one profile to another, and whether the change is more than chance. Stage: after fold.
//!
//! In: the folded runs of two sides, OLD and NEW. Out: a row per function (and per subtree) with its share before and
//! after, the change and its confidence interval. Each side's shares are parts of its own samples, so the two sides may
//! differ in length and number of CPUs. If both sides did the same work at the same rate, numbers of samples per run
//! are compared instead, as parts of OLD. Then a function that got slower does not make the others look faster. A
//! function counts once per sample even if it is recursive.
//!
//! If many functions are compared, some change by chance. Holm's method (Scandinavian Journal of Statistics 6, 1979)
//! sets the level of each row, so that the stated confidence holds for the whole table: with 99 %, two sides of the
//! same behaviour show any alarm in at most 1 % of comparisons. The allowed chance of a false alarm is 1 minus the
//! confidence. The row with the smallest p-value is tested at this chance divided by the number of rows, the next row
//! at this chance divided by one row less, and so on until a row fails the test. That row and all rows after it are
//! within chance. A claim is tested by itself, not as a part of the table ([`claim`]).

pub mod blocks;
pub mod claim;
pub mod exact;
pub mod output;
pub mod significance;
pub mod spread;
pub mod weights;

use crate::fold::Folded;
use crate::output::table;
use crate::profile::rates::Unequal;
use significance::{Change, Interval};
use spread::Runs;
use std::collections::{BTreeMap, BTreeSet};

/// What a comparison of one run with one run cannot exclude.
pub const ONE_RUN: &str = "with one run on each side, a difference between two runs of the same kernel can look like a \
                           change; several runs of each side show how much runs differ";

/// What a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Samples in which the function is innermost.
    SelfSamples,
    /// Samples in whose stack the function is.
    Total,
    /// Samples whose stack begins with this path from the root.
    Subtree,
}

impl Kind {
    /// The word for this kind of row in the output.
    pub fn word(self) -> &'static str {
        match self {
            Self::SelfSamples => "self",
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
    /// Change in share, NEW minus OLD, with the interval at the level at which Holm's method tests this row.
    pub change: Interval,
    /// The probability that chance alone gives a change of this size or a larger one.
    pub p_value: f64,
    /// Whether lost hits are the only reason why it is not known whether the row has changed.
    pub is_within_loss: bool,
    /// From what `change` and `p_value` are computed.
    known: Known,
}

/// From what a change is computed.
#[derive(Clone, Debug, PartialEq)]
enum Known {
    /// Counts of samples, and the factor from shares of these counts to those that are shown.
    Samples(Change, f64),
    /// Weights of recorded hits.
    Weights(weights::Change),
}

impl Row {
    /// Whether the interval does not contain 0.
    pub fn is_significant(&self) -> bool {
        self.change.low > 0.0 || self.change.high < 0.0
    }

    /// The variance between the runs of each side, as a multiple of the variance that chance alone gives.
    pub fn spread(&self) -> f64 {
        match &self.known {
            Known::Samples(change, _) => change.spread.factor,
            Known::Weights(_) => 1.0,
        }
    }

    /// Whether both sides are known without an error of sampling.
    pub fn is_exact(&self) -> bool {
        matches!(&self.known, Known::Weights(change) if change.is_exact())
    }

    /// The change with its confidence interval. The true change is outside of the interval with the probability
    /// `chance`, half of it on each side.
    pub fn interval(&self, chance: f64) -> Interval {
        match &self.known {
            Known::Weights(change) => change.interval(chance),
            Known::Samples(change, scale) => {
                let Interval { low, middle, high } = change.interval(chance);
                Interval { low: low * scale, middle: middle * scale, high: high * scale }
            }
        }
    }

    /// The chance that a share grew (or shrank) as much or more without a cause; 0 if that is not known exactly.
    pub fn one_sided(&self, grows: bool) -> f64 {
        match &self.known {
            Known::Samples(change, _) => change.one_sided(grows),
            Known::Weights(_) => 0.0,
        }
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
    /// The number of runs of OLD and of NEW.
    pub runs: (usize, usize),
    /// Whether numbers of samples were compared instead of shares.
    pub is_same_work: bool,
    /// The requested confidence, 0 to 1, that no row of the table is called significant by chance.
    pub confidence: f64,
    /// Rows by size of change; significant rows come first.
    pub rows: Vec<Row>,
    /// What is compared, if it is not samples: then every number of samples is one of this unit.
    pub event: Option<weights::Event>,
    /// Why what is shown may be wrong, in sentences.
    pub notes: Vec<String>,
}

impl Diff {
    /// What is counted: `samples`, or the unit of the weights.
    pub fn unit(&self) -> &str {
        self.event.as_ref().map_or("samples", |event| &event.unit)
    }

    /// The numbers of samples that are 100 % for the shares of OLD and for those of NEW. If both sides did the same
    /// work, the shares of NEW are parts of the samples that OLD would have in as many runs as NEW.
    pub fn wholes(&self) -> (f64, f64) {
        let (old, new) = (self.old_samples as f64, self.new_samples as f64);
        let runs = self.runs.1 as f64 / self.runs.0.max(1) as f64;
        (old, if self.is_same_work { old * runs } else { new })
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

/// One run: a profile as counts.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Samples per name and kind.
    pub counts: Counts,
    /// All its samples.
    pub samples: u64,
    /// The same of each block of its time, if the samples have times and are enough for it ([`blocks`]).
    pub blocks: Vec<(Counts, u64)>,
    /// How much the weights of its samples differ, if they were taken at several rates.
    pub unequal: Option<Unequal>,
}

impl Run {
    /// Counts the functions of a folded profile, and with `subtrees` the paths from the root too.
    pub fn of(folded: &Folded, subtrees: bool) -> Self {
        Self { counts: counts(folded, subtrees), samples: folded.samples(), ..Self::default() }
    }
}

/// How runs are compared.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// The confidence, 0 to 1, that no row of the table is called significant by chance.
    pub confidence: f64,
    /// Whether both sides did the same work at the same rate, so that numbers of samples are compared.
    pub is_same_work: bool,
}

fn counts(folded: &Folded, subtrees: bool) -> Counts {
    let mut counts = Counts::new();
    for row in table::rows(folded) {
        let name = unify(folded.frames.name(row.frame));
        *counts.entry((Kind::SelfSamples, name.clone())).or_default() += row.self_samples;
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

/// Whether the blocks of time of two single runs widen the intervals. They do not if both sides did the same work:
/// then only the moments of the samples are chance, and these are independent of each other.
pub fn uses_blocks(old: &[Run], new: &[Run], method: Method) -> bool {
    let has_blocks = |side: &[Run]| side.iter().any(|run| !run.blocks.is_empty());
    (old.len(), new.len()) == (1, 1) && !method.is_same_work && (has_blocks(old) || has_blocks(new))
}

/// Compares the runs of two sides.
pub fn compare(old: &[Run], new: &[Run], method: Method) -> Diff {
    let samples = |runs: &[Run]| runs.iter().map(|run| run.samples).sum::<u64>();
    let (old_samples, new_samples, runs) = (samples(old), samples(new), (old.len(), new.len()));
    // Counts of the same work are treated as shares of one run of both sides together. Their intervals are then those
    // of two Poisson counts or a little wider.
    let per_run = |samples: u64, runs: usize| samples as f64 / runs.max(1) as f64;
    let both = per_run(old_samples, runs.0) + per_run(new_samples, runs.1);
    let whole = |run: &Run| if method.is_same_work { both } else { run.samples as f64 };
    let scale = if method.is_same_work { both / per_run(old_samples, runs.0).max(1.0) } else { 1.0 };
    let names: BTreeSet<_> = old.iter().chain(new).flat_map(|run| run.counts.keys()).collect();
    let count = |run: &Run, name: &(Kind, String)| run.counts.get(name).copied().unwrap_or(0);
    let of_runs =
        |name: &(Kind, String)| [old, new].map(|side| side.iter().map(|run| (count(run, name), whole(run))).collect());
    let compared: Vec<_> =
        names.into_iter().filter(|name| old.iter().chain(new).any(|run| count(run, name) > 0)).collect();
    let functions: Vec<[Runs; 2]> = compared.iter().map(|name| of_runs(name)).collect();
    // With one run on each side, its blocks of time stand for the runs that it lacks.
    let has_blocks = uses_blocks(old, new, method);
    let of_blocks = |name: &(Kind, String), side: &[Run], counts: &Runs| match side {
        [Run { blocks, .. }] if has_blocks && !blocks.is_empty() => {
            blocks.iter().map(|(counts, samples)| (counts.get(name).copied().unwrap_or(0), *samples as f64)).collect()
        }
        _ => counts.clone(),
    };
    let varied: Vec<[Runs; 2]> = compared
        .iter()
        .zip(&functions)
        .map(|(name, [one, other])| [of_blocks(name, old, one), of_blocks(name, new, other)])
        .collect();
    let rows = compared.iter().zip(&functions).zip(spread::spreads(&varied));
    let unequal = |name: &(Kind, String)| {
        let of = |run: &Run| run.unequal.map_or(1.0, |unequal| unequal.factor(count(run, name)));
        old.iter().chain(new).map(of).fold(1.0, f64::max)
    };
    let rows = rows.map(|((name, sides), mut spread)| {
        spread.factor = spread.factor.max(unequal(name));
        let pooled = |runs: &Runs| runs.iter().fold((0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
        let (old, new) = (pooled(&sides[0]), pooled(&sides[1]));
        let counts = Change { old, new, spread };
        let p_value = counts.p_value();
        let change = Interval { low: 0.0, middle: 0.0, high: 0.0 };
        let (known, name, kind) = (Known::Samples(counts, scale), name.1.clone(), name.0);
        Row { kind, name, old: old.0, new: new.0, change, p_value, is_within_loss: false, known }
    });
    let rows = in_order(rows.collect(), 1.0 - method.confidence);
    let (is_same_work, confidence) = (method.is_same_work, method.confidence);
    Diff { old_samples, new_samples, runs, is_same_work, confidence, rows, event: None, notes: Vec::new() }
}

/// Sets the level of each row, and sorts the rows by size of change; significant rows come first.
fn in_order(mut rows: Vec<Row>, chance: f64) -> Vec<Row> {
    set_levels(&mut rows, chance);
    rows.sort_by(|a, b| {
        let size = |row: &Row| row.change.middle.abs();
        let by_size = || size(b).total_cmp(&size(a)).then_with(|| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        b.is_significant().cmp(&a.is_significant()).then_with(by_size)
    });
    rows
}

/// Gives each row the interval at the level at which Holm's method tests it. Exact rows are no test, and do not change
/// the level of the others.
fn set_levels(rows: &mut [Row], chance: f64) {
    rows.sort_by(|a, b| {
        let by_name = || (a.kind, &a.name).cmp(&(b.kind, &b.name));
        a.is_exact().cmp(&b.is_exact()).then(a.p_value.total_cmp(&b.p_value)).then_with(by_name)
    });
    let count = rows.iter().filter(|row| !row.is_exact()).count();
    let level = |tested: usize| chance / (count - tested).max(1) as f64;
    let tests = rows.iter().take(count).enumerate();
    let failed = tests.into_iter().find(|(tested, row)| row.p_value > level(*tested)).map_or(count, |(at, _)| at);
    for (at, row) in rows.iter_mut().enumerate() {
        let chance = level(at.min(failed));
        row.change = row.interval(chance);
        if let Known::Weights(change) = &row.known {
            let by_itself = change.without_loss(chance);
            let is_clear = by_itself.low > 0.0 || by_itself.high < 0.0;
            let is_loss_alone = row.is_exact() && row.change.low < row.change.high;
            row.is_within_loss = !row.is_significant() && (is_clear || is_loss_alone);
        }
    }
}

/// A name without the parts that differ from build to build or from run to run: hashes of manglings, numbers of LLVM's
/// copies, ids of unnamed tasks.
pub fn unify(name: &str) -> String {
    let name = name.split(".llvm.").next().unwrap_or(name);
    // A demangler may put the number in brackets.
    let name = name.strip_suffix(" (").unwrap_or(name);
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
            ("a::b::h0123456789abcdef (.llvm.7938792829313461892)", "a::b"),
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
