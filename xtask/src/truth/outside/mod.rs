//! `cargo xtask truth --outside`: one run of the test kernel, sampled inside by kprof and counted outside exactly.
//!
//! In: the default workload (busybox), and the same with waits, under `-icount`, with random intervals and a seed; QEMU
//! runs under `kprof-qemu count`, which counts every instruction by vCPU and calling context, and writes the exact
//! stack at each NMI. Out: a table for each seed, and one of all: row, exact share, sampled share, bound, verdict; and
//! how many samples have the same stack as the exact one, frame by frame.
//!
//! The machine has two CPUs. CPU 0 is the sampler's: it runs no task and is not sampled. With more busy CPUs, a sample
//! would not stand for the same number of instructions at all times, because the CPUs share one clock. The exact counts
//! are those of CPU 1 from the first NMI until the kernel's control file is written to, which is `stop`. Not in the
//! shares are the NMI's handler, which cannot be sampled, and the idle task. How much that is, is printed. The idle
//! task has a row of its own, of time: what it executes, and how long the CPU was halted, in percent of the guest's
//! clock without the handler, beside its samples in percent of all samples. Tasks are told apart by the number that the
//! kernel's own switch is called with.
//!
//! The profile's own shares are of time, in which the handler runs too; so in the other rows each sample counts the
//! instructions that it stands for (see [`stacks::weights`]).

mod rows;
mod stacks;

use std::path::Path;

use anyhow::{Result, ensure};
use clap::Parser;

use super::basis::{HZ, z};
use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::profile;
use rows::{Shares, Table};

/// The first function of the NMI's handler.
const NMI: &str = "nmi_entry";
/// What `stop` executes on the CPU of the process that writes it; nothing writes to a control file before, from
/// `start` on.
const STOP: &str = "kprof::files::ControlFile::write";
/// The function that changes to another task, with the number of the CPU's task as its last argument, and the one that
/// gives a task a new number, when it starts another program.
const TASK: [&str; 2] = [SWITCH, "test_kernel::task::thread::rename_current"];
/// The function of the idle task.
const IDLE: &str = "test_kernel::task::scheduler::idle_forever";
/// The way back to user code. A task's first way there gives up the stack of what has started the task.
const TO_USER: &str = "trap_return";
/// The outermost function of a task's own stack.
const START: &str = "test_kernel::task::thread::thread_start";
/// The function that changes from one task's stack to another.
const SWITCH: &str = "test_kernel::task::thread::switch_stacks";
/// The CPU that is sampled, and the one that samples.
const CPU: &str = "1";
const SAMPLER_CPU: &str = "0";
/// At least this part of the samples must have the exact stack.
const SAME: f64 = 0.999;
/// Fewer samples than this show nothing.
const MIN_SAMPLES: u64 = 10_000;
/// The fault that is planted at the end to show that it is found: samples in functions with this name are dropped.
const PLANTED: &str = "sort";

/// Runs all seeds, and prints the tables. Returns the rows that do not hold.
///
/// # Errors
/// If a step fails.
pub fn run(parts: &Parts, kernel: &Kernel, output: &Path, seeds: u64, again: bool) -> Result<Vec<String>> {
    let tool = build::tool("kprof-qemu")?;
    let (mut tables, mut wrong) = (Vec::new(), Vec::new());
    for seed in 1..=seeds {
        let folder = output.join(format!("outside-{seed}"));
        if !again {
            one(parts, kernel, &folder, &tool, seed)?;
        }
        let title = format!("outside, seed {seed}");
        let samples = stacks::samples(parts, &folder)?;
        let (exact, visits) = (rows::exact(&folder, &stacks::tasks(&folder)?)?, stacks::visits(&folder)?);
        println!("\n{title}: {} instructions of CPU {CPU} outside of its NMI handler and idle task", exact.shares.all);
        exact.left_out.iter().for_each(|(what, instructions)| println!("{instructions:>14}  {what}"));
        let compared = stacks::compare(&samples, &visits, &stacks::weights(&visits, &exact))?;
        wrong.extend(compared.judge(&title));
        ensure!(compared.inside.len() as u64 > MIN_SAMPLES, "{title}: only {} samples", compared.inside.len());
        let (inside, exact) = (&compared.inside, exact.shares);
        let sampled = Shares::of_samples(inside.iter().map(|(stack, weight)| (stack, *weight)));
        let sampled = sampled.with_idle(compared.idle, compared.idle + inside.len() as u64);
        let profile = Shares::of_samples(inside.iter().map(|(stack, _)| (stack, 1)));
        let profile = profile.with_idle(compared.idle, compared.idle + inside.len() as u64);
        tables.push(Table { title, exact, sampled, profile });
    }
    if seeds > 1 {
        tables.push(Table::sum(&tables, format!("outside, {seeds} seeds together")));
    }
    let z = z(tables.iter().map(Table::count).sum());
    wrong.extend(tables.iter().flat_map(|table| table.judge(z)));
    let last = tables.last().expect("there is at least one seed");
    let planted = Table { sampled: last.sampled.without(PLANTED), ..last.clone() };
    let found: Vec<String> = planted.wrong(z).iter().map(|(kind, name)| format!("{kind} {name}")).collect();
    println!(
        "\nplanted: without the samples in functions with `{PLANTED}` in their name, wrong are: {}",
        found.join(", ")
    );
    if found.is_empty() {
        wrong.push("a planted fault is not found".to_owned());
    }
    Ok(wrong)
}

fn one(parts: &Parts, kernel: &Kernel, folder: &Path, tool: &Path, seed: u64) -> Result<()> {
    let (seed, hz, to) = (seed.to_string(), HZ.to_string(), folder.display().to_string());
    let line = ["truth", "--repeatable", "--cpus", "2", "--hz", &hz, "--seed", &seed, "--workload", "outside"];
    let more = ["--include", "user,idle", "--ring-words", "4194304", "--drain-after", "-o", &to];
    let mut profile = profile::Line::try_parse_from([&line[..], &more].concat())?.profile;
    let file = |name: &str| folder.join(name).display().to_string();
    let (table, exact, visits) = (file("counts.txt"), file("exact.folded"), file("visits.txt"));
    let kernel_file = file("kernel");
    let count = ["count", "--kernel", &kernel_file, "-o", &table, "--per-cpu", &exact, "--visits", &visits];
    let tasks = ["--task-switch", TASK[0], "--task-rename", TASK[1]];
    let words = [&count[..], &tasks, &["--visits-of", NMI, "--from", NMI, "--to", STOP, "--"]].concat();
    profile.runner = std::iter::once(tool.display().to_string()).chain(words.into_iter().map(str::to_owned)).collect();
    profile::of_kernel(&profile, parts, kernel)?;
    Ok(())
}
