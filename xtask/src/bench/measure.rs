//! Measuring a command line: CPU time of all its processes, wall time, peak memory, instructions.
//!
//! In: a shell command. Out: figures. Each command runs under a process of its own, this program again, so that peak
//! memory is that of the command and of nothing before it. Its output goes to /dev/null.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::run;

/// The process in between.
#[derive(Args)]
pub struct Arguments {
    /// What the shell runs
    command: String,
}

/// Figures of one run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// User and system time of all processes, seconds.
    pub cpu_s: f64,
    /// Wall time, seconds.
    pub wall_s: f64,
    /// Peak memory of the largest process, MiB.
    pub peak_mib: f64,
}

/// Runs a shell command.
///
/// # Errors
/// If it fails.
pub fn run(command: &str) -> Result<Run> {
    let figures = run::output(Command::new(std::env::current_exe()?).args(["bench", "measured", command]))?;
    let numbers: Vec<f64> = figures.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [cpu_s, wall_s, peak_mib] = numbers[..] else { bail!("`{command}` gave no figures: {figures}") };
    Ok(Run { cpu_s, wall_s, peak_mib })
}

/// Runs the command as the only child, and prints its figures.
///
/// # Errors
/// If it fails.
pub fn child(arguments: &Arguments) -> Result<ExitCode> {
    let start = Instant::now();
    let mut shell = Command::new("bash");
    shell.args(["-o", "pipefail", "-c", &arguments.command]);
    let status = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let wall_s = start.elapsed().as_secs_f64();
    if !status.success() {
        bail!("`{}` failed ({status})", arguments.command);
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let cpu_us = (usage.user_time() + usage.system_time()).num_microseconds();
    println!("{} {wall_s} {}", cpu_us as f64 / 1e6, usage.max_rss() as f64 / 1024.0);
    Ok(ExitCode::SUCCESS)
}

/// Instructions of a program by callgrind.
///
/// # Errors
/// If callgrind is not there or gives no count.
pub fn instructions(program: &Path, arguments: &[&str], folder: &Path) -> Result<u64> {
    let valgrind = run::find_program("valgrind").context("no valgrind")?;
    let out = folder.join("callgrind.out");
    let mut command = Command::new(valgrind);
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display())).arg(program);
    run::output(command.args(arguments))?;
    let text = std::fs::read_to_string(&out)?;
    let line = text.lines().find(|line| line.starts_with("summary:") || line.starts_with("totals:"));
    let count = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    count.context("callgrind wrote no count")
}

/// The middle one of some values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
