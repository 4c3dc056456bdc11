//! `kprof-qemu probe`: the bare kernel does not notice hundreds of probes, known calls are found with their callers and
//! arguments, and a call of the test kernel that sleeps takes as long as it sleeps.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::{COUNTED, LIMIT, Outcome, Outside};
use crate::parts::Parts;
use crate::qemu::Accel;
use crate::{build, run, yardstick};

/// So many functions must be watched.
const PROBES: u64 = 100;
/// Numbers that the bare kernel looks at in each of its 40 rounds, from 2 on.
const NUMBERS: u64 = 30_000 - 2;
/// Init of a test kernel that sleeps for 10 ms.
const SLEEP: &str = "#!/bin/busybox sh\n/bin/busybox sleep 0.01\necho success > /kernel/exit\n";
const SLEPT_NS: std::ops::Range<u64> = 10_000_000..13_000_000;

/// Runs the checks.
pub fn check(outside: &Outside, parts: Result<&Parts>, outcome: &mut Outcome) {
    outcome.check("the kernel does not notice hundreds of probes, and known calls are found", of_bare(outside));
    outcome.check("a call that sleeps takes as long", parts.and_then(|parts| of_sleep(outside, parts)));
}

fn of_bare(outside: &Outside) -> Result<()> {
    let report = outside.file("probes.txt");
    let mut command = run::bound(&outside.tool);
    command.args(["probe", "-e", "*:latency:by caller", "-e", "bare::is_prime:if rdi < 102:nth 5", "--kernel"]);
    command.arg(&outside.kernel).arg("-o").arg(&report).arg("--").arg(&outside.qemu);
    let done = run::caught(command.args(outside.machine("probes.log", &COUNTED)), LIMIT)?;
    let code = done.status.and_then(|status| status.code());
    ensure!(code == Some(33), "it ended with {code:?}: {}", done.text);
    let log = |name: &str| fs::read(outside.file(name)).with_context(|| name.to_owned());
    ensure!(log("alone.log")? == log("probes.log")?, "the serial log is another one with probes");
    let (before, _) = done.text.split_once(" functions are watched").context("the number of probes is missing")?;
    let watched: u64 = before.rsplit(' ').next().context("a number")?.parse()?;
    eprintln!("{watched} probes; the serial log is the same");
    ensure!(watched >= PROBES, "only {watched} functions are watched");
    let text = fs::read_to_string(&report)?;
    let all = format!("{} calls  bare::is_prime\n", 40 * NUMBERS);
    let (_, rest) = text.split_once(&all).with_context(|| format!("`{all}` is missing: {text:.2000}"))?;
    let caller = format!("{}  caller bare::work\n", 40 * NUMBERS);
    ensure!(rest.lines().next().map(str::trim_start) == Some(caller.trim_end()), "`{caller}` is missing: {rest:.500}");
    // 2 to 101, in each round; the fifth one is 6.
    let some = "4000 calls  bare::is_prime\n";
    let (_, rest) = text.split_once(some).with_context(|| format!("`{some}` is missing"))?;
    let hit: Vec<&str> = rest.lines().take(4).map(str::trim_start).collect();
    let is_known = hit[0].contains(": rdi=0x6 ") && hit[1..] == ["bare::is_prime", "bare::work", "kmain"];
    ensure!(is_known, "the fifth call is another one: {hit:?}");
    Ok(())
}

fn of_sleep(outside: &Outside, parts: &Parts) -> Result<()> {
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    let report = outside.file("sleep.txt");
    let (tool, elf) = (outside.tool.display().to_string(), kernel.elf.display().to_string());
    let probe = ["probe", "-e", "*::syscall::time::*sleep:latency", "--kernel", &elf, "-o"];
    let to = report.display().to_string();
    let runner = [&[&tool[..]], &probe[..], &[&to, "--"]].concat().into_iter().map(str::to_owned).collect();
    yardstick::boot(parts, &kernel.elf, &outside.file("sleep"), (SLEEP, Accel::Icount), "accel=icount", runner)?;
    let text = fs::read_to_string(&report)?;
    let (_, rest) = text.split_once("1  have returned: minimum ").with_context(|| text.clone())?;
    let took: u64 = rest.split(' ').next().context("a time")?.parse()?;
    eprintln!("a call that sleeps for 10 ms takes {took} ns");
    ensure!(SLEPT_NS.contains(&took), "it took {took} ns: {text}");
    Ok(())
}
