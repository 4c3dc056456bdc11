//! `cargo xtask truth`: are the percentages right? Profiles of work whose distribution is known by counting.
//!
//! In: the mix of `test-kernel/src/workload/truth.rs`, counted by the instruction clock in a run without the profiler, then
//! profiled by each way and with many seeds. Out: a table of function, true share, measured share, bound, verdict. Fails
//! where a claim does not hold.
//!
//! The bound of a row is z * sqrt(p (1 - p) / n), with n the samples of the mix and z such that all rows of all seeds hold
//! together with 99.9 % (Bonferroni; the tail of the normal distribution is bounded by exp(-z²/2)).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser};

use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::qemu::{Accel, Machine, Verdict};
use crate::toolchain::Choice;
use crate::tools::Install;
use crate::{profile, run};

/// Compares profiles with work whose true distribution was counted.
#[derive(Args)]
#[command(after_help = "Example: a short look, one seed for each way
  cargo xtask truth --seeds 1")]
pub struct Arguments {
    /// Seeds 1 to this for the way nmi; the other ways are run with one
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// The output folder
    #[arg(short, long, default_value = "target/truth")]
    pub output: PathBuf,
}

/// Chance that any row of a true table is called wrong.
const CHANCE: f64 = 0.001;
/// What QEMU's own rate and the measured one may differ by.
const CLOCK_TOLERANCE: f64 = 0.01;
/// Samples a second and CPU. The gaps vary by two rounds of the mix, so that no sample depends on the one before.
const HZ: u64 = 20_000;
const TCG_HZ: u64 = 5_000;
const PREFIX: &str = "test_kernel::workload::truth::";

/// One profile to be judged.
struct Case {
    title: String,
    way: &'static str,
    accel: &'static str,
    seed: u64,
    workload: &'static str,
    /// Which rows are claimed.
    claims: fn(&str) -> bool,
}

/// Instructions by name, of one mix.
type Counted = BTreeMap<String, u64>;

/// Rows that are inside of others: of which piece.
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
/// If a share is outside of its bound, or anything on the way fails.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let parts = Parts::prepare(Choice::Auto, Install(true))?;
    let kernel = build::kernel(parts.way, "profiling", &[])?;
    let counted = count(&parts, &kernel, &arguments.output)?;
    let everything: fn(&str) -> bool = |_| true;
    let mut cases: Vec<Case> = (1..=arguments.seeds)
        .map(|seed| Case {
            title: format!("nmi, instructions, seed {seed}"),
            way: "nmi",
            accel: "icount",
            seed,
            workload: "truth",
            claims: everything,
        })
        .collect();
    let one =
        |title: &str, way, accel, workload, claims| Case { title: title.into(), way, accel, seed: 1, workload, claims };
    cases.push(one("nmi, instructions, two CPUs with a mix each", "nmi", "icount", "truth-two", everything));
    // Interrupts are off in the handler of an interrupt: its time appears where it returns to.
    cases.push(one("ipi, instructions", "ipi", "icount", "truth", |name| !name.starts_with('[')));
    cases.push(one("self, instructions", "self", "icount", "truth", |name| !name.starts_with('[')));
    // Samples land on the first instruction of a translation block, and time is not instructions: a function of one block
    // gets its caller's time or none, and what QEMU emulates slowly gets more. Loops of many like blocks come out.
    cases.push(one("nmi, a thread per CPU", "nmi", "tcg", "truth-loops", |name| name.starts_with("blocks_of_20")));

    let mut wrong = Vec::new();
    for case in &cases {
        let folder = profile_of(case, &parts, &kernel, &arguments.output)?;
        wrong.extend(judge(case, &parts, &folder, &counted, cases.len())?);
    }
    wrong.extend(biased(&parts, &kernel, &arguments.output)?);
    if !wrong.is_empty() {
        bail!("{} claims do not hold:\n{}", wrong.len(), wrong.join("\n"));
    }
    println!("all claims hold");
    Ok(ExitCode::SUCCESS)
}

/// Lets the kernel count the pieces of each mix, without a sample being taken.
fn count(parts: &Parts, kernel: &Kernel, output: &Path) -> Result<BTreeMap<String, Counted>> {
    let share = output.join("counted");
    std::fs::create_dir_all(&share)?;
    let (initrd, serial) = (share.join("initrd"), share.join("serial.log"));
    parts.write_initrd(kernel, &initrd)?;
    let machine = Machine {
        kernel: &kernel.elf,
        initrd: &initrd,
        share: &share,
        serial: &serial,
        second_serial: None,
        seed: None,
        accel: Accel::Icount,
        cpus: 2,
        append: "accel=icount scenario=truth-counted".into(),
        limit: Duration::from_secs(120),
    };
    let verdict = machine.run(&parts.qemu, || ())?;
    let log = std::fs::read_to_string(&serial)?;
    if verdict != Verdict::Success {
        bail!("the pieces could not be counted ({verdict:?}):\n{log}");
    }
    let mut counted: BTreeMap<String, Counted> = BTreeMap::new();
    for line in log.lines().filter_map(|line| line.strip_prefix("truth: ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mix, name, instructions] = words[..] else { bail!("{}: {line}", serial.display()) };
        counted.entry(mix.to_owned()).or_default().insert(name.to_owned(), instructions.parse()?);
    }
    Ok(counted)
}

fn profile_of(case: &Case, parts: &Parts, kernel: &Kernel, output: &Path) -> Result<PathBuf> {
    let folder = output.join(case.title.replace([',', ' '], "-"));
    // More than the host can take would only merge.
    let hz = if case.accel == "tcg" { TCG_HZ } else { HZ };
    let (seed, hz, to) = (case.seed.to_string(), hz.to_string(), folder.display().to_string());
    let mut line = vec!["truth", "--way", case.way, "--accel", case.accel, "--seed", &seed, "--hz", &hz];
    line.extend(["--workload", case.workload, "--ring-words", "4194304", "--drain-after", "-o", &to]);
    if case.accel == "icount" {
        line.push("--repeatable");
    } else {
        line.extend(["--cpus", "2"]);
    }
    profile::of_kernel(&profile::Line::try_parse_from(line)?.profile, parts, kernel)?;
    Ok(folder)
}

/// Samples by piece and part (empty: the whole piece).
type Samples = BTreeMap<(String, String), u64>;

/// The samples of one mix, and how many there are.
fn measured(folder: &Path, parts: &Parts, mix: &str, counted: &Counted) -> Result<(Samples, u64)> {
    let under = format!("{PREFIX}mix_{mix}");
    let mut fold = Command::new(&parts.fold);
    fold.args(["folded", "--quiet", "--under", &under]).arg(folder.join("profiling.txt")).arg(folder.join("kernel"));
    let folded = run::output(&mut fold)?;
    let pieces: Vec<&String> = counted.keys().filter(|name| PARTS.iter().all(|(part, _)| part != name)).collect();
    let (mut samples, mut all) = (Samples::new(), 0);
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').context("a folded line ends with its count")?;
        let count: u64 = count.parse()?;
        let names: Vec<&str> = stack.split(';').map(|frame| frame.trim_end_matches(" (inlined)")).collect();
        let has = |name: &str| match name {
            "[interrupt]" => names.contains(&"[interrupt 240]"),
            _ => names.iter().any(|frame| frame.strip_prefix(PREFIX) == Some(name)),
        };
        let Some(piece) = pieces.iter().find(|piece| has(piece)) else { continue };
        all += count;
        *samples.entry(((*piece).clone(), String::new())).or_default() += count;
        for (part, _) in PARTS.iter().filter(|(part, of)| of == piece && has(part)) {
            *samples.entry(((*piece).clone(), (*part).to_owned())).or_default() += count;
        }
    }
    Ok((samples, all))
}

/// Prints the table of a profile and gives what does not hold.
fn judge(
    case: &Case,
    parts: &Parts,
    folder: &Path,
    counted: &BTreeMap<String, Counted>,
    cases: usize,
) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mixes: &[&str] = match case.workload {
        "truth-two" => &["a", "b"],
        "truth-loops" => &["b"],
        _ => &["a"],
    };
    println!("\n{}\n  true %  measured %    bound  verdict    function", case.title);
    for mix in mixes {
        let counted = counted.get(*mix).with_context(|| format!("mix {mix} was not counted"))?;
        let (samples, all) = measured(folder, parts, mix, counted)?;
        if all < 1000 {
            bail!("{}: only {all} samples of mix {mix}", case.title);
        }
        let is_part = |name: &str| PARTS.iter().any(|(part, _)| *part == name);
        let whole: u64 = counted.iter().filter(|(name, _)| !is_part(name)).map(|(_, instructions)| instructions).sum();
        let mut rows: Vec<(&str, &str)> =
            counted.keys().filter(|name| !is_part(name)).map(|name| (name.as_str(), "")).collect();
        rows.extend(PARTS.iter().filter(|(_, of)| counted.contains_key(*of)).map(|(part, of)| (*of, *part)));
        for (piece, part) in &rows {
            let name = if part.is_empty() { piece } else { part };
            let truth = counted[*name] as f64 / whole as f64;
            let count = samples.get(&((*piece).to_owned(), (*part).to_owned())).copied().unwrap_or(0);
            let share = count as f64 / all as f64;
            let bound = z(rows.len() * cases) * (truth * (1.0 - truth) / all as f64).sqrt() + slack(case, truth);
            let holds = (share - truth).abs() <= bound;
            let verdict = match ((case.claims)(name), holds) {
                (true, true) => "right",
                (true, false) => "WRONG",
                (false, true) => "(right)",
                (false, false) => "(cannot)",
            };
            let within = if part.is_empty() { String::new() } else { format!(" in {piece}") };
            let row = format!(
                "{:8.3} {:11.3} {:8.3}  {verdict:<9}  {name}{within}",
                truth * 100.0,
                share * 100.0,
                bound * 100.0
            );
            println!("{row}");
            if verdict == "WRONG" {
                wrong.push(format!("{}: {row}", case.title));
            }
        }
    }
    wrong.extend(clock(case, folder)?);
    if case.way == "ipi" || case.way == "self" {
        wrong.extend(off_time_at_one_place(case, folder)?);
    }
    Ok(wrong)
}

/// The bound in standard deviations at which `rows` rows hold together.
fn z(rows: usize) -> f64 {
    (2.0 * (2.0 * rows as f64 / CHANCE).ln()).sqrt()
}

/// What is added to the bound. With a thread per CPU the host has a say in how long things take: a quarter of the share. Several
/// busy CPUs on counted instructions take turns, and an NMI that comes in another one's turn is taken where a CPU's own turn
/// has ended: that comes out up to a tenth too often or too seldom, which is measured here and not explained.
fn slack(case: &Case, truth: f64) -> f64 {
    match (case.accel, case.workload) {
        ("tcg", _) => truth / 4.0,
        (_, "truth-two") => truth / 10.0,
        _ => 0.0,
    }
}

/// The clock of the file: under counted instructions one tick of the TSC is one nanosecond. And the rate that was reached.
fn clock(case: &Case, folder: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(folder.join("profiling.txt"))?;
    let fact = |key: &str| text.lines().find_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(' '));
    let tsc_hz: f64 = fact("tsc-hz").context("no tsc-hz")?.parse()?;
    let mut wrong = Vec::new();
    if case.accel == "icount" {
        let off = tsc_hz / 1e9 - 1.0;
        println!("clock: {tsc_hz} Hz, {:+.3} % from what QEMU counts", off * 100.0);
        if off.abs() > CLOCK_TOLERANCE {
            wrong.push(format!("{}: the clock is {:+.2} % off", case.title, off * 100.0));
        }
        // Ticks of the busiest CPU from its first to its last sample.
        let rate = busiest_rate(&text, tsc_hz)?;
        println!("rate: {rate:.1} ticks/s of {HZ}, {:+.3} %", (rate / HZ as f64 - 1.0) * 100.0);
        if (rate / HZ as f64 - 1.0).abs() > CLOCK_TOLERANCE {
            wrong.push(format!("{}: {rate:.1} ticks/s instead of {HZ}", case.title));
        }
    }
    let merged: u64 = text
        .lines()
        .filter(|line| line.starts_with("# account "))
        .filter_map(|line| line.split(' ').find_map(|word| word.strip_prefix("merged=")?.parse::<u64>().ok()))
        .sum();
    println!("merged: {merged}");
    if case.accel == "icount" && merged > 0 {
        wrong.push(format!("{}: {merged} ticks merged", case.title));
    }
    Ok(wrong)
}

fn busiest_rate(text: &str, tsc_hz: f64) -> Result<f64> {
    let mut cpus: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ').skip(1);
        let (Some(cpu), Some(tsc)) = (words.next(), words.next()) else { continue };
        let tsc = u64::from_str_radix(tsc, 16)?;
        let seen = cpus.entry(cpu).or_insert((tsc, tsc, 0));
        (seen.1, seen.2) = (tsc, seen.2 + 1);
    }
    let (first, last, samples) = cpus.values().copied().max_by_key(|(.., samples)| *samples).context("no samples")?;
    Ok((samples - 1) as f64 * tsc_hz / (last - first) as f64)
}

/// Where interrupts are off, an interrupt is taken at the instruction after the one that turns them on: nearly all samples
/// of `interrupts_off` stand at one address.
fn off_time_at_one_place(case: &Case, folder: &Path) -> Result<Vec<String>> {
    let symbols = std::fs::read_to_string(folder.join("syms.txt"))?;
    let name = format!("{PREFIX}interrupts_off");
    let line = symbols.lines().find(|line| line.ends_with(&name)).with_context(|| format!("no symbol {name}"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let (start, size) = (u64::from_str_radix(words[0], 16)?, u64::from_str_radix(words[1], 16)?);
    let text = std::fs::read_to_string(folder.join("profiling.txt"))?;
    let mut places: BTreeMap<u64, u64> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let first = line.split(' ').nth(3).and_then(|word| u64::from_str_radix(word, 16).ok());
        if let Some(first) = first.filter(|first| (start..start + size).contains(first)) {
            *places.entry(first - start).or_default() += 1;
        }
    }
    let (all, most) = (places.values().sum::<u64>(), places.values().copied().max().unwrap_or(0));
    println!("interrupts off: {most} of {all} samples stand where they are turned on");
    let holds = all > 100 && most as f64 >= 0.97 * all as f64;
    Ok(if holds { vec![] } else { vec![format!("{}: interrupts-off time at {places:?}", case.title)] })
}

/// A sampler with fixed gaps (a CPU's own timer: the turns that CPUs take make all others vary a little), in step with the work, must be noticed; the honest one must not.
fn biased(parts: &Parts, kernel: &Kernel, output: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (gaps, must_pass) in [("random", true), ("fixed", false)] {
        let folder = output.join(format!("gaps-{gaps}"));
        let (hz, to) = (HZ.to_string(), folder.display().to_string());
        let line =
            ["truth", "--repeatable", "--hz", &hz, "--way", "self", "--gaps", gaps, "--workload", "truth", "-o", &to];
        let line = [&line[..], &["--ring-words", "4194304", "--drain-after"]].concat();
        profile::of_kernel(&profile::Line::try_parse_from(line)?.profile, parts, kernel)?;
        let mut info = Command::new(&parts.fold);
        let output = info.args(["info", "--strict"]).arg(folder.join("profiling.txt")).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = said.lines().filter(|line| line.starts_with("aliasing")).collect::<Vec<_>>().join("; ");
        println!("\n{gaps} gaps: {said}");
        if output.status.success() != must_pass {
            wrong.push(format!("{gaps} gaps: kprof-fold info --strict said: {said}"));
        }
    }
    Ok(wrong)
}
