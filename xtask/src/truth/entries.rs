//! Compares the shares of system calls, page faults, interrupts and idle time with a count, for the trigger `nmi`.
//!
//! In: `test-kernel/programs/src/bin/truth-entries.rs`, which counts the parts of its round with the instruction clock
//! in a run without sampling, and is then sampled; idle time by the kernel's own clock (`/kernel/idle`). An entry
//! begins with the first instruction of its stub here. For published entries see `published`, which uses the same rows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Parser;

use super::basis::{Counted, z};
use crate::build::Kernel;
use crate::parts::Parts;
use crate::{profile, run};

const TASK: &str = "truth-entries";
const TITLE: &str = "nmi, entries";
/// The places whose shares are checked.
pub const PLACES: [&str; 4] = ["user", "[syscall]", "[exception-14]", "[interrupt-240]"];
/// Number of CPUs whose idle time is checked.
pub const IDLE_CPUS: usize = 3;
/// By how many rounds of the program intervals vary.
const ROUNDS_OF_SPREAD: f64 = 4.0;
/// Tolerance for idle time, which is compared over the whole run, including init's own work before and after.
const IDLE_SLACK: f64 = 0.01;

/// Samples by place.
pub type Samples = BTreeMap<&'static str, u64>;

/// Runs the trigger `nmi` and prints its table.
pub fn run(parts: &Parts, kernel: &Kernel, output: &Path, counted: &BTreeMap<String, Counted>) -> Result<Vec<String>> {
    let counted = counted.get("e").context("mix e was not counted")?;
    let whole = counted.values().sum::<u64>() as f64;
    let hz = hz_of(whole);
    let folder = profile_of("nmi", "user", hz, 1, parts, kernel, output)?;
    let (samples, z) = (samples(parts, &folder)?, z(PLACES.len() + IDLE_CPUS));
    let truth = |place: &str| Ok(counted.get(place).copied().unwrap_or(0) as f64 / whole);
    let mut wrong = shares(TITLE, truth, &samples, z)?;
    wrong.extend(idle(&folder, z)?);
    Ok(wrong)
}

/// Prints the table of the places' shares, and returns the rows that do not hold. `truth` gives the counted share.
pub fn shares(title: &str, truth: impl Fn(&str) -> Result<f64>, samples: &Samples, z: f64) -> Result<Vec<String>> {
    println!("\n{title}\n  true %  measured %    bound  verdict    what");
    let (all, mut wrong) = (samples.values().sum::<u64>(), Vec::new());
    for place in PLACES {
        let truth = truth(place)?;
        let share = samples.get(place).copied().unwrap_or(0) as f64 / all as f64;
        wrong.extend(Row { what: place, truth, share, bound: bound(truth, all, z) }.judge(title));
    }
    Ok(wrong)
}

/// The rate at which intervals, which vary by half of their length, vary by several rounds of the program. Taking a
/// sample takes longer at some places than at others; with such intervals this does not influence the place of the next
/// sample. In: the length of a round in instructions.
pub fn hz_of(round: f64) -> u64 {
    (1e9 / (2.0 * ROUNDS_OF_SPREAD * round)) as u64
}

/// A profile of the program.
pub fn profile_of(
    trigger: &str,
    include: &str,
    hz: u64,
    seed: u64,
    parts: &Parts,
    kernel: &Kernel,
    output: &Path,
) -> Result<PathBuf> {
    let folder = output.join(format!("entries-{trigger}-{seed}"));
    let (hz, seed, to) = (hz.to_string(), seed.to_string(), folder.display().to_string());
    let line = ["truth", "--repeatable", "--hz", &hz, "--trigger", trigger, "--seed", &seed, "--include", include];
    let more = ["--workload", "truth-entries", "--ring-words", "4194304", "--drain-after", "-o", &to];
    profile::of_kernel(&profile::Line::try_parse_from([&line[..], &more].concat())?.profile, parts, kernel)?;
    Ok(folder)
}

/// A share that is judged.
pub struct Row<'a> {
    pub what: &'a str,
    pub truth: f64,
    pub share: f64,
    pub bound: f64,
}

impl Row<'_> {
    /// Prints the row. Returns a message if the share is outside of its bound.
    pub fn judge(&self, table: &str) -> Option<String> {
        let Row { what, truth, share, bound } = self;
        let holds = (share - truth).abs() <= *bound;
        let verdict = if holds { "right" } else { "WRONG" };
        let (truth, share, bound) = (truth * 100.0, share * 100.0, bound * 100.0);
        let row = format!("{truth:8.3} {share:11.3} {bound:8.3}  {verdict:<9}  {what}");
        println!("{row}");
        (!holds).then(|| format!("{table}: {row}"))
    }
}

/// How far a share of `all` samples may be off. If a share is near 0 or 1 the tail is not that of a normal
/// distribution. Then Bernstein's inequality is used, which gives the same probability for the same z.
pub fn bound(truth: f64, all: u64, z: f64) -> f64 {
    let variance = truth * (1.0 - truth) * all as f64;
    let seldom = if variance < 25.0 { z * z / 3.0 } else { 0.0 };
    (z * variance.max(0.0).sqrt() + seldom) / all as f64
}

/// The program's samples by the innermost entry. Samples of other places, mainly of the timer, are ignored.
pub fn samples(parts: &Parts, folder: &Path) -> Result<Samples> {
    let mut fold = Command::new(&parts.fold);
    fold.args(["folded", "--quiet", "--user", "--task", TASK]);
    let folded = run::output(fold.arg(folder.join("profiling.txt")).arg(folder.join("syms.txt")))?;
    let mut samples = Samples::new();
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').context("a folded line ends with its count")?;
        let entries = ["[syscall", "[exception ", "[interrupt "];
        let entry = stack.split(';').rfind(|frame| entries.iter().any(|entry| frame.starts_with(entry)));
        let name = match entry {
            Some("[interrupt 240]") => "[interrupt-240]",
            Some("[exception 14]") => "[exception-14]",
            Some(frame) if frame.starts_with("[syscall") => "[syscall]",
            None if stack != "[running]" => "user",
            _ => continue,
        };
        *samples.entry(name).or_default() += count.parse::<u64>()?;
    }
    Ok(samples)
}

/// Compares each CPU's share of idle ticks with its idle time by the kernel's clock.
fn idle(folder: &Path, z: f64) -> Result<Vec<String>> {
    let log = std::fs::read_to_string(folder.join("serial.log"))?;
    let mut looks: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for line in log.lines().filter_map(|line| line.strip_prefix("idle: cpu ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let [cpu, idle, "of", now] = words[..] else { continue };
        looks.entry(cpu.parse()?).or_default().push((idle.parse()?, now.parse()?));
    }
    let text = std::fs::read_to_string(folder.join("profiling.txt"))?;
    let mut judged = Vec::new();
    for (cpu, looks) in looks {
        let (Some(first), Some(last)) = (looks.first(), looks.last()) else { continue };
        let truth = (last.0 - first.0) / (last.1 - first.1);
        let account = text.lines().rfind(|line| line.starts_with(&format!("# account cpu={cpu} ")));
        let account = account.with_context(|| format!("no account of CPU {cpu}"))?;
        let value = |key: &str| {
            account.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse::<f64>().ok())
        };
        let (ticks, idle) = (value("taken").context("taken")?, value("idle").context("idle")?);
        let bound = z * (truth * (1.0 - truth) / ticks).max(0.0).sqrt() + IDLE_SLACK;
        let what = format!("idle, CPU {cpu}");
        judged.push(Row { what: &what, truth, share: idle / ticks, bound }.judge(TITLE));
    }
    if judged.len() < IDLE_CPUS {
        return Ok(vec![format!("{TITLE}: the kernel did not say of each CPU how long it was idle")]);
    }
    Ok(judged.into_iter().flatten().collect())
}
