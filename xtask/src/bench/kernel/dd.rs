//! The slowdown of `dd` by sampling, paired: it runs without sampling before and after each run with it.
//!
//! In: rounds. Out: for each rate the median, over the rounds, of its time beside the mean of the two without; the same
//! for Linux's perf in the same QEMU, in turns with ours, since both hang on what the host does just then. 4 CPUs on a
//! thread each, the same busybox in both, profiled running throughout.

use anyhow::{Context, Result, bail};

use super::perf::Linux;
use super::{Goals, machine};
use crate::bench::measure::median;
use crate::build::Kernel;
use crate::parts::Parts;
use crate::qemu::Accel;
use crate::tools::Install;

/// Rates, and what Linux's perf cost there where the goals were specified, in percent.
const PERF: [(&str, f64); 3] = [("100", 1.2), ("1000", 6.5), ("5000", 17.9)];
/// Rounds of a boot; ours are shorter, so there are more of them.
const ROUNDS: [u32; 2] = [6, 2];
const CPUS: u32 = 4;
const BLOCKS: u32 = 300_000;

/// Measures and judges: at most half of what perf costs here, or cost where that was specified.
///
/// # Errors
/// If a machine does not end well.
pub fn slowdown(goals: &mut Goals, parts: &Parts, on: &Kernel, turns: u32, install: Install) -> Result<()> {
    let linux = Linux::prepare(parts, install)?;
    let [mut ours, mut perf] = [Vec::new(), Vec::new()];
    for turn in 1..=turns {
        eprintln!("turn {turn} of {turns}");
        let append = format!("rounds={} blocks={BLOCKS}", ROUNDS[0]);
        let ran = machine::run(parts, on, "bench-dd", Accel::Tcg, CPUS, &append)?;
        ratios(&std::fs::read_to_string(ran.share.join("dd.txt")).context("what the guest measured")?, &mut ours)?;
        ratios(&linux.run(parts, CPUS, (ROUNDS[1], BLOCKS))?, &mut perf)?;
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
        // Where perf costs more than was specified, so does the machine. Less, at a low rate, is chance.
        let most = (50.0 * perf.max(specified)).round() / 100.0;
        goals.at_most(&format!("dd at {rate} Hz: slower, percent, perf was specified with {specified}"), ours, most);
    }
    Ok(())
}

/// Of each run with sampling its rate, and its time beside the mean of the two around it.
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
