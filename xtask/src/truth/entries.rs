//! System calls, page faults and idle time against a count.
//!
//! In: `test-kernel/programs/src/bin/truth-entries.rs`, which counts the parts of its round by the instruction clock where
//! nobody samples, then is sampled; idle time by the kernel's own clock (`/kernel/idle`). Ways `nmi` and `published`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Parser;

use super::{Counted, HZ, count, z};
use crate::build::Kernel;
use crate::parts::Parts;
use crate::{profile, run};

const CONTEXT: &str = "truth-entries";
/// Rows of both tables.
const ROWS: usize = 12;
/// Times that a round of the program enters the kernel, by row.
const ENTRIES: [(&str, f64); 3] = [("user", 5.0), ("[syscall]", 4.0), ("[exception-14]", 1.0)];
/// With `published` an entry counts from where it is published to where the next place is: the stub's instructions, and
/// those of publishing, stand at what was there before. At most so many for each entry and exit.
const PUBLISHING: f64 = 320.0;
/// Idle time is compared over the whole run, init's own work before and after included.
const IDLE_SLACK: f64 = 0.01;

/// Runs both ways and prints their tables.
pub fn run(parts: &Parts, kernel: &Kernel, output: &Path, counted: &BTreeMap<String, Counted>) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for way in ["nmi", "published"] {
        let folder = output.join(format!("entries-{way}"));
        let (hz, to) = (HZ.to_string(), folder.display().to_string());
        let line =
            ["truth", "--repeatable", "--hz", &hz, "--way", way, "--workload", "truth-entries", "--keep", "user"];
        let line = [&line[..], &["--ring-words", "4194304", "--drain-after", "-o", &to]].concat();
        profile::of_kernel(&profile::Line::try_parse_from(line)?.profile, parts, kernel)?;
        // Publishing takes instructions of its own, so that kernel is counted by itself.
        let published = (way == "published").then(|| count(parts, kernel, output, "way=published")).transpose()?;
        let counted = published.as_ref().unwrap_or(counted).get("e").context("mix e was not counted")?;
        println!("\n{way}, entries\n  true %  measured %    bound  verdict    what");
        wrong.extend(shares(way, parts, &folder, counted)?);
        wrong.extend(idle(way, &folder)?);
    }
    Ok(wrong)
}

fn row(way: &str, name: &str, (truth, share, bound): (f64, f64, f64)) -> Option<String> {
    let holds = (share - truth).abs() <= bound;
    let verdict = if holds { "right" } else { "WRONG" };
    let row = format!("{:8.3} {:11.3} {:8.3}  {verdict:<9}  {name}", truth * 100.0, share * 100.0, bound * 100.0);
    println!("{row}");
    (!holds).then(|| format!("{way}, entries: {row}"))
}

fn shares(way: &str, parts: &Parts, folder: &Path, counted: &Counted) -> Result<Vec<String>> {
    let mut fold = Command::new(&parts.fold);
    fold.args(["folded", "--quiet", "--user", "--context", CONTEXT]);
    let folded = run::output(fold.arg(folder.join("profiling.txt")).arg(folder.join("syms.txt")))?;
    let mut samples: BTreeMap<&str, u64> = BTreeMap::new();
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').context("a folded line ends with its count")?;
        let name = match stack {
            // The timer's, a few.
            stack if stack.contains("[interrupt ") => continue,
            stack if stack.contains("[exception 14]") => "[exception-14]",
            stack if stack.contains("[syscall") => "[syscall]",
            _ => "user",
        };
        *samples.entry(name).or_default() += count.parse::<u64>()?;
    }
    let (all, whole) = (samples.values().sum::<u64>() as f64, counted.values().sum::<u64>() as f64);
    let judged = ENTRIES.iter().map(|(name, entries)| {
        let truth = counted.get(*name).copied().unwrap_or(0) as f64 / whole;
        let slack = if way == "published" { PUBLISHING * entries / whole } else { 0.0 };
        let bound = z(ROWS) * (truth * (1.0 - truth) / all).sqrt() + slack;
        row(way, name, (truth, samples.get(name).copied().unwrap_or(0) as f64 / all, bound))
    });
    Ok(judged.flatten().collect())
}

/// Idle ticks of each CPU's ticks, against its idle time by the kernel's clock.
fn idle(way: &str, folder: &Path) -> Result<Vec<String>> {
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
        let bound = z(ROWS) * (truth * (1.0 - truth) / ticks).max(0.0).sqrt() + IDLE_SLACK;
        judged.push(row(way, &format!("idle, CPU {cpu}"), (truth, idle / ticks, bound)));
    }
    if judged.is_empty() {
        return Ok(vec![format!("{way}, entries: the kernel did not say how long it was idle")]);
    }
    Ok(judged.into_iter().flatten().collect())
}
