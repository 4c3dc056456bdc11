//! The stacks of `record` beside exact ones: the test kernel's default workload, under `kprof-qemu count --samples`.
//!
//! A sample of any CPU is taken every this many executed instructions: in work, system calls, page faults, interrupts,
//! kprof's own NMIs, and in the entry stubs. Its stack, found by frame pointers and across entries, is compared
//! frame by frame with that of the shadow stack, which follows every call. A frame that is not in its place in the
//! exact stack is wrong. A stack that ends as truncated, or lacks outer callers, is incomplete.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use clap::Parser as _;

use super::{Context, Outcome, Outside};
use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::profile;
use crate::stacks::{self, Stack};

/// Executed instructions between two samples, on average: a prime, so that no loop is in step with it.
const EVERY: &str = "60013";
/// Stacks of kernel code that are compared at least, those of them that begin within an interrupt, and how many of 100
/// must reach their root.
const MIN_STACKS: u64 = 2000;
const MIN_CROSSED: u64 = 200;
const MIN_COMPLETE: u64 = 90;
/// This many stacks may be impossible to compare, however few there are: a share of some hundred stacks says nothing.
const BY_CHANCE: u64 = 3;
/// The switch from one task's stack to another: the exact stack is the old one until it returns.
const SWITCH: &str = "test_kernel::task::thread::switch_stacks";

pub fn check(context: &mut Context, outside: &Outside, outcome: &mut Outcome) {
    let compared = context.parts().and_then(|parts| {
        let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
        compare(parts, outside, &kernel, "beside", "frames")
    });
    outcome.check("stacks across interrupts are those of the shadow stack", compared);
}

/// Compares the stacks of this test kernel, in a folder of this name.
///
/// # Errors
/// If it does not run to its end; if stacks are wrong or too many are incomplete.
pub fn compare(parts: &Parts, outside: &Outside, kernel: &Kernel, name: &str, unwind: &str) -> Result<()> {
    let folder = outside.file(name);
    let file = |name: &str| folder.join(name).display().to_string();
    let line = ["profile", "--repeatable", "--cpus", "2", "--hz", "2000", "--seed", "7", "-o", &file("")];
    let mut profile = profile::Line::try_parse_from(line)?.profile;
    let (elf, table, samples, visits) = (file("kernel"), file("counts.txt"), file("samples.txt"), file("exact.txt"));
    let count = ["count", "--kernel", &elf, "-o", &table, "--unwind", unwind, "--samples", &samples];
    let count = [&count[..], &["--every", EVERY, "--visits", &visits]].concat();
    let tool = outside.tool.display().to_string();
    profile.runner = [&[&tool[..]], &count[..], &["--"]].concat().into_iter().map(str::to_owned).collect();
    profile::of_kernel(&profile, parts, kernel)?;
    let mut pairs = Vec::new();
    for (cpu, exact) in stacks::exact(&folder)? {
        let sampled = stacks::sampled(&parts.fold, &folder, cpu)?;
        ensure!(sampled.len() == exact.len(), "CPU {cpu}: {} samples, and {} stacks", sampled.len(), exact.len());
        pairs.extend(sampled.into_iter().zip(exact));
    }
    let (all, crossed) = judge(pairs.into_iter())?;
    ensure!(all >= MIN_STACKS && crossed >= MIN_CROSSED, "too few stacks to show something");
    Ok(())
}

/// Compares samples with exact stacks: no frame may be wrong. Returns how many are of kernel code, and how many of
/// these are complete across an entry.
pub fn judge(pairs: impl Iterator<Item = (Stack, Stack)>) -> Result<(u64, u64)> {
    let (mut all, mut complete, mut crossed, mut switches, mut not_begun) = (0, 0, 0, 0_u64, 0);
    let (mut truncated, mut wrong) = (BTreeMap::<String, (u64, String)>::new(), BTreeMap::<String, u64>::new());
    for (sampled, exact) in pairs.filter(|(_, exact)| exact.address >> 63 != 0) {
        ensure!(sampled.address == exact.address, "{:x} and {:x}", sampled.address, exact.address);
        all += 1;
        let is_right = exact.frames.ends_with(&sampled.frames);
        let example = || format!("{:x} {} | {}", sampled.address, sampled.frames.join(";"), exact.frames.join(";"));
        if exact.frames.last().is_some_and(|frame| frame == SWITCH) {
            switches += 1;
        } else if !is_right && sampled.differs_where_interrupted(&exact) {
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
        "{all} stacks: {complete} are complete and exact, {crossed} of them across an entry; {switches} in the \
         switch of stacks; {not_begun} with a function interrupted before it began or after it returned; {} \
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
    let too_many = (switches + not_begun).saturating_sub(BY_CHANCE) * 1000 > all;
    ensure!(!too_many, "too many stacks cannot be compared");
    ensure!(wrong.is_empty(), "{} stacks have a wrong frame", wrong.values().sum::<u64>());
    ensure!(complete * 100 >= all * MIN_COMPLETE, "{complete} of {all} stacks are complete");
    Ok((all, crossed))
}
