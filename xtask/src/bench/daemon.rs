//! `cargo xtask bench daemon`: the cost of draining, as the profile itself shows it.
//!
//! In: three CPUs busy with system calls under `-icount`, with every tick recorded (`--include user`). Out: the share
//! of one CPU's ticks at which `profiled` was running, at 1 and 10 kHz; bytes per sample in both forms; lost samples.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Args, Parser};

use super::goals::Goals;
use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::toolchain::Choice;
use crate::tools::Install;
use crate::{profile, run};

/// The daemon's share of a CPU and the size of its files, against their goals.
#[derive(Args)]
pub struct Arguments {
    /// Seconds of guest time at 1 kHz; at 10 kHz a third of it
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(3..=600))]
    seconds: u32,
}

/// Maximum share of one CPU, in percent, when three CPUs are sampled at 1 kHz. `profiled` runs at few of the ticks of 9
/// seconds (about 44 in the text form, 28 in the binary form), so chance moves the share by a sixth.
const MAX_PERCENT: f64 = 0.6;
/// The same maximum when the daemon writes the binary form.
const MAX_PERCENT_BINARY: f64 = 0.4;
/// The same maxima at 10 kHz, where chance moves the share by a fortieth.
const MAX_PERCENT_FAST: f64 = 4.8;
const MAX_PERCENT_FAST_BINARY: f64 = 3.0;
/// Maximum size of the binary form, in percent of the text.
const MAX_BINARY_PERCENT: f64 = 8.0;

/// The figures of a run.
struct Figures {
    /// Ticks at which `profiled` was running, in percent of the ticks of one CPU.
    percent: f64,
    bytes_a_sample: f64,
    lost: f64,
}

/// Runs the verb.
///
/// # Errors
/// If a run fails.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let parts = Parts::prepare(Choice::Auto, Install(true))?;
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    let measure = |hz, binary| {
        let seconds = if hz > 1000 { arguments.seconds / 3 } else { arguments.seconds };
        figures(&parts, &kernel, hz, seconds, binary)
    };
    let (slow, fast) = (measure(1000, false)?, measure(10_000, false)?);
    let (binary, fast_binary) = (measure(1000, true)?, measure(10_000, true)?);
    println!("\nthree CPUs at work, every tick recorded, `profiled` in percent of one CPU:");
    println!("  1 kHz  text {:6.2} %   binary {:6.2} %", slow.percent, binary.percent);
    println!(" 10 kHz  text {:6.2} %   binary {:6.2} %", fast.percent, fast_binary.percent);
    println!("bytes a sample: text {:.1}, binary {:.1}", slow.bytes_a_sample, binary.bytes_a_sample);
    let mut goals = Goals::default();
    goals.at_most("percent of one CPU at 1 kHz on three", slow.percent, MAX_PERCENT);
    goals.at_most("the same in the binary form", binary.percent, MAX_PERCENT_BINARY);
    goals.at_most("percent of one CPU at 10 kHz on three", fast.percent, MAX_PERCENT_FAST);
    goals.at_most("the same in the binary form", fast_binary.percent, MAX_PERCENT_FAST_BINARY);
    let part = binary.bytes_a_sample / slow.bytes_a_sample * 100.0;
    goals.at_most("binary form in percent of the text", part, MAX_BINARY_PERCENT);
    goals.at_most("samples lost at 1 and 10 kHz", slow.lost + fast.lost + binary.lost + fast_binary.lost, 0.0);
    Ok(goals.end())
}

fn figures(parts: &Parts, kernel: &Kernel, hz: u32, seconds: u32, binary: bool) -> Result<Figures> {
    let folder =
        run::root().join("target/bench-daemon").join(format!("{hz}-{}", if binary { "binary" } else { "text" }));
    let (to, hz, seconds) = (folder.display().to_string(), hz.to_string(), seconds.max(1).to_string());
    let mut line = vec!["bench", "--accel", "icount", "--include", "user", "--workload", "busy", "--hz", &hz];
    line.extend(["--seconds", &seconds, "-o", &to]);
    if binary {
        line.push("--binary");
    }
    profile::of_kernel(&profile::Line::try_parse_from(line)?.profile, parts, kernel)?;
    let profile = folder.join(if binary { "profiling.bin" } else { "profiling.txt" });
    let bytes = std::fs::metadata(&profile)?.len();
    let info = |more: &[&str]| {
        let mut fold = Command::new(&parts.fold);
        fold.args(["report", "--user", "--top", "1"]).args(more).arg(&profile).arg(folder.join("syms.txt"));
        run::output(&mut fold)
    };
    let all = info(&[])?;
    let (samples, lost) = headline(&all)?;
    let (found, _) = headline(&info(&["--task", "profiled"])?)?;
    let ticks = busiest(&all)?;
    Ok(Figures { percent: found / ticks * 100.0, bytes_a_sample: bytes as f64 / samples, lost })
}

/// Parses the numbers of samples and losses from the line `15081 samples in 39 functions, 0 lost; ...`.
fn headline(report: &str) -> Result<(f64, f64)> {
    let line = report
        .lines()
        .find(|line| line.contains(" samples in "))
        .context("a report says how many samples there are")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let lost = words.iter().position(|word| word.starts_with("lost")).context("a report says what was lost")?;
    Ok((words[0].parse()?, words[lost - 1].parse()?))
}

/// The ticks of one CPU: the second column of the account's first row.
fn busiest(report: &str) -> Result<f64> {
    let rows = report.lines().skip_while(|line| !line.starts_with("CPU ")).skip(1);
    let ticks = rows.filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    ticks.fold(None, |most: Option<f64>, ticks| Some(most.map_or(ticks, |most| most.max(ticks)))).context("no account")
}
