//! `cargo xtask repeat`: shows that repeatable runs give the same bytes, and that a difference would be detected.
//!
//! In: a seed, a workload, the number of runs. Out: how many runs gave the same bytes as the first one. One more run
//! with another seed must give other bytes. A kernel that is built from a copy of the source in another folder must be
//! the same file. The command fails if one of these is not so. The host can be kept busy during the runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use clap::{Args, Parser};

use crate::toolchain::{self, Choice};
use crate::tools::Install;
use crate::{build, profile, run};

/// Runs the same profile several times and compares every byte; also with another seed, and a kernel built elsewhere.
#[derive(Args)]
#[command(after_help = "Example: twenty runs while every core of the host is busy
  cargo xtask repeat --runs 20 --busy")]
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
    /// The output folder
    #[arg(short, long, default_value = "target/repeat")]
    pub output: PathBuf,
}

/// The files that must be the same.
const FILES: [&str; 5] = ["kernel", "profiling.txt", "profile.folded", "profile.html", "flamegraph.svg"];

/// Runs the verb.
///
/// # Errors
/// If a byte differs that must be the same, or if no byte differs with another seed.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let _busy = arguments.busy.then(Busy::begin);
    let first = one(arguments, arguments.seed, "run-1")?;
    for number in 2..=arguments.runs {
        let next = one(arguments, arguments.seed, &format!("run-{number}"))?;
        if let Some(what) = difference(&first, &next)? {
            bail!("run {number} of {} is not the same as run 1: {what}", arguments.runs);
        }
        std::fs::remove_dir_all(&next)?;
    }
    println!("{} runs with seed {}: the same to the byte ({})", arguments.runs, arguments.seed, FILES.join(", "));
    let other_seed = arguments.seed.wrapping_add(1);
    let other = one(arguments, other_seed, "other-seed")?;
    match difference(&first, &other)? {
        Some(what) => println!("seed {other_seed}: {what}, as it must be"),
        None => bail!("another seed gives the same bytes: it is not in use, and this comparison shows nothing"),
    }
    build_elsewhere(&arguments.output.join("elsewhere/in/a/folder/with/a/longer/name"), &first.join("kernel"))?;
    println!("built from a copy of the source elsewhere: the same kernel to the byte");
    Ok(ExitCode::SUCCESS)
}

fn one(arguments: &Arguments, seed: u64, name: &str) -> Result<PathBuf> {
    let folder = arguments.output.join(name);
    let (seed, output) = (seed.to_string(), folder.display().to_string());
    let line = ["repeat", "--repeatable", "--seed", &seed, "--workload", &arguments.workload, "-o", &output];
    profile::run(&profile::Line::try_parse_from(line)?.profile)?;
    Ok(folder)
}

/// The first file that differs, and its first different byte.
fn difference(one: &Path, other: &Path) -> Result<Option<String>> {
    for name in FILES {
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
