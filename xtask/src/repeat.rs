//! `cargo xtask repeat`: shows that repeatable runs give the same bytes, and that a difference would be detected.
//!
//! In: a seed, a workload, the number of runs. Out: how many runs gave the same bytes as the first one. One more run
//! with another seed must give other bytes. A kernel that is built from a copy of the source in another folder must be
//! the same file. The command fails if one of these is not so. The host can be kept busy during the runs.
//!
//! With `--arch` the machine is the bare kernel on another processor, which has no workload to choose.
//!
//! With `--probes`, all runs but the first are watched by `kprof-qemu probe` at more than a hundred functions, and
//! nothing that leaves the machine may differ: the serial log, every file of the shared folder, the profile.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser};

use crate::profile::Arch;
use crate::qemu::{self, Version};
use crate::toolchain::{self, Choice};
use crate::tools::Install;
use crate::{build, profile, run};

/// Runs the same profile several times and compares every byte; also with another seed, and a kernel built elsewhere.
#[derive(Args)]
#[command(after_help = "Examples: twenty runs while every core of the host is busy; twenty with a hundred probes from
outside, and one without
  cargo xtask repeat --runs 20 --busy
  cargo xtask repeat --runs 20 --probes
  cargo xtask repeat --runs 20 --arch riscv64")]
pub struct Arguments {
    /// How many runs must be the same
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub runs: u32,
    /// The seed of these runs
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// What the machine does
    #[arg(long, default_value = "default")]
    pub workload: String,
    /// Keeps every core of the host busy during the runs
    #[arg(long)]
    pub busy: bool,
    /// All runs but the first with more than a hundred probes from outside
    #[arg(long)]
    pub probes: bool,
    /// The bare kernel on another processor
    #[arg(long, value_enum, default_value_t = Arch::X86, conflicts_with_all = ["probes", "workload"])]
    pub arch: Arch,
    /// The output folder
    #[arg(short, long, default_value = "target/repeat")]
    pub output: PathBuf,
}

/// The files that must be the same.
const FILES: [&str; 6] = ["kernel", "profiling.txt", "profile.folded", "profile.html", "flamegraph.svg", "serial.log"];
/// What is watched: which functions, how long, from where.
const PROBES: [&str; 2] = ["test_kernel::fs::*:latency:by caller", "test_kernel::syscall::*:latency:by task"];
/// So many functions at least.
const MIN_PROBES: usize = 100;

/// Runs the verb.
///
/// # Errors
/// If a byte differs that must be the same, or if no byte differs with another seed.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let _busy = arguments.busy.then(Busy::begin);
    let tool = arguments.probes.then(|| build::tool("kprof-qemu")).transpose()?;
    let first = one(arguments, arguments.seed, "run-1", None)?;
    let processor = arguments.arch.bare().map_or("x86_64", |processor| processor.name);
    let qemu = Version::of(&qemu::program(processor, Install(false))?)?.text;
    let runs = if arguments.probes { arguments.runs + 1 } else { arguments.runs };
    for number in 2..=runs {
        let next = one(arguments, arguments.seed, &format!("run-{number}"), tool.as_deref())?;
        if let Some(what) = difference(arguments.arch, &first, &next)? {
            bail!("run {number} of {runs} is not the same as run 1, on QEMU {qemu}: {what}");
        }
        std::fs::remove_dir_all(&next)?;
    }
    let with = if arguments.probes { ", run 1 without probes, the others with them" } else { "" };
    println!(
        "{runs} runs with seed {}{with}, on QEMU {qemu}: the same to the byte ({})",
        arguments.seed,
        files(arguments.arch).join(", ")
    );
    let other_seed = arguments.seed.wrapping_add(1);
    let other = one(arguments, other_seed, "other-seed", tool.as_deref())?;
    match difference(arguments.arch, &first, &other)? {
        Some(what) => println!("seed {other_seed}: {what}, as it must be"),
        None => bail!("another seed gives the same bytes: it is not in use, and this comparison shows nothing"),
    }
    if arguments.probes || arguments.arch != Arch::X86 {
        return Ok(ExitCode::SUCCESS);
    }
    build_elsewhere(&arguments.output.join("elsewhere/in/a/folder/with/a/longer/name"), &first.join("kernel"))?;
    println!("built from a copy of the source elsewhere: the same kernel to the byte");
    Ok(ExitCode::SUCCESS)
}

/// One run; with the tool it is watched.
fn one(arguments: &Arguments, seed: u64, name: &str, tool: Option<&Path>) -> Result<PathBuf> {
    let folder = arguments.output.join(name);
    let (seed, output) = (seed.to_string(), folder.display().to_string());
    let machine = match arguments.arch.bare() {
        Some(processor) => vec!["--arch", processor.name, "--accel", "icount"],
        None => vec!["--repeatable", "--workload", &arguments.workload],
    };
    let line = [&["repeat", "--seed", &seed, "-o", &output], &machine[..]].concat();
    let mut profile = profile::Line::try_parse_from(line)?.profile;
    let Some(tool) = tool else {
        profile::run(&profile)?;
        return Ok(folder);
    };
    // The report is no part of the run.
    let report = arguments.output.join(format!("{name}.probes"));
    let words = [tool.display().to_string(), "probe".to_owned(), "-e".to_owned(), PROBES[0].to_owned()];
    let kernel =
        ["-e".to_owned(), PROBES[1].to_owned(), "--kernel".to_owned(), folder.join("kernel").display().to_string()];
    let to = ["-o".to_owned(), report.display().to_string(), "--".to_owned()];
    profile.runner = [&words[..], &kernel, &to].concat();
    profile::run(&profile)?;
    let probes = probes(&report)?;
    ensure!(probes >= MIN_PROBES, "only {probes} functions were watched");
    println!("{probes} functions were watched");
    Ok(folder)
}

/// How many functions a report is of.
fn probes(report: &Path) -> Result<usize> {
    let text = std::fs::read_to_string(report).with_context(|| report.display().to_string())?;
    let words = || text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let called = words().filter(|line| line.get(1) == Some(&"calls")).count();
    ensure!(called > 0, "no watched function was called: then this shows nothing");
    let not = words().find(|line| line.get(1..3) == Some(&["functions", "were"][..]));
    Ok(called + not.and_then(|line| line[0].parse().ok()).unwrap_or(0))
}

/// The files of a run; the bare kernel's profile is in its serial log.
fn files(arch: Arch) -> Vec<&'static str> {
    FILES.into_iter().filter(|name| arch == Arch::X86 || *name != "profiling.txt").collect()
}

/// The first file that differs, and its first different byte.
fn difference(arch: Arch, one: &Path, other: &Path) -> Result<Option<String>> {
    for name in files(arch) {
        let read =
            |folder: &Path| std::fs::read(folder.join(name)).with_context(|| folder.join(name).display().to_string());
        let (one, other) = (read(one)?, read(other)?);
        if one != other {
            let byte = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
            return Ok(Some(format!("{name} differs from byte {byte} on")));
        }
    }
    Ok(None)
}

/// Builds the kernel from a copy of the source in `tree` and compares it with `kernel`.
fn build_elsewhere(tree: &Path, kernel: &Path) -> Result<()> {
    run::copy_source(&run::root(), tree)?;
    let tree = tree.canonicalize()?;
    let trigger = toolchain::find(toolchain::KERNEL, Choice::Auto, Install(false))?;
    let elsewhere = build::kernel_in(&tree, trigger, "profiling", &[])?;
    let same = std::fs::read(&elsewhere.elf)? == std::fs::read(kernel)?;
    if !same {
        bail!(
            "{} and {} are built from the same source and are not the same",
            elsewhere.elf.display(),
            kernel.display()
        );
    }
    std::fs::remove_dir_all(&tree)?;
    Ok(())
}

/// Threads that keep the host busy until this is dropped.
struct Busy {
    end: &'static AtomicBool,
}

impl Busy {
    fn begin() -> Self {
        let end: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            std::thread::spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    std::hint::black_box((0..10_000_u64).sum::<u64>());
                }
            });
        }
        Self { end }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}
