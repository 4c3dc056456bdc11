//! `cargo xtask storm`: runs the default mix and broken frame chains with as many NMIs as the machine can send.
//!
//! Prints what happened. It fails if a number is below its minimum, if a result is wrong, if the account does not
//! balance, or if the kernel did not survive. Without one bounds check of the unwinder the run must fail, which is
//! checked too. With `--arch` the bare kernel does the same on another processor (`processors`).

mod processors;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::profile::Arch;
use crate::qemu::{self, Accel, Verdict};
use crate::run;
use crate::toolchain::Choice;
use crate::tools::Install;

/// Runs the default mix of work, and broken stacks, at the highest NMI rate that the machine can reach.
#[derive(Args)]
#[command(after_help = "Example: ten seconds, a sixth of the numbers that a full storm must reach:
  cargo xtask storm --seconds 10")]
pub struct Arguments {
    /// Seconds of guest time; the minimum numbers are for 60 seconds, and proportional to the time
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(5..=3600))]
    seconds: u32,
    /// NMIs that are sent per second and CPU
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    hz: u32,
    /// Requires only this part of the minimum numbers, in percent, for slow or busy machines. If one is not reached,
    /// the storm begins anew and takes four times as long, at most twice
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100))]
    min_percent: u64,
    /// Puts probes on all functions that can have one, and removes them, again and again. Everything is slower then, so
    /// only a fifth of the minimum numbers is required
    #[arg(long, conflicts_with = "arch")]
    probes: bool,
    /// Skips the run without a bounds check
    #[arg(long)]
    no_broken: bool,
    /// The bare kernel on another processor, with counted instructions
    #[arg(long, value_enum, default_value_t = Arch::X86, conflicts_with = "min_percent")]
    arch: Arch,
    /// The output folder
    #[arg(short, long, default_value = "target/storm")]
    output: PathBuf,
    /// Installs nothing: says what is missing instead
    #[arg(long)]
    no_install: bool,
    /// The way to compile for the kernel's target
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    toolchain: Choice,
}

/// The minimum numbers for 60 seconds.
const NMIS: u64 = 300_000;
const WALKS_EACH: u64 = 10_000;
const PAGE_TABLE_CHANGES: u64 = 10_000;
/// With probes.
const PROBE_HITS: u64 = 1_000_000;
const PROBES_PUT: u64 = 10_000;
const SLOWER_WITH_PROBES: u64 = 5;
/// How much longer a storm on a busy machine takes that has not reached the numbers, and at most.
const LONGER: u32 = 4;
const MAX_LONGER: u32 = LONGER * LONGER;
/// Why a walk ends early, by the low byte of the marker.
const REASONS: [&str; 5] = ["depth", "range", "alignment", "loop", "not text"];
/// The kernel's flags (see .cargo/config.toml) and the cfg that removes a bounds check from the unwinder.
const BROKEN: [&str; 6] =
    ["-C", "relocation-model=static", "-C", "force-frame-pointers=yes", "--cfg", "kprof_break_bounds"];

/// Runs the verb.
///
/// # Errors
/// If a number is not reached, a result is wrong, or the kernel does not survive.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(processor) = arguments.arch.bare() {
        return processors::run(arguments, processor);
    }
    let parts = Parts::prepare(arguments.toolchain, Install(!arguments.no_install))?;
    std::fs::create_dir_all(&arguments.output)?;
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    let mut seconds = arguments.seconds;
    loop {
        let verdict = boot(arguments, &parts, &kernel, &arguments.output, seconds)?;
        let serial = arguments.output.join("serial.log");
        if verdict != Verdict::Success {
            bail!("the storm ended with {verdict:?}. The last lines:\n{}", qemu::last_lines(&serial, 30));
        }
        let too_few = judge(arguments, &parts, &kernel)?;
        if too_few.is_empty() {
            break;
        }
        let too_few = too_few.join(", ");
        if arguments.min_percent == 100 || seconds >= arguments.seconds * MAX_LONGER {
            bail!("too few: {too_few}");
        }
        seconds *= LONGER;
        println!("too few: {too_few}; the machine is busy, so once more, for {seconds} seconds");
    }
    if !arguments.no_broken {
        let broken = build::kernel(parts.toolchain, "profiling", &BROKEN)?;
        let folder = arguments.output.join("broken");
        let verdict = boot(arguments, &parts, &broken, &folder, 10)?;
        if verdict == Verdict::Success {
            bail!("with a bounds check taken out the storm must fail, and it did not: it proves nothing");
        }
        println!("with a bounds check taken out: {verdict:?}, as it must be");
    }
    Ok(ExitCode::SUCCESS)
}

fn boot(arguments: &Arguments, parts: &Parts, kernel: &Kernel, folder: &Path, seconds: u32) -> Result<Verdict> {
    let share = folder.join("root");
    if share.exists() {
        std::fs::remove_dir_all(&share)?;
    }
    std::fs::create_dir_all(&share)?;
    if arguments.probes {
        parts.write_probes(kernel, "*", &share.join("probes.txt"))?;
    }
    let serial = folder.join("serial.log");
    let append = format!("accel=tcg hz={} seconds={seconds} workload=storm ring-words=131072", arguments.hz);
    let limit = Duration::from_secs(300 + 20 * u64::from(seconds));
    let machine = parts.machine(kernel, &share, &serial, (Accel::Tcg, 4), append, limit)?;
    machine.run(&parts.qemu, || ())
}

/// Prints the numbers and compares them with the minimum numbers. Returns the names of those that are not reached.
fn judge(arguments: &Arguments, parts: &Parts, kernel: &Kernel) -> Result<Vec<String>> {
    let share = arguments.output.join("root");
    let profile = share.join("profiling.txt");
    let text = std::fs::read_to_string(&profile).with_context(|| profile.display().to_string())?;
    let mut reasons: BTreeMap<u64, u64> = BTreeMap::new();
    let mut counters: BTreeMap<String, u64> = BTreeMap::new();
    for line in text.lines() {
        if let Some(account) = line.strip_prefix("# account ") {
            let pairs = account.split(' ').filter_map(|pair| pair.split_once('='));
            for (key, value) in pairs.filter_map(|(key, value)| Some((key, value.parse::<u64>().ok()?))) {
                *counters.entry(key.to_owned()).or_default() += value;
            }
        } else if !line.starts_with('#') {
            let truncated =
                line.split(' ').find_map(|word| u64::from_str_radix(word.strip_prefix("fffffffffffff4")?, 16).ok());
            if let Some(reason) = truncated {
                *reasons.entry(reason).or_default() += 1;
            }
        }
    }
    let symbols = arguments.output.join("syms.txt");
    std::fs::write(&symbols, &kernel.symbols)?;
    run::output(Command::new(&parts.fold).args(["report", "--strict"]).arg(&profile).arg(&symbols))
        .context("the account of the storm")?;
    let wrong = std::fs::read_to_string(share.join("wrong.txt")).unwrap_or_default();

    let slower = if arguments.probes { SLOWER_WITH_PROBES } else { 1 };
    let share_of_a_minute =
        |number: u64| (number * u64::from(arguments.seconds) * arguments.min_percent / slower / 6000).max(1);
    let count = |key: &str| counters.get(key).copied().unwrap_or(0);
    let mut too_few = Vec::new();
    let mut row = |name: &str, value: u64, least: u64| {
        println!("{name:32} {value:10}  (at least {least})");
        if value < least {
            too_few.push(name.to_owned());
        }
    };
    row("NMIs taken", count("taken"), share_of_a_minute(NMIS));
    for (index, name) in REASONS.iter().enumerate() {
        let value = reasons.get(&(index as u64 + 1)).copied().unwrap_or(0);
        row(&format!("walks ended by {name}"), value, share_of_a_minute(WALKS_EACH));
    }
    row("page faults served", count("page-faults"), share_of_a_minute(PAGE_TABLE_CHANGES));
    if arguments.probes {
        let hits = run::output(Command::new(&parts.fold).arg("info").arg(&profile))?;
        let hits = hits.lines().filter_map(|line| line.trim().strip_prefix("point probe.")?.split(' ').nth(1));
        row("hits of probes", hits.filter_map(|count| count.parse::<u64>().ok()).sum(), share_of_a_minute(PROBE_HITS));
        let put =
            text.lines().filter(|line| line.starts_with("# setting ") && line.contains(" value=probe%20")).count();
        row("probes put", put as u64, share_of_a_minute(PROBES_PUT));
        let rounds = std::fs::read_to_string(share.join("probed.txt")).unwrap_or_default().lines().count();
        println!("{:32} {rounds:10}", "rounds of all probes");
    }
    println!("{:32} {:10}", "wrong results", wrong.lines().count());
    println!("{:32} {:10}", "samples lost, all counted", count("lost-full") + count("lost-nested"));
    println!("the account balances");
    if !wrong.is_empty() {
        bail!("wrong results:\n{wrong}");
    }
    Ok(too_few)
}
