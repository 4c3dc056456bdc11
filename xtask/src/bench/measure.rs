//! Measures programs: CPU time, wall time, peak memory, instructions.
//!
//! In: a program, or several connected by pipes. Out: figures. The programs are children of a separate process, which
//! is this program again. So the peak memory is only theirs, and no shell is measured with them. Their output goes to
//! /dev/null.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::run;

/// Arguments of the separate process.
#[derive(Args)]
pub struct Arguments {
    /// Programs with their arguments, `|` between
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<String>,
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

/// Runs programs, which are separated by `|`.
///
/// # Errors
/// If one fails.
pub fn run(words: &[String]) -> Result<Run> {
    let figures = run::output(Command::new(std::env::current_exe()?).args(["bench", "measured", "--"]).args(words))?;
    let numbers: Vec<f64> = figures.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [cpu_s, wall_s, peak_mib] = numbers[..] else { bail!("{words:?} gave no figures: {figures}") };
    Ok(Run { cpu_s, wall_s, peak_mib })
}

/// Runs the programs as the only children, and prints their figures.
///
/// # Errors
/// If one fails.
pub fn child(arguments: &Arguments) -> Result<ExitCode> {
    let start = Instant::now();
    let mut children = start_all(&arguments.words, Stdio::null())?;
    for child in &mut children {
        let status = child.wait()?;
        if !status.success() {
            bail!("{:?} failed ({status})", arguments.words);
        }
    }
    let wall_s = start.elapsed().as_secs_f64();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let cpu_us = (usage.user_time() + usage.system_time()).num_microseconds();
    println!("{} {wall_s} {}", cpu_us as f64 / 1e6, usage.max_rss() as f64 / 1024.0);
    Ok(ExitCode::SUCCESS)
}

/// Runs programs, which are separated by `|`, and returns what the last one prints.
///
/// # Errors
/// If one cannot be started or read.
pub fn printed(words: &[String]) -> Result<String> {
    let mut children = start_all(words, Stdio::piped())?;
    let mut text = String::new();
    let last = children.last_mut().context("no program")?;
    last.stdout.take().context("it has a pipe")?.read_to_string(&mut text)?;
    children.iter_mut().try_for_each(|child| child.wait().map(drop))?;
    Ok(text)
}

/// Starts the programs. Each reads from the one before it, and the last one prints to `out`.
fn start_all(words: &[String], out: Stdio) -> Result<Vec<Child>> {
    let programs: Vec<&[String]> = words.split(|word| word == "|").collect();
    let (mut children, mut input, mut out) = (Vec::new(), Stdio::null(), Some(out));
    for (number, program) in programs.iter().enumerate() {
        let [name, arguments @ ..] = program else { bail!("no program between two pipes") };
        let is_last = number + 1 == programs.len();
        let output = if is_last { out.take().context("one is last")? } else { Stdio::piped() };
        let mut command = Command::new(name);
        let mut child = command.args(arguments).stdin(input).stdout(output).stderr(Stdio::null()).spawn()?;
        input = match child.stdout.take() {
            Some(pipe) if !is_last => pipe.into(),
            pipe => {
                child.stdout = pipe;
                Stdio::null()
            }
        };
        children.push(child);
    }
    Ok(children)
}

/// The number of instructions of a program, counted by callgrind.
///
/// # Errors
/// If callgrind is not installed or gives no count.
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

/// The median of some values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
