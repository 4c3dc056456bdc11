//! `cargo xtask bench outside`: what `kprof-qemu` costs the machine that it looks at.
//!
//! In: nothing. Out: a line per goal. `count` and `record` run the test kernel's default workload on four vCPUs under
//! `-icount`, each between two runs of QEMU alone; the processor time of QEMU and of the tool is compared, and the
//! medians are judged. `attach` samples the bare kernel on one vCPU. Its speed is measured twice: the tool says for how
//! long the machine was stopped, and the kernel's whole run is timed with and without it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use super::goals::Goals;
use super::measure::median;
use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::qemu::{self, Accel, Verdict};
use crate::run;
use crate::test::outside::Outside;
use crate::test::outside::attached::{Machine, ends_with};
use crate::toolchain::{self, Choice, KERNEL};
use crate::tools::Install;

/// How many times the processor time of QEMU alone it may take to count by calling context, to count by function alone,
/// and to sample at 1 kHz.
const TIMES_BY_CONTEXT: f64 = 2.6;
const TIMES_FLAT: f64 = 1.3;
const TIMES_SAMPLED: f64 = 1.1;
/// Samples a second by `attach`, and the share of its speed that the machine keeps meanwhile.
const ATTACH_HZ: f64 = 500.0;
const ATTACH_SPEED: f64 = 0.5;
const LIMIT: Duration = Duration::from_secs(600);

/// The slowdown by `kprof-qemu`, and the rate of `attach`, against their goals.
#[derive(Args)]
pub struct Arguments {
    /// Turns of each measurement
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    turns: u32,
    /// Only goals whose group has this in its name: plugin, attach
    #[arg(long, default_value = "")]
    filter: String,
    /// Installs nothing: says what is missing instead
    #[arg(long)]
    no_install: bool,
}

/// The programs, and the folder of all files.
struct Bench {
    parts: Parts,
    tool: PathBuf,
    folder: PathBuf,
}

/// Runs the verb.
///
/// # Errors
/// If something cannot be built, installed or run.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let parts = Parts::prepare(Choice::Auto, Install(!arguments.no_install))?;
    let folder = run::root().join("target/bench-outside");
    std::fs::create_dir_all(&folder)?;
    let bench = Bench { parts, tool: build::host("kprof-qemu", "")?.join("kprof-qemu"), folder };
    let mut goals = Goals::default();
    if "plugin".contains(&arguments.filter) {
        bench.plugin(&mut goals, arguments.turns)?;
    }
    if "attach".contains(&arguments.filter) {
        bench.attach(&mut goals, arguments.turns)?;
    }
    Ok(goals.end())
}

impl Bench {
    fn plugin(&self, goals: &mut Goals, turns: u32) -> Result<()> {
        let kernel = build::kernel(self.parts.toolchain, "profiling", &[])?;
        let file = |name: &str| self.folder.join(name).display().to_string();
        let elf = kernel.elf.display().to_string();
        let ways: [(&str, f64, &[&str]); 3] = [
            ("counts by calling context", TIMES_BY_CONTEXT, &["count", "--kernel", &elf, "-o", &file("calls.txt")]),
            ("counts by function", TIMES_FLAT, &["count", "--flat", "--kernel", &elf, "-o", &file("flat.txt")]),
            ("samples at 1 kHz", TIMES_SAMPLED, &["record", "--hz", "1000", "-o", &file("samples.txt")]),
        ];
        for (what, limit, words) in ways {
            let mut times = Vec::new();
            for _ in 0..turns {
                let before = self.cpu_seconds(&kernel, &[])?;
                let with = self.cpu_seconds(&kernel, words)?;
                let after = self.cpu_seconds(&kernel, &[])?;
                println!("       {what}: {with:.2} s of processor time, alone {before:.2} s and {after:.2} s");
                times.push(2.0 * with / (before + after));
            }
            goals.at_most(&format!("{what}: times the processor time of QEMU alone"), median(times), limit);
        }
        Ok(())
    }

    /// The processor time of one run of the default workload, with the tool if there are words for it.
    fn cpu_seconds(&self, kernel: &Kernel, words: &[&str]) -> Result<f64> {
        let (share, serial) = (self.folder.join("root"), self.folder.join("serial.log"));
        if share.exists() {
            std::fs::remove_dir_all(&share)?;
        }
        std::fs::create_dir_all(&share)?;
        let append = "accel=icount hz=1000 seconds=2 workload=default ring-words=131072".to_owned();
        let mut machine = self.parts.machine(kernel, &share, &serial, (Accel::Icount, 4), append, LIMIT)?;
        machine.seed = Some(1);
        if !words.is_empty() {
            let tool = self.tool.display().to_string();
            machine.runner = [&[&tool[..]], words, &["--"]].concat().into_iter().map(str::to_owned).collect();
        }
        let before = run::cpu_seconds();
        match machine.run(&self.parts.qemu, || ())? {
            Verdict::Success => Ok(run::cpu_seconds() - before),
            verdict => bail!("{verdict:?}; the end of the log:\n{}", qemu::last_lines(&serial, 30)),
        }
    }

    fn attach(&self, goals: &mut Goals, turns: u32) -> Result<()> {
        let target = toolchain::target_folder(&run::root(), self.parts.toolchain);
        let kernel = build::bare(toolchain::cargo(self.parts.toolchain, "build", KERNEL)?, target)?;
        let Self { parts, tool, folder } = self;
        let (qemu, fold) = (parts.qemu.clone(), parts.fold.clone());
        let version = qemu::Version::of(&qemu)?.number;
        let outside = Outside { tool: tool.clone(), qemu, fold, kernel, folder: folder.clone(), version };
        let (mut rates, mut speeds, mut timed) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..turns {
            let before = Self::bare(&outside, None)?.as_secs_f64();
            let mut said = String::new();
            let with = Self::bare(&outside, Some(&mut said))?.as_secs_f64();
            let after = Self::bare(&outside, None)?.as_secs_f64();
            let number = |end: &str| -> Result<f64> {
                let before = said.split_once(end).map(|(before, _)| before);
                let word = before.and_then(|before| before.rsplit(' ').next()).context("a number")?;
                word.parse().with_context(|| format!("no number before `{end}`: {said}"))
            };
            let (rate, speed) = (number(" samples a second")?, number(" % of its speed")? / 100.0);
            let by_time = (before + after) / 2.0 / with;
            println!(
                "       attach: {rate} samples a second at {speed:.2} of the speed; the whole run took {with:.2} s, \
                 alone {before:.2} s and {after:.2} s: {by_time:.2} of the speed"
            );
            rates.push(rate);
            speeds.push(speed);
            timed.push(by_time);
        }
        goals.at_least("attach: samples a second of one vCPU", median(rates), ATTACH_HZ);
        goals.at_least("attach: share of its speed that the machine keeps, as printed", median(speeds), ATTACH_SPEED);
        goals.at_least("attach: the same by the time that the kernel takes", median(timed), ATTACH_SPEED);
        Ok(())
    }

    /// How long the bare kernel takes, from the start of QEMU on; with a text, `attach` samples it from its first
    /// instruction on, and says what it has done.
    fn bare(outside: &Outside, said: Option<&mut String>) -> Result<Duration> {
        let stopped = if said.is_some() { &["-S"][..] } else { &[] };
        let words = [&["-smp", "1", "-cpu", "max", "-accel", "tcg,thread=multi"][..], stopped].concat();
        let start = Instant::now();
        let mut machine = Machine::start(outside, "bare.log", &words)?;
        if let Some(said) = said {
            let done = machine.attach(outside, "attached.txt", &[])?;
            ends_with(&done, 0, " % of its speed")?;
            *said = done.text;
        }
        machine.comes_to_its_end(&outside.file("bare.log"))?;
        Ok(start.elapsed())
    }
}
