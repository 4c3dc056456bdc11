//! `cargo xtask truth --events`: what a profile says of events is what the kernel has counted.
//!
//! In: the scenarios `truth-events` (writes of known sizes by known tasks) and `heap-leak` (what the kernel itself has
//! counted of allocations), with many seeds; `waits-known`, once. Out: a row for each estimate with the mean of all
//! seeds, and its largest deviation. What is counted or recorded, and all totals, must be exact: the scenarios fail
//! otherwise. The bound is such that all estimates of all seeds, and the mean of each, hold together with 99.9 %.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::basis::z;
use crate::build::Kernel;
use crate::parts::Parts;
use crate::test::known_events::Estimate;
use crate::test::scenario;

/// Runs the scenarios, and gives what does not hold.
///
/// # Errors
/// If a scenario fails: then something is wrong that must be exact.
pub fn run(parts: &Parts, kernel: &Kernel, output: &Path, seeds: u64) -> Result<Vec<String>> {
    scenario::one("waits-known", parts, kernel, &output.join("waits-known"), "")?;
    println!("waits: the time of every thread is all accounted for, to the tick");
    let mut rows = BTreeMap::<String, Vec<Estimate>>::new();
    for seed in 1..=seeds {
        for name in ["truth-events", "heap-leak"] {
            let folder = output.join(format!("{name}-{seed}"));
            let estimates = scenario::one(name, parts, kernel, &folder, &format!("seed={seed}"))?;
            estimates.into_iter().for_each(|one| rows.entry(one.name.clone()).or_default().push(one));
        }
    }
    let bound = z(rows.len() * (seeds as usize + 1));
    println!("{:40} {:>12} {:>14} {:>9} {:>9}", "estimate", "known", "mean of seeds", "mean, sd", "most, sd");
    let mut wrong = Vec::new();
    for (name, estimates) in &rows {
        let mean = |of: fn(&Estimate) -> f64| estimates.iter().map(of).sum::<f64>() / estimates.len() as f64;
        let all = mean(Estimate::deviations) * (estimates.len() as f64).sqrt();
        let most = estimates.iter().map(|one| one.deviations().abs()).fold(0.0, f64::max);
        let (known, found) = (mean(|one| one.known), mean(|one| one.found));
        println!("{name:40} {known:12.0} {found:14.0} {all:9.2} {most:9.2}");
        if !(all.abs() <= bound && most <= bound) {
            wrong.push(format!("{name}: the mean is {all:.2}, and one seed {most:.2} standard deviations away"));
        }
    }
    println!("{} estimates of {seeds} seeds; {bound:.2} standard deviations are allowed", rows.len());
    Ok(wrong)
}
