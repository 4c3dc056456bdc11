//! The comparison of weights: of the recorded hits of a point in two profiles. Stage: diff.
//!
//! In: the folded runs of two sides, and how exactly the weight of each stack is known ([`crate::events::parts`]). Out:
//! the same rows as for samples. Weights are not counts: a hit may weigh a thousand times as much as another one. So
//! the number of draws does not come from the weight, but from its variance.
//!
//! Method: what the recorded hits of a CPU stand for is scaled to the exact total T of the CPU. With R the share of a
//! function in the hits of the CPU, its weight T R then has the variance (1 - R)^2 V + R^2 (V_all - V), where V and
//! V_all are the variances before scaling (a ratio estimate: Cochran, Sampling Techniques, 1977, chapter 6). Shares of
//! a choice of stacks are ratios of two such weights. A share with this variance is as exact as one of so many
//! independent draws, and Newcombe's interval of the difference is then that of samples ([`super::significance`]). A
//! function that has no hit on a sampled side may have had one that was not recorded, so each variance includes one
//! more hit of the size that is usual for hits that were not recorded. If every hit is recorded, there is no chance:
//! the difference is exact. Lost hits belong to functions that are not known, so the interval is widened by all of
//! them. With several runs the variance of a side is the greater one of this and of that between its runs, with
//! Student's distribution (Welch, Biometrika 34, 1947).

use super::significance::{Interval, Share, clear_until, difference, quantile, tails};
use super::{Counts, Diff, Kind, Known, MAX_PATH, Method, Row, counts, in_order, unify};
use crate::amount::Amount;
use crate::events::parts::Part;
use crate::fold::{Folded, Folder};
use std::collections::{BTreeMap, BTreeSet};

/// What is compared, and what of it is in no row.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The name of the point, for people.
    pub name: String,
    /// The unit of the weights, or `hits`, for people.
    pub unit: String,
    /// Weight of lost hits in OLD and NEW.
    pub lost: (u64, u64),
    /// Weight of hits in OLD and NEW for which no record was asked.
    pub only_counted: (u64, u64),
    /// Whether some hits of OLD and NEW were not recorded on purpose.
    pub is_sampled: (bool, bool),
    /// Whether records of allocations or frees were lost, so that it is not known what was not freed.
    pub is_doubtful: bool,
}

/// One run.
#[derive(Debug, Default)]
pub struct Run {
    counts: Counts,
    /// The sum of all stacks.
    total: u64,
    /// Weight of lost hits.
    pub lost: u64,
    /// Weight of hits for which no record was asked.
    pub only_counted: u64,
    /// Whether records of allocations or frees were lost, so that it is not known what was not freed.
    pub is_doubtful: bool,
    parts: Vec<Of>,
    /// For each row the amount in each part.
    amounts: BTreeMap<(Kind, String), Vec<Amount>>,
}

/// One part of the hits, which has a scale of its own.
#[derive(Clone, Debug)]
struct Of {
    scale: f64,
    is_scaled: bool,
    is_sampled: bool,
    most: f64,
    all: Amount,
    /// What of it is in the folded stacks.
    chosen: Amount,
}

impl Run {
    /// The run with these folded stacks. `folder` must be the one that has made them.
    pub fn of(folded: &Folded, parts: &[Part], folder: &Folder<'_>, subtrees: bool) -> Self {
        let mut run = Self { counts: counts(folded, subtrees), total: folded.samples(), ..Self::default() };
        for (at, part) in parts.iter().enumerate() {
            let Part { scale, is_scaled, is_sampled, most, all, .. } = *part;
            let mut of = Of { scale, is_scaled, is_sampled, most, all, chosen: Amount::default() };
            let places: Vec<_> = part.counts.iter().map(|(place, _)| *place).collect();
            let stacks = folder.one_by_one(&places);
            for stack in &stacks.stacks {
                let amount = part.counts[stack.samples as usize].1;
                of.chosen.add(&amount);
                let names: Vec<String> =
                    stacks.frames_of(stack).iter().map(|frame| unify(stacks.frames.name(*frame))).collect();
                for key in keys(&names, subtrees) {
                    run.amounts.entry(key).or_insert_with(|| vec![Amount::default(); parts.len()])[at].add(&amount);
                }
            }
            run.parts.push(of);
        }
        run
    }

    /// The variance of the weight of a row as shown; with `share`, that of its share times the weight of all stacks.
    fn variance(&self, key: &(Kind, String), share: f64) -> f64 {
        let nothing = vec![Amount::default(); self.parts.len()];
        let amounts = self.amounts.get(key).unwrap_or(&nothing);
        let of = |(part, amount): (&Of, &Amount)| {
            let ratio = |of: &Amount| if part.is_scaled { of.sum / part.all.sum } else { 0.0 };
            let (row, chosen) = (ratio(amount), ratio(&part.chosen));
            // By how much the result grows with a hit of the row, with another chosen one, and with any other one.
            let moves = [1.0 - row - share * (1.0 - chosen), -row - share * (1.0 - chosen), share * chosen - row];
            let rest = (part.chosen.variance - amount.variance).max(0.0);
            let others = (part.all.variance - part.chosen.variance).max(0.0);
            let variances = [amount.variance, rest, others];
            let sum: f64 = moves.iter().zip(variances).map(|(by, variance)| by * by * variance).sum();
            part.scale * part.scale * sum
        };
        self.parts.iter().zip(amounts).map(of).sum()
    }

    /// The weight for which one more hit of a row would stand that was not recorded: as the recorded ones of the row,
    /// or, if there is none, as much as any of the run may stand for. 0 if every hit is recorded.
    fn one_more(&self, key: &(Kind, String), share: f64) -> f64 {
        let sampled = || self.parts.iter().enumerate().filter(|(_, part)| part.is_sampled);
        let usual = |amount: &dyn Fn(usize) -> Amount| {
            let sum = |of: &dyn Fn(&Of, Amount) -> f64| sampled().map(|(at, part)| of(part, amount(at))).sum::<f64>();
            let unseen = sum(&|part, amount| part.scale * amount.unseen);
            (unseen > 0.0).then(|| sum(&|part, amount| part.scale * part.scale * amount.variance) / unseen)
        };
        if sampled().next().is_none() {
            return 0.0;
        }
        let own = self.amounts.get(key).and_then(|amounts| usual(&|at| amounts[at]));
        let most = || sampled().map(|(_, part)| part.scale * part.most).fold(0.0, f64::max);
        let any = || usual(&|at| self.parts[at].all).unwrap_or(0.0).max(most());
        // A side that is sampled is never exact.
        let own = own.unwrap_or_else(any).max(1.0);
        (own * (1.0 - share)).hypot(any() * share)
    }
}

/// The rows to which a stack belongs, each once. `names` are outermost first.
fn keys(names: &[String], subtrees: bool) -> BTreeSet<(Kind, String)> {
    let mut keys: BTreeSet<_> = names.iter().map(|name| (Kind::Total, name.clone())).collect();
    keys.extend(names.last().map(|name| (Kind::SelfSamples, name.clone())));
    if subtrees {
        keys.extend((1..=names.len().min(MAX_PATH)).map(|length| (Kind::Subtree, names[..length].join(";"))));
    }
    keys
}

/// One side of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Side {
    share: Share,
    /// By how much the result may be smaller and larger because of lost hits.
    loss: (f64, f64),
    variance: f64,
    /// Degrees of freedom of the variance; infinite if it does not come from the differences between runs.
    freedom: f64,
}

/// A change, and what is known of both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    old: Side,
    new: Side,
    /// Whether shares are compared, which are between 0 and 1.
    is_of_shares: bool,
}

impl Change {
    pub(super) fn is_exact(&self) -> bool {
        self.old.share.draws.is_infinite() && self.new.share.draws.is_infinite()
    }

    fn freedom(&self) -> f64 {
        let of = |side: &Side| side.variance * side.variance / side.freedom;
        let (sum, parts) = (self.old.variance + self.new.variance, of(&self.old) + of(&self.new));
        if parts > 0.0 { sum * sum / parts } else { f64::INFINITY }
    }

    fn widened(&self, Interval { low, middle, high }: Interval) -> Interval {
        let ((old_low, old_high), (new_low, new_high)) = (self.old.loss, self.new.loss);
        let (low, high) = (low - new_low - old_high, high + new_high + old_low);
        let most = if self.is_of_shares { 1.0 } else { f64::INFINITY };
        Interval { low: low.max(-most), middle, high: high.min(most) }
    }

    /// The interval as if nothing had been lost.
    pub(super) fn without_loss(&self, chance: f64) -> Interval {
        difference(self.old.share, self.new.share, quantile(chance, self.freedom()))
    }

    pub(super) fn interval(&self, chance: f64) -> Interval {
        self.widened(self.without_loss(chance))
    }

    fn p_value(&self) -> f64 {
        let clear = clear_until(|z| self.widened(difference(self.old.share, self.new.share, z)));
        match clear {
            None => 1.0,
            Some(_) if self.is_exact() => 0.0,
            Some(z) => tails(z, self.freedom()),
        }
    }
}

/// One side of a row. Shares are parts of the side itself, or, with `unit`, the mean of the runs in this unit.
fn side(runs: &[Run], key: &(Kind, String), unit: Option<f64>) -> Side {
    let count = runs.len().max(1) as f64;
    let sum = runs.iter().map(|run| run.total as f64).sum::<f64>();
    if sum == 0.0 && unit.is_none() {
        // Nothing is known of the shares of nothing.
        let share = Share { share: 0.0, draws: 0.0, whole: 1.0 };
        return Side { share, loss: (0.0, 0.0), variance: 0.0, freedom: f64::INFINITY };
    }
    let lost: f64 = runs.iter().map(|run| run.lost as f64).sum();
    let of = |run: &Run| {
        let (amount, total) = (run.counts.get(key).copied().unwrap_or(0) as f64, (run.total as f64).max(1.0));
        match unit {
            None => {
                let share = amount / total;
                (share, total / sum, run.variance(key, share) / (total * total), run.one_more(key, share) / total)
            }
            Some(unit) => (
                amount / unit,
                1.0 / count,
                run.variance(key, 0.0) / (unit * unit),
                run.one_more(key, amount / total) / unit,
            ),
        }
    };
    let each: Vec<(f64, f64, f64, f64)> = runs.iter().map(of).collect();
    let middle: f64 = each.iter().map(|(value, weight, ..)| value * weight).sum();
    let own: f64 = each.iter().map(|(_, weight, variance, _)| weight * weight * variance).sum();
    let one_more = each.iter().map(|(_, weight, _, unit)| weight * unit).fold(0.0, f64::max);
    let (mut variance, mut freedom) = (own, f64::INFINITY);
    if each.len() > 1 {
        let apart: f64 = each.iter().map(|(value, weight, ..)| weight * (value - middle).powi(2)).sum();
        let squares: f64 = each.iter().map(|(_, weight, ..)| weight * weight).sum();
        variance = own.max(apart * count / (count - 1.0) * squares);
        freedom = count - 1.0;
    }
    // Weights are treated as parts of twice the weight of the side, so that the share of all of it is below 1.
    let whole = unit.map_or(1.0, |unit| 2.0 * sum.max(1.0) / count / unit);
    let share = (middle / whole).clamp(0.0, 1.0);
    let hit = (variance + one_more * one_more) / (middle * (1.0 - share) + one_more);
    let draws = if variance + one_more > 0.0 { whole / hit } else { f64::INFINITY };
    let loss = match unit {
        None => (middle - middle * sum / (sum + lost), (middle * sum + lost) / (sum + lost) - middle),
        Some(unit) => (0.0, lost / count / unit),
    };
    Side { share: Share { share, draws, whole }, loss, variance, freedom }
}

/// Compares the runs of two sides. `name` and `unit` are those of the weights, for people.
pub fn compare(old: &[Run], new: &[Run], (name, unit): (&str, &str), method: Method) -> Diff {
    let sum = |runs: &[Run], of: fn(&Run) -> u64| runs.iter().map(of).fold(0, u64::saturating_add);
    let both = |of: fn(&Run) -> u64| (sum(old, of), sum(new, of));
    let (old_samples, new_samples) = both(|run| run.total);
    let per_run = (old_samples as f64 / old.len().max(1) as f64).max(1.0);
    let work = method.is_same_work.then_some(per_run);
    let keys: BTreeSet<_> = old.iter().chain(new).flat_map(|run| run.counts.keys()).collect();
    let row = |key: &(Kind, String)| {
        let (old_side, new_side) = (side(old, key, work), side(new, key, work));
        let known = Change { old: old_side, new: new_side, is_of_shares: work.is_none() };
        let of = |runs: &[Run]| runs.iter().filter_map(|run| run.counts.get(key)).sum::<u64>();
        let (change, p_value) = (known.interval(0.5), known.p_value());
        let (kind, name, known) = (key.0, key.1.clone(), Known::Weights(known));
        Row { kind, name, old: of(old), new: of(new), change, p_value, is_within_loss: false, known }
    };
    let rows = keys.into_iter().map(row).filter(|row| row.old > 0 || row.new > 0).collect();
    let is_sampled = |runs: &[Run]| runs.iter().flat_map(|run| &run.parts).any(|part| part.is_sampled);
    let event = Event {
        name: name.to_owned(),
        unit: unit.to_owned(),
        lost: both(|run| run.lost),
        only_counted: both(|run| run.only_counted),
        is_sampled: (is_sampled(old), is_sampled(new)),
        is_doubtful: old.iter().chain(new).any(|run| run.is_doubtful),
    };
    Diff {
        old_samples,
        new_samples,
        runs: (old.len(), new.len()),
        is_same_work: method.is_same_work,
        confidence: method.confidence,
        rows: in_order(rows, 1.0 - method.confidence),
        event: Some(event),
        notes: Vec::new(),
    }
}
