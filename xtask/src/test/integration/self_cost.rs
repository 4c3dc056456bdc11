//! The self cost of the profiler in the bare kernel for aarch64 and riscv64, whose clocks are too coarse for it.
//!
//! In: a profile of the kernel as it is; the same kernel with a command line that offers no cycle counter, and one
//! whose counter is not started. Out: checks that the report gives cycles, as many as instructions under `-icount`, and
//! their share; and that without a counter it gives the reason and no number. From QEMU 9.0 on the clock of its newest
//! aarch64 CPU has 1 GHz: there the self cost is time, with and without a cycle counter.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::no_trigger::{Change, NO_REGISTER, NOP, change};
use crate::profile::bare::{Boot, Processor};
use crate::run;
use crate::truth::processors::HZ;

/// The mean number of instructions of a handler is in this range.
const INSTRUCTIONS: std::ops::RangeInclusive<f64> = 150.0..=2500.0;
/// The virtual CPU executes as many instructions in a second.
const PER_SECOND: f64 = 1e9;
/// With this frequency or more a tick of the clock is at most 10 ns, and the self cost is measured by it.
const FINE_HZ: u64 = 100_000_000;
/// How far the share may be from that of the mean number of instructions: the time from a measured tick to the next one
/// varies.
const BOUND: f64 = 0.1;

/// The instruction that starts the counter, and what stands in its place.
fn start(processor: &str) -> Change {
    match processor {
        // msr pmcr_el0, x
        "aarch64" => (&[0xd51b_9c00], NO_REGISTER, &[NOP]),
        // csrwi mcountinhibit, 0 becomes csrwi mcountinhibit, 1.
        _ => (&[0x3200_5073], !0, &[0x3200_d073]),
    }
}

/// Checks the profile in `known`, made at [`HZ`], and boots the kernel without a counter in two ways.
///
/// # Errors
/// If something is not as it must be.
pub(super) fn check(processor: Processor, tools: (&Path, &Path), elf: &Path, known: &Path) -> Result<()> {
    let (qemu, fold) = tools;
    let said = sentence(fold, known, elf)?;
    println!("{}: {said}", processor.name);
    let file = |name: &str| run::root().join(format!("target/bare/{}-cycles.{name}", processor.name));
    let machine =
        Boot { cpus: 2, is_counted: true, seed: 1, hz: 1000, storm: None, misses: None, offers_cycles: false };
    if clock_hz(known)? >= FINE_HZ {
        is_time(&said, HZ)?;
        processor.boot(qemu, elf, machine, &file("log"))?;
        return is_time(&sentence(fold, &file("log"), elf)?, machine.hz);
    }
    let numbers = said.strip_prefix("self cost: ").and_then(|rest| rest.split_once(" cycles a tick, the mean of "));
    let (cycles, rest) = numbers.with_context(|| format!("no cycles: {said}"))?;
    let share = rest.split_once("; ").and_then(|(_, share)| share.split_once(" % of the cycles"));
    let (cycles, share): (f64, f64) = (cycles.parse()?, share.with_context(|| format!("no share: {said}"))?.0.parse()?);
    ensure!(INSTRUCTIONS.contains(&cycles), "{cycles} cycles a tick");
    let expected = cycles / (PER_SECOND / f64::from(HZ)) * 100.0;
    ensure!((share / expected - 1.0).abs() <= BOUND, "{share} % of the cycles, {expected:.2} % expected");

    processor.boot(qemu, elf, machine, &file("log"))?;
    let said = sentence(fold, &file("log"), elf)?;
    let is_told = said.starts_with("self cost: not measured: a tick of the kernel's clock is 1") // 16 ns or 100 ns
        && said.ends_with(" ns, and the kernel offers no cycle counter (Config::cycle_counter)");
    ensure!(is_told, "without a cycle counter: {said}");

    std::fs::write(file("elf"), change(&[start(processor.name)], std::fs::read(elf)?)?)?;
    processor.boot(qemu, &file("elf"), Boot { offers_cycles: true, ..machine }, &file("log"))?;
    let said = sentence(fold, &file("log"), elf)?;
    let expected = "self cost: not measured: the cycle counter of CPU 1 is not enabled, or stands still";
    ensure!(said == expected, "with a counter that is not started: {said}");
    Ok(())
}

/// The frequency of the clock, which the profile says.
fn clock_hz(serial: &Path) -> Result<u64> {
    let log = String::from_utf8_lossy(&std::fs::read(serial)?).into_owned();
    let hz = log.lines().find_map(|line| line.split_once(" # tsc-hz ")?.1.parse().ok());
    hz.context("no tsc-hz in the log")
}

/// Whether the self cost is a share of the time, and that of a likely number of instructions for each tick.
fn is_time(said: &str, hz: u32) -> Result<()> {
    let share = said.strip_suffix(" %          -  self cost of the profiler").context(said.to_owned())?;
    let instructions = share.trim().parse::<f64>()? / 100.0 * PER_SECOND / f64::from(hz);
    ensure!(INSTRUCTIONS.contains(&instructions), "{instructions} instructions a tick: {said}");
    Ok(())
}

/// What the report says of the self cost: one line.
fn sentence(fold: &Path, serial: &Path, elf: &Path) -> Result<String> {
    let report = run::output(Command::new(fold).arg("report").arg(serial).arg(elf))?;
    ensure!(report.contains(": balanced"), "the account does not balance:\n{report}");
    let lines: Vec<&str> = report.lines().filter(|line| line.contains("self cost")).collect();
    ensure!(lines.len() == 1, "the report has {} lines about the self cost:\n{report}", lines.len());
    Ok(lines[0].to_owned())
}
