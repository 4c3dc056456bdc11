//! `cargo xtask truth --arch aarch64|riscv64`: the shares of loops whose turns are known, on these processors.
//!
//! In: profiles of the bare kernel under `-icount`, one for each seed and trigger. Out: a table for each. Every loop is
//! the same code, so the turns are the true shares. With the trigger nmi this holds for the loops that run with
//! interrupts masked too (those of entries among them), and for user mode. With ipi and timer they have no sample,
//! because no interrupt arrives there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::basis::z;
use crate::build;
use crate::profile::bare::{self, Boot, Processor, Variant};
use crate::toolchain::{self, Choice};
use crate::tools::Install;

/// The loops, in thousands of turns, where each is called, and whether interrupts are masked there.
const LOOPS: [(&str, u32, &str, bool); 8] = [
    ("half", 500, "kmain;bare_virt::work::round;", false),
    ("third", 300, "kmain;bare_virt::work::round;", false),
    ("fifth", 200, "kmain;bare_virt::work::round;", false),
    ("masked", 250, "kmain;bare_virt::work::round;", true),
    ("interrupting", 100, "kmain;bare_virt::work::round;[interrupt 1];", true),
    ("breaking", 150, "kmain;bare_virt::work::round;[exception ", true),
    ("calling", 350, "[syscall];", true),
    (USER, 250, "", false),
];
/// The loop in user mode, whose ticks are only counted.
const USER: &str = "user";
/// The least samples of the loops in a run.
const MIN_SAMPLES: u64 = 2000;
/// Ticks per second.
pub const HZ: u32 = 10_000;

/// The bare kernel for one processor, built for all triggers, and the programs that it needs.
pub struct Bare {
    processor: Processor,
    qemu: PathBuf,
    fold: PathBuf,
    /// With NMIs, which are not used where there is one CPU, and without.
    kernels: [PathBuf; 2],
}

/// The triggers.
pub const TRIGGERS: [&str; 3] = ["nmi", "ipi", "timer"];

/// The CPU that works and writes the profile. It is alone with the trigger timer.
fn worker(trigger: &str) -> u32 {
    u32::from(trigger != TRIGGERS[2])
}

impl Bare {
    /// Finds or installs what is needed, and builds both kernels.
    ///
    /// # Errors
    /// If something is missing or cannot be built.
    pub fn prepare(processor: Processor, choice: Choice, install: Install) -> Result<Self> {
        let qemu = processor.find(install)?;
        let toolchain = toolchain::find(processor.target, choice, install)?;
        let kernels = [processor.kernel(toolchain, Variant::Nmi)?, processor.kernel(toolchain, Variant::Ipi)?];
        Ok(Self { processor, qemu, fold: build::tool("kprof-fold")?, kernels })
    }

    /// Boots it with counted instructions; its profile is in `serial`.
    ///
    /// # Errors
    /// If it does not come to its end.
    pub fn boot(&self, trigger: &str, seed: u64, serial: &Path) -> Result<()> {
        let machine = Boot {
            cpus: worker(trigger) + 1,
            is_counted: true,
            seed,
            hz: HZ,
            storm: None,
            misses: None,
            offers_cycles: true,
        };
        self.processor.boot(&self.qemu, self.kernel(trigger), machine, serial)
    }

    /// The kernel for a trigger.
    pub fn kernel(&self, trigger: &str) -> &Path {
        &self.kernels[usize::from(trigger == TRIGGERS[1])]
    }

    /// The rows of a run.
    ///
    /// # Errors
    /// If the profile is not as it must be, or a stack does not lead to `kmain`.
    pub fn rows(&self, trigger: &str, serial: &Path) -> Result<Vec<Row>> {
        let log = String::from_utf8_lossy(&std::fs::read(serial)?).into_owned();
        // Until the sampler CPU begins, the CPU's own timer samples. In some versions of QEMU the header is written
        // before that, and a setting follows.
        let [header, setting] = [format!("# trigger {trigger}"), format!(" value=trigger%20{trigger}")];
        let has = |ends: &[String]| log.lines().any(|line| ends.iter().any(|end| line.ends_with(end)));
        for ends in [&[format!("# arch {}", self.processor.name)][..], &[header, setting]] {
            ensure!(has(ends), "no line ends with {}", ends.join(" or "));
        }
        let folded = bare::folded(&self.fold, serial, self.kernel(trigger))?;
        let is_rooted = |line: &str| line.rsplit_once(' ').is_some_and(|(stack, _)| bare::is_rooted(stack));
        if let Some(strange) = folded.lines().find(|line| !is_rooted(line)) {
            bail!("a strange stack: {strange}");
        }
        let account = format!("# account cpu={} ", worker(trigger));
        let user = log.lines().filter_map(|line| line.split_once(&account)?.1.split_once(" user=")).next_back();
        let user = user.and_then(|(_, rest)| rest.split(' ').next()?.parse().ok()).context("no account of the CPU")?;
        Ok(rows(&folded, user, trigger == TRIGGERS[0]))
    }
}

/// Prints the table of a run, and returns the rows that do not hold, of `runs` runs that are judged together.
///
/// # Errors
/// If there are too few samples.
pub fn judge(title: &str, rows: &[Row], runs: usize) -> Result<Vec<String>> {
    let all: u64 = rows.iter().map(|row| row.samples).sum();
    ensure!(all >= MIN_SAMPLES, "{title}: {all} samples of the loops, at least {MIN_SAMPLES} are wanted");
    println!("\n{title}: {all} samples\n  true %  measured %    bound  verdict    loop");
    let mut wrong = Vec::new();
    for Row { name, truth, samples } in rows {
        let share = *samples as f64 / all as f64;
        let bound = z(rows.len() * runs) * (truth * (1.0 - truth) / all as f64).sqrt();
        let verdict = if (share - truth).abs() <= bound { "right" } else { "WRONG" };
        let [truth, share, bound] = [*truth, share, bound].map(|part| part * 100.0);
        let row = format!("{truth:8.3} {share:11.3} {bound:8.3}  {verdict:<9}  {name}");
        println!("{row}");
        if verdict == "WRONG" {
            wrong.push(format!("{title}: {row}"));
        }
    }
    Ok(wrong)
}

/// A loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    name: &'static str,
    /// Its true share, from 0 to 1.
    truth: f64,
    samples: u64,
}

/// The loops with their true shares, and their samples. Without NMIs a tick that was sent while interrupts were masked
/// arrives in user mode as soon as that goes on, so nothing is said of user mode then.
fn rows(folded: &str, user: u64, sees_masked: bool) -> Vec<Row> {
    let judged = LOOPS.iter().filter(|(name, ..)| sees_masked || *name != USER);
    let is_seen = |masked: bool| !masked || sees_masked;
    let turns: u32 = judged.clone().filter(|(.., masked)| is_seen(*masked)).map(|(_, turns, ..)| turns).sum();
    let row = |&(name, own, callers, masked): &(&'static str, u32, &str, bool)| {
        let end = format!("bare_virt::work::{name};bare_virt::work::turns");
        let of_line = |line: &str| {
            let (stack, count) = line.rsplit_once(' ')?;
            let between = stack.strip_prefix(callers)?.strip_suffix(&end)?;
            (!between.contains(";[")).then(|| count.parse::<u64>().ok())?
        };
        let samples = if name == USER { user } else { folded.lines().filter_map(of_line).sum() };
        let truth = if is_seen(masked) { f64::from(own) / f64::from(turns) } else { 0.0 };
        Row { name, truth, samples }
    };
    judged.map(row).collect()
}

/// Boots the kernel with each seed, and once with each of the other triggers. Returns the rows that do not hold.
///
/// # Errors
/// If a step fails.
pub fn run(processor: Processor, seeds: u64, output: &Path) -> Result<Vec<String>> {
    let bare = Bare::prepare(processor, Choice::Auto, Install(true))?;
    std::fs::create_dir_all(output)?;
    let one = |trigger: &str, seed| {
        let serial = output.join(format!("{}-{trigger}-{seed}.log", processor.name));
        bare.boot(trigger, seed, &serial)?;
        bare.rows(trigger, &serial)
    };
    // Every seed alone, all of them together, and the other triggers.
    let runs = seeds as usize + TRIGGERS.len();
    let (mut wrong, mut together) = (Vec::new(), Vec::<Row>::new());
    for seed in 1..=seeds {
        let rows = one(TRIGGERS[0], seed)?;
        wrong.extend(judge(&format!("{}, nmi, seed {seed}", processor.name), &rows, runs)?);
        if together.is_empty() {
            together = rows;
        } else {
            together.iter_mut().zip(&rows).for_each(|(all, row)| all.samples += row.samples);
        }
    }
    wrong.extend(judge(&format!("{}, nmi, all seeds", processor.name), &together, runs)?);
    for trigger in &TRIGGERS[1..] {
        wrong.extend(judge(&format!("{}, {trigger}", processor.name), &one(trigger, 1)?, runs)?);
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_known_by_its_callers_and_one_that_no_tick_can_see_has_no_share() {
        let folded = "kmain;bare_virt::work::round;bare_virt::work::half;bare_virt::work::turns 7
kmain;bare_virt::work::round;[interrupt 1];stubs;bare_virt::work::interrupting;bare_virt::work::turns 2
kmain;bare_virt::work::round;bare_virt::work::interrupting;bare_virt::work::turns 4
[syscall];stubs;bare_virt::work::calling;bare_virt::work::turns 5
kmain;bare_virt::work::round 3
";
        let of = |sees_masked| {
            let rows = rows(folded, 9, sees_masked);
            rows.iter().map(|row| (row.name, (row.truth * 2100.0).round(), row.samples)).collect::<Vec<_>>()
        };
        let nmi = of(true);
        assert_eq!(nmi[0], ("half", 500.0, 7));
        assert_eq!(
            nmi[4..],
            [("interrupting", 100.0, 2), ("breaking", 150.0, 0), ("calling", 350.0, 5), (USER, 250.0, 9)]
        );
        let ipi = of(false);
        assert_eq!((ipi.len(), ipi[0], ipi[3]), (7, ("half", 1050.0, 7), ("masked", 0.0, 0)));
    }
}
