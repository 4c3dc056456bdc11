//! Judges profiles of events whose tasks, numbers and weights are known.
//!
//! In: the profiles of the scenario `truth-events`, one for each state of the point; the serial log, with lines
//! `known: TASK HITS BYTES`. Out: what must be exact is checked here; what is an estimate is given back, with its
//! standard deviation.
//!
//! A hit that is recorded with the chance p stands for 1/p hits. So the sum of what the recorded hits of a task stand
//! for has the variance of the sum of w² (1 - p) / p, with w the weight of a hit, or 1. As the host scales all sums to
//! the exact total, what a task has is a share s of it: its variance is the sum of (g - s)² w² (1 - p) / p over all
//! hits, with g = 1 for those of the task and 0 for the others.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::parts::Parts;
use crate::run;

/// With the state `every`, one of this many hits is recorded.
const EVERY: f64 = 7.0;
/// The mean distance of the state `by-weight`, in bytes.
const MEAN: f64 = 2048.0;
/// What one seed is allowed, in standard deviations: of a thousand seeds one would be outside.
const DEVIATIONS: f64 = 3.3;

/// What a task did.
struct Known {
    task: String,
    hits: f64,
    weight: f64,
}

/// An estimate of something that is known, such as a task's part.
pub struct Estimate {
    /// What it is of.
    pub name: String,
    pub found: f64,
    pub known: f64,
    /// The standard deviation of `found`.
    pub deviation: f64,
}

impl Estimate {
    /// Whether it is what is known, as far as chance allows for the fixed seed of a scenario.
    ///
    /// # Errors
    /// If it is not.
    pub fn is_within_its_bound(&self) -> Result<()> {
        let Self { name, found, known, deviation } = self;
        let bound = DEVIATIONS * deviation;
        println!("  {name}: {found:.0}, {known:.0} known, {bound:.0} allowed on either side");
        ensure!((found - known).abs() <= bound, "{name}: {found}, but {known} is known");
        Ok(())
    }

    /// By how many standard deviations it is wrong.
    pub fn deviations(&self) -> f64 {
        (self.found - self.known) / self.deviation
    }
}

/// Judges the profiles in `share`, and gives the estimates.
///
/// # Errors
/// If something differs that must be exact.
pub fn estimates(point: &str, share: &Path, log: &str, parts: &Parts, symbols: &Path) -> Result<Vec<Estimate>> {
    let known = known(log)?;
    let total = |of: fn(&Known) -> f64| known.iter().map(of).sum::<f64>();
    let (hits, bytes) = (total(|task| task.hits), total(|task| task.hits * task.weight));
    let latency =
        run::output(Command::new(&parts.fold).arg("latency").arg(share.join("count.txt")).args(["--event", point]))?;
    let counted = format!("{hits} hits, {bytes} bytes in all");
    ensure!(latency.contains(&counted), "`{counted}` is not in:\n{latency}");
    let by_task = |state: &str, more: &[&str]| -> Result<BTreeMap<String, f64>> {
        let mut fold = Command::new(&parts.fold);
        fold.args(["folded", "--quiet", "--event", point, "--by", "task"]).args(more);
        let text = run::output(fold.arg(share.join(format!("{state}.txt"))).arg(symbols))?;
        let mut sums = BTreeMap::new();
        for line in text.lines() {
            let (stack, number) = line.rsplit_once(' ').context("a line has a number")?;
            let task = stack.split(';').next().unwrap_or(stack).to_owned();
            *sums.entry(task).or_default() += number.parse::<f64>()?;
        }
        let is_known = |name: &String| known.iter().any(|task| task.task == *name);
        ensure!(sums.keys().all(is_known), "{state}: others are there too: {sums:?}");
        Ok(sums)
    };
    let mut estimates = Vec::new();
    for (unit, more, all) in [("hits", &["--count"][..], hits), ("bytes", &[], bytes)] {
        let amount = |task: &Known| if unit == "hits" { 1.0 } else { task.weight };
        let recorded = by_task("record", more)?;
        for task in &known {
            let (found, known) = (recorded.get(&task.task).copied().unwrap_or(0.0), task.hits * amount(task));
            ensure!(found == known, "record: {found} {unit} of {}, {known} known", task.task);
        }
        let sampled = |state: &str| -> Result<BTreeMap<String, f64>> {
            let sums = by_task(state, more)?;
            let sum: f64 = sums.values().sum();
            ensure!(sum == all, "{state}: {sum} {unit} in all, {all} known");
            Ok(sums)
        };
        let (every, by_weight) = (sampled("every")?, sampled("by-weight")?);
        for task in &known {
            let (part, share) = (task.hits * amount(task), task.hits * amount(task) / all);
            let of = |sums: &BTreeMap<String, f64>| sums.get(&task.task).copied().unwrap_or(0.0);
            // Of each task's hits up to one interval is missing or too much, and all sums are scaled by their sum.
            let most = EVERY * (amount(task) + share * known.iter().map(amount).sum::<f64>());
            let found = of(&every);
            ensure!((found - part).abs() <= most, "every: {found} {unit} of {}, {part} known", task.task);
            let variance = |other: &Known| {
                let (p, own) = (-(-other.weight / MEAN).exp_m1(), f64::from(u8::from(other.task == task.task)));
                other.hits * ((own - share) * amount(other)).powi(2) * (1.0 - p) / p
            };
            estimates.push(Estimate {
                name: format!("{unit} of {}", task.task),
                found: of(&by_weight),
                known: part,
                deviation: known.iter().map(variance).sum::<f64>().sqrt(),
            });
        }
    }
    Ok(estimates)
}

fn known(log: &str) -> Result<Vec<Known>> {
    let mut known = Vec::new();
    for line in log.lines().filter_map(|line| line.split_once("known: ")) {
        let words: Vec<&str> = line.1.split_whitespace().collect();
        let [task, hits, weight] = words[..] else { bail!("known: {}", line.1) };
        known.push(Known { task: task.to_owned(), hits: hits.parse()?, weight: weight.parse()? });
    }
    ensure!(known.len() >= 2, "the log says of {} tasks what they do", known.len());
    Ok(known)
}
