//! The stacks of `record` beside exact ones: the test kernel's default workload, under `kprof-qemu count --samples`.
//!
//! A sample of any CPU is taken every so many executed instructions: in work, system calls, page faults, interrupts,
//! kprof's own NMIs, and in the entry stubs. Its stack, found by frame pointers and across entries, is compared
//! frame by frame with that of the shadow stack, which follows every call. A frame that is not in its place in the
//! exact stack is wrong. A stack that ends as truncated, or lacks outer callers, is incomplete.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;

use super::{Context, Outcome, Outside};
use crate::{build, profile, run};

/// Executed instructions between two samples, on average: a prime, so that no loop is in step with it.
const EVERY: &str = "60013";
/// Stacks of kernel code that are compared at least, those of them that begin within an interrupt, and how many of 100
/// must reach their root.
const MIN_STACKS: u64 = 2000;
const MIN_CROSSED: u64 = 200;
const MIN_COMPLETE: u64 = 90;
/// The switch from one task's stack to another: the exact stack is the old one until it returns.
const SWITCH: &str = "test_kernel::task::thread::switch_stacks";

pub fn check(context: &mut Context, outside: &Outside, outcome: &mut Outcome) {
    outcome.check("stacks across interrupts are those of the shadow stack", compare(context, outside));
}

fn compare(context: &mut Context, outside: &Outside) -> Result<()> {
    let parts = context.parts()?;
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    let folder = outside.file("beside");
    let file = |name: &str| folder.join(name).display().to_string();
    let line = ["profile", "--repeatable", "--cpus", "2", "--hz", "2000", "--seed", "7", "-o", &file("")];
    let mut profile = profile::Line::try_parse_from(line)?.profile;
    let (elf, table, samples, visits) = (file("kernel"), file("counts.txt"), file("samples.txt"), file("exact.txt"));
    let count = ["count", "--kernel", &elf, "-o", &table, "--samples", &samples, "--every", EVERY, "--visits", &visits];
    let tool = outside.tool.display().to_string();
    profile.runner = [&[&tool[..]], &count[..], &["--"]].concat().into_iter().map(str::to_owned).collect();
    profile::of_kernel(&profile, parts, &kernel)?;
    let mut pairs = Vec::new();
    for (cpu, exact) in exact(&folder)? {
        let sampled = sampled(&parts.fold, &folder, cpu)?;
        ensure!(sampled.len() == exact.len(), "CPU {cpu}: {} samples, and {} stacks", sampled.len(), exact.len());
        pairs.extend(sampled.into_iter().zip(exact));
    }
    let (all, crossed) = judge(pairs.into_iter())?;
    ensure!(all >= MIN_STACKS && crossed >= MIN_CROSSED, "too few stacks to show something");
    Ok(())
}

/// A stack from the outermost function, without markers and user code.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    pub address: u64,
    frames: Vec<String>,
    /// Markers of entries.
    entries: u64,
    truncated: Option<String>,
    /// How many of the frames are below one that was interrupted at its first instruction, itself included.
    begins: Option<usize>,
    /// How many of the frames are below each one that was interrupted, itself included.
    interrupted: Vec<usize>,
}

/// By number of the CPU, in order.
type Stacks = BTreeMap<u32, Vec<Stack>>;

/// The stacks of a profile, `samples.txt`, in order.
pub fn sampled(fold: &Path, folder: &Path, cpu: u32) -> Result<Vec<Stack>> {
    let symbols = std::fs::read_to_string(folder.join("syms.txt"))?;
    let starts: BTreeSet<u64> =
        symbols.lines().filter_map(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok()).collect();
    let mut script = Command::new(fold);
    script.args(["script", "--user", "--no-inline", "--quiet", "--cpu", &cpu.to_string()]);
    let text = run::output(script.arg(folder.join("samples.txt")).arg(folder.join("kernel")))?;
    let mut stacks = Vec::new();
    for sample in text.split("\n\n").filter(|sample| !sample.trim().is_empty()) {
        let mut stack = Stack::default();
        let (mut is_interrupted, mut above) = (false, None);
        for line in sample.lines().filter_map(|line| line.strip_prefix('\t')) {
            let (at, rest) = line.split_once(' ').with_context(|| format!("{line}: no frame"))?;
            let at = u64::from_str_radix(at, 16)?;
            stack.address = if stack.address == 0 { at } else { stack.address };
            let Some(name) = rest.strip_suffix(" ([kernel])") else { continue };
            match at & 0xf00 {
                0x400 if at >> 12 == u64::MAX >> 12 => stack.truncated = Some(format!("{}", at & 0xff)),
                _ if at >> 12 == u64::MAX >> 12 => (stack.entries, is_interrupted) = (stack.entries + 1, true),
                _ => {
                    if std::mem::take(&mut is_interrupted) {
                        stack.interrupted.push(stack.frames.len());
                        above = if starts.contains(&at) { Some(stack.frames.len()) } else { above };
                    }
                    stack.frames.insert(0, name[1..name.len() - 1].to_owned());
                }
            }
        }
        stack.begins = above.map(|above| stack.frames.len() - above);
        stack.interrupted.iter_mut().for_each(|above| *above = stack.frames.len() - *above);
        stacks.push(stack);
    }
    Ok(stacks)
}

fn exact(folder: &Path) -> Result<Stacks> {
    let mut stacks = Stacks::new();
    for line in std::fs::read_to_string(folder.join("exact.txt"))?.lines() {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let [cpu, _, address, _, stack] = words[..] else { anyhow::bail!("exact.txt: {line}") };
        stacks.entry(cpu.parse()?).or_default().push(Stack::exact(address, stack)?);
    }
    Ok(stacks)
}

impl Stack {
    /// An exact stack, as text.
    pub fn exact(address: &str, stack: &str) -> Result<Self> {
        let frames = stack.split(';').filter(|frame| *frame != "[user]").map(str::to_owned).collect();
        Ok(Self { address: u64::from_str_radix(address, 16)?, frames, ..Self::default() })
    }
}

/// Compares samples with exact stacks: no frame may be wrong. Returns how many are of kernel code, and how many of
/// these are complete across an entry.
pub fn judge(pairs: impl Iterator<Item = (Stack, Stack)>) -> Result<(u64, u64)> {
    let (mut all, mut complete, mut crossed, mut switches, mut not_begun) = (0, 0, 0, 0, 0);
    let (mut truncated, mut wrong) = (BTreeMap::<String, (u64, String)>::new(), BTreeMap::<String, u64>::new());
    for (sampled, exact) in pairs.filter(|(_, exact)| exact.address >> 63 != 0) {
        ensure!(sampled.address == exact.address, "{:x} and {:x}", sampled.address, exact.address);
        all += 1;
        let is_right = exact.frames.ends_with(&sampled.frames);
        let example = || format!("{:x} {} | {}", sampled.address, sampled.frames.join(";"), exact.frames.join(";"));
        // The exact stack has the caller alone, or what the function was jumped to from.
        let has_not_begun = sampled.begins.is_some_and(|below| {
            let (below, above) = sampled.frames.split_at(below);
            let exact = exact.frames.strip_suffix(above);
            let callers = &below[..below.len() - 1];
            exact.is_some_and(|exact| exact == callers || exact.split_last().is_some_and(|(_, it)| it == callers))
        });
        // The exact stack still has a function that had returned when its caller was interrupted.
        let has_returned = sampled.interrupted.iter().any(|below| {
            let (below, above) = sampled.frames.split_at(*below);
            let exact = exact.frames.strip_suffix(above);
            exact.and_then(|exact| exact.split_last()).is_some_and(|(_, exact)| exact == below)
        });
        if exact.frames.last().is_some_and(|frame| frame == SWITCH) {
            switches += 1;
        } else if (has_not_begun || has_returned) && !is_right {
            not_begun += 1;
        } else if !is_right {
            *wrong.entry(example()).or_default() += 1;
        } else if let Some(reason) = &sampled.truncated {
            truncated.entry(reason.clone()).or_insert_with(|| (0, example())).0 += 1;
        } else if sampled.frames.len() < exact.frames.len() {
            truncated.entry("without a marker".to_owned()).or_insert_with(|| (0, example())).0 += 1;
        } else {
            complete += 1;
            crossed += u64::from(sampled.entries > 0);
        }
    }
    eprintln!(
        "{all} stacks: {complete} are complete and exact, {crossed} of them across an entry; {switches} in \
         the switch of stacks; {not_begun} with a function interrupted before it began or after it returned; {} \
         truncated, {} wrong",
        truncated.values().map(|(count, _)| count).sum::<u64>(),
        wrong.values().sum::<u64>()
    );
    for (reason, (count, example)) in &truncated {
        eprintln!("{count} are truncated for reason {reason}: {example}");
    }
    for (example, count) in wrong.iter().take(10) {
        eprintln!("wrong {count}: {example}");
    }
    ensure!((switches + not_begun) * 1000 <= all, "too many stacks cannot be compared");
    ensure!(wrong.is_empty(), "{} stacks have a wrong frame", wrong.values().sum::<u64>());
    ensure!(complete * 100 >= all * MIN_COMPLETE, "{complete} of {all} stacks are complete");
    Ok((all, crossed))
}
