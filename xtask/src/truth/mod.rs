//! `cargo xtask truth`: checks that percentages are right, with profiles of work whose distribution is known by
//! counting.
//!
//! In: the mix of `test-kernel/src/workload/truth.rs`, counted with the instruction clock in a run without the
//! profiler, then profiled with each trigger and with many seeds. Out: a table of function, true share, measured share,
//! bound, verdict. The command fails if a share is outside of its bound.
//!
//! The bound of a row is z * sqrt(p (1 - p) / n), with n the samples of the mix (about 28 000 over twenty seeds). z is
//! such that all rows of all seeds hold together with 99.9 % (Bonferroni; the tail of the normal distribution is not
//! above exp(-z²/2)).

mod basis;
mod biased;
mod clock;
mod entries;
mod events;
mod judge;
mod outside;
pub mod processors;
mod published;
mod rates;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Parser};

use basis::{Counted, HZ};

use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::profile::{self, Arch};
use crate::qemu::{Accel, Machine, Verdict};
use crate::toolchain::Choice;
use crate::tools::Install;

/// Compares profiles with work whose true distribution was counted.
#[derive(Args)]
#[command(after_help = "Example: a short look, one seed for each trigger
  cargo xtask truth --seeds 1")]
pub struct Arguments {
    /// Seeds 1 to this for the trigger nmi; up to five of them for published; the other triggers are run with one
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// Only: for each seed one run of the default workload, sampled inside, and every instruction counted outside
    #[arg(long)]
    pub outside: bool,
    /// With --outside: the kernel has no frame pointers, and samples itself by its unwind table
    #[arg(long, requires = "outside")]
    pub without_frame_pointers: bool,
    /// With --outside: judges the runs that are in the output folder already
    #[arg(long, requires = "outside")]
    pub again: bool,
    /// Only: the bare kernel's loops on another processor
    #[arg(long, value_enum, default_value_t = Arch::X86, conflicts_with = "outside")]
    pub arch: Arch,
    /// Only: events whose weights are known, counted, recorded and sampled
    #[arg(long, conflicts_with_all = ["outside", "arch"])]
    pub events: bool,
    /// The output folder
    #[arg(short, long, default_value = "target/truth")]
    pub output: PathBuf,
}

const TCG_HZ: u64 = 5_000;

/// One profile that is judged.
struct Case {
    title: String,
    trigger: &'static str,
    accel: &'static str,
    seed: u64,
    workload: &'static str,
    /// Which rows are checked.
    claims: fn(&str) -> bool,
}

/// Rows that are parts of another row: the part and its piece.
const PARTS: [(&str, &str); 6] = [
    ("short_leaf", "leaves"),
    ("long_leaf", "leaves"),
    ("shared_leaf", "shallow_caller"),
    ("shared_leaf", "deep_caller"),
    ("inlined_part", "host_of_inlined"),
    ("[interrupt]", "interrupts"),
];

/// Runs the verb.
///
/// # Errors
/// If a share is outside of its bound, or any step fails.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(processor) = arguments.arch.bare() {
        return all_hold(&processors::run(processor, arguments.seeds, &arguments.output)?);
    }
    let parts = Parts::prepare(Choice::Auto, Install(true))?;
    if arguments.without_frame_pointers {
        let (kernel, output) =
            (build::kernel_with_table(parts.toolchain, &parts.fold)?, arguments.output.join("table"));
        return all_hold(&outside::run(&parts, &kernel, &output, arguments.seeds, arguments.again)?);
    }
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    if arguments.outside {
        return all_hold(&outside::run(&parts, &kernel, &arguments.output, arguments.seeds, arguments.again)?);
    }
    if arguments.events {
        return all_hold(&events::run(&parts, &kernel, &arguments.output, arguments.seeds)?);
    }
    let counted = count(&parts, &kernel, &arguments.output, "")?;
    let everything: fn(&str) -> bool = |_| true;
    let mut cases: Vec<Case> = (1..=arguments.seeds)
        .map(|seed| Case {
            title: format!("nmi, instructions, seed {seed}"),
            trigger: "nmi",
            accel: "icount",
            seed,
            workload: "truth",
            claims: everything,
        })
        .collect();
    let one = |title: &str, trigger, accel, workload, claims| Case {
        title: title.into(),
        trigger,
        accel,
        seed: 1,
        workload,
        claims,
    };
    cases.push(one("nmi, instructions, two CPUs with a mix each", "nmi", "icount", "truth-two", everything));
    // Interrupts are off in the handler of an interrupt, so with these triggers its time appears at the instruction to
    // which it returns.
    cases.push(one("ipi, instructions", "ipi", "icount", "truth", |name| !name.starts_with('[')));
    cases.push(one("timer, instructions", "timer", "icount", "truth", |name| !name.starts_with('[')));
    // With a thread per CPU, samples are at the first instruction of a translated block, and time is not proportional
    // to instructions. So a function with a single block may get its caller's time or none, and code that QEMU emulates
    // slowly gets more. Only the shares of loops with many equal blocks are right.
    cases.push(one("nmi, a thread per CPU", "nmi", "tcg", "truth-loops", |name| name.starts_with("blocks_of_20")));

    let mut wrong = Vec::new();
    for case in &cases {
        let folder = profile_of(case, &parts, &kernel, &arguments.output)?;
        wrong.extend(judge::judge(case, &parts, &folder, &counted, cases.len())?);
        let (passed, said) = biased::aliasing(&parts, &folder)?;
        if !passed {
            wrong.push(format!("{}: kprof-fold info --strict said: {said}", case.title));
        }
    }
    wrong.extend(entries::run(&parts, &kernel, &arguments.output, &counted)?);
    wrong.extend(published::run(&parts, &kernel, &arguments.output, &counted, arguments.seeds)?);
    wrong.extend(biased::run(&parts, &kernel, &arguments.output)?);
    wrong.extend(clock::against_host(&parts, &kernel, &arguments.output)?);
    wrong.extend(rates::run(&parts, &kernel, &arguments.output, arguments.seeds > 1)?);
    all_hold(&wrong)
}

fn all_hold(wrong: &[String]) -> Result<ExitCode> {
    if !wrong.is_empty() {
        bail!("{} claims do not hold:\n{}", wrong.len(), wrong.join("\n"));
    }
    println!("all claims hold");
    Ok(ExitCode::SUCCESS)
}

/// Makes the kernel count the pieces of each mix, without taking samples.
fn count(parts: &Parts, kernel: &Kernel, output: &Path, more: &str) -> Result<BTreeMap<String, Counted>> {
    let share = output.join("counted");
    let log = log_of(parts, kernel, &share, &format!("scenario=truth-counted {more}"))?;
    let mut counted: BTreeMap<String, Counted> = BTreeMap::new();
    for line in log.lines().filter_map(|line| line.strip_prefix("truth: ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mix, name, instructions] = words[..] else { bail!("{}: {line}", share.display()) };
        counted.entry(mix.to_owned()).or_default().insert(name.to_owned(), instructions.parse()?);
    }
    Ok(counted)
}

/// Runs the kernel with `more` on its command line, and returns what it writes to the serial port.
fn log_of(parts: &Parts, kernel: &Kernel, share: &Path, more: &str) -> Result<String> {
    let serial = share.join("serial.log");
    let verdict = machine(parts, kernel, share, &serial, Accel::Icount, more)?.run(&parts.qemu, || ())?;
    let log = std::fs::read_to_string(&serial)?;
    if verdict != Verdict::Success {
        bail!("{more}: nothing could be counted ({verdict:?}):\n{log}");
    }
    Ok(log)
}

/// A machine of two CPUs whose shared folder is `folder`.
fn machine<'a>(
    parts: &Parts,
    kernel: &'a Kernel,
    folder: &'a Path,
    serial: &'a Path,
    accel: Accel,
    more: &str,
) -> Result<Machine<'a>> {
    std::fs::create_dir_all(folder)?;
    // The log is emptied, so that an earlier run's text is not taken for that of this run.
    std::fs::write(serial, "")?;
    let append = format!("accel={} {more}", accel.name());
    parts.machine(kernel, folder, serial, (accel, 2), append, Duration::from_secs(600))
}

/// The rate that a case asks for.
fn hz(case: &Case) -> u64 {
    match (case.accel, case.workload) {
        // With a thread per CPU the host cannot handle more, and ticks would be coalesced.
        ("tcg", _) => TCG_HZ,
        // The CPUs share one clock, so each executes half as many instructions between two ticks. At the full rate
        // these would vary by one round only, and the time that a sample takes would influence the place of the next.
        (_, "truth-two") => HZ / 2,
        _ => HZ,
    }
}

fn profile_of(case: &Case, parts: &Parts, kernel: &Kernel, output: &Path) -> Result<PathBuf> {
    let folder = output.join(case.title.replace([',', ' '], "-"));
    let hz = hz(case);
    let (seed, hz, to) = (case.seed.to_string(), hz.to_string(), folder.display().to_string());
    let mut line = vec!["truth", "--trigger", case.trigger, "--accel", case.accel, "--seed", &seed, "--hz", &hz];
    line.extend(["--workload", case.workload, "--ring-words", "4194304", "--drain-after", "-o", &to]);
    if case.accel == "icount" {
        line.push("--repeatable");
    } else {
        line.extend(["--cpus", "2"]);
    }
    profile::of_kernel(&profile::Line::try_parse_from(line)?.profile, parts, kernel)?;
    Ok(folder)
}
