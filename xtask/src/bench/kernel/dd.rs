//! The slowdown of `dd` by sampling, paired: each round runs it without sampling, at each rate, and without again.
//!
//! In: rounds. Out: for each rate the median, over the rounds, of its time beside the mean of the two without. All in one
//! boot of 4 CPUs on a thread each, profiled running throughout, as Linux's perf was measured.

use anyhow::{Context, Result, bail};

use super::{Goals, machine};
use crate::bench::measure::median;
use crate::build::Kernel;
use crate::parts::Parts;
use crate::qemu::Accel;

/// Rate, and half of what Linux's perf costs at it, in percent.
const GOALS: [(&str, f64); 3] = [("100", 0.6), ("1000", 3.25), ("5000", 8.95)];

/// Measures and judges.
///
/// # Errors
/// If the machine does not end well.
pub fn slowdown(goals: &mut Goals, parts: &Parts, on: &Kernel, rounds: u32) -> Result<()> {
    let ran = machine::run(parts, on, "bench-dd", Accel::Tcg, 4, &format!("rounds={rounds} blocks=300000"))?;
    let text = std::fs::read_to_string(ran.share.join("dd.txt")).context("what the guest measured")?;
    let runs: Vec<(&str, f64)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(rate, time)| (rate, time.parse().unwrap_or(f64::NAN)))
        .collect();
    let without = |index: usize, step: isize| {
        let mut at = index;
        loop {
            at = at.checked_add_signed(step)?;
            if let ("off", time) = runs.get(at)? {
                return Some(*time);
            }
        }
    };
    for (rate, most) in GOALS {
        let ratios: Vec<f64> = (0..runs.len())
            .filter(|index| runs[*index].0 == rate)
            .filter_map(|index| Some(runs[index].1 / ((without(index, -1)? + without(index, 1)?) / 2.0)))
            .collect();
        if ratios.len() + 1 < rounds as usize {
            bail!("{} of {rounds} rounds at {rate} Hz:\n{text}", ratios.len());
        }
        let mut sorted = ratios.clone();
        sorted.sort_by(f64::total_cmp);
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        let quarter = |part: usize| percent(sorted[sorted.len() * part / 4]);
        println!("dd at {rate} Hz: slower by {:.2} % to {:.2} % in the middle half", quarter(1), quarter(3));
        goals.at_most(
            &format!("dd at {rate} Hz: slower than without sampling, percent"),
            percent(median(ratios)),
            most,
        );
    }
    Ok(())
}
