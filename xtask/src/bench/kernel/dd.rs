//! The slowdown of `dd` by sampling. Before and after each run with sampling there is a run without it.
//!
//! In: the number of rounds. Out: for each rate the median, over the rounds, of the ratio of its time to the mean of
//! the two runs without sampling; and the same for Linux's perf in the same QEMU. Ours and perf take turns, because
//! both depend on what else the host is doing. The machine has 4 CPUs with a host thread each. Both use the same
//! busybox, and profiled runs the whole time.

use anyhow::{Context, Result, bail};

use super::perf::Linux;
use super::{Goals, machine};
use crate::bench::measure::median;
use crate::build::Kernel;
use crate::parts::Parts;
use crate::qemu::Accel;
use crate::tools::Install;

/// Rates, and the slowdown by Linux's perf in percent, as measured when the goals were specified.
const PERF: [(&str, f64); 3] = [("100", 1.2), ("1000", 6.5), ("5000", 17.9)];
/// Rounds in one boot: ours and perf's. Our boots are shorter, so they have more rounds.
const ROUNDS: [u32; 2] = [6, 2];
const CPUS: u32 = 4;
const BLOCKS: u32 = 300_000;

/// Measures and judges the slowdown: at most half of perf's here, or half of the specified one if that is more.
///
/// # Errors
/// If a machine does not end well.
pub fn slowdown(goals: &mut Goals, parts: &Parts, on: &Kernel, turns: u32, install: Install) -> Result<()> {
    let linux = Linux::prepare(parts, install, include_str!("perf.sh"), &[])?;
    let [mut ours, mut perf] = [Vec::new(), Vec::new()];
    for turn in 1..=turns {
        eprintln!("turn {turn} of {turns}");
        let append = format!("rounds={} blocks={BLOCKS}", ROUNDS[0]);
        let ran = machine::run(parts, on, "bench-dd", Accel::Tcg, CPUS, &append)?;
        ratios(&std::fs::read_to_string(ran.share.join("dd.txt")).context("what the guest measured")?, &mut ours)?;
        ratios(&linux.run_dd(parts, CPUS, (ROUNDS[1], BLOCKS))?, &mut perf)?;
    }
    for (rate, specified) in PERF {
        let [ours, perf] = [("kprof", &ours), ("perf", &perf)].map(|(name, all)| {
            let mut percents: Vec<f64> =
                all.iter().filter(|(hz, _)| hz == rate).map(|(_, ratio)| 100.0 * (ratio - 1.0)).collect();
            percents.sort_by(f64::total_cmp);
            let (count, quarter) = (percents.len(), percents.len() / 4);
            let (low, high) = (percents[quarter], percents[count - 1 - quarter]);
            let middle = median(percents);
            println!(
                "dd at {rate} Hz, {name}: slower by {middle:.2} % (middle half {low:.2} to {high:.2}, {count} pairs)"
            );
            middle
        });
        // If perf's slowdown is larger than specified, this machine is slower, and the limit is larger too. If it is
        // smaller at a low rate, that is chance, and the specified one is used.
        let most = (50.0 * perf.max(specified)).round() / 100.0;
        goals.at_most(&format!("dd at {rate} Hz: slower, percent, perf was specified with {specified}"), ours, most);
    }
    Ok(())
}

/// For each run with sampling its rate, and the ratio of its time to the mean of the runs before and after it.
fn ratios(text: &str, into: &mut Vec<(String, f64)>) -> Result<()> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("dd ")?.split_once(' '));
    let runs: Vec<(&str, f64)> = lines.filter_map(|(rate, ns)| Some((rate, ns.trim().parse().ok()?))).collect();
    let before = into.len();
    for around in runs.windows(3) {
        if let [("off", before), (rate, time), ("off", after)] = around {
            into.push(((*rate).to_owned(), time / ((before + after) / 2.0)));
        }
    }
    match into.len() - before {
        0 => bail!("no pairs in:\n{text}"),
        _ => Ok(()),
    }
}
