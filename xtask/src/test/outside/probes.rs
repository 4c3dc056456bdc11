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
    let (report, json) = (outside.file("probes.txt"), outside.file("probes.json"));
    let run = || {
        let mut command = run::bound(&outside.tool);
        command.args(["probe", "-e", "*:latency:by caller", "-e", "bare::is_prime:if rdi < 102:nth 5", "--kernel"]);
        command.arg(&outside.kernel).arg("-o").arg(&report).arg("--json").arg(&json).arg("--").arg(&outside.qemu);
        run::caught(command.args(outside.machine("probes.log", &COUNTED)), LIMIT)
    };
    let log = |name: &str| fs::read(outside.file(name)).with_context(|| name.to_owned());
    let is_same = || -> Result<bool> { Ok(log("alone.log")? == log("probes.log")?) };
    let done = outside.until_alike(run, |_| is_same().unwrap_or(false))?;
    let code = done.status.and_then(|status| status.code());
    ensure!(code == Some(33), "it ended with {code:?}: {}", done.text);
    ensure!(is_same()?, "the serial log is another one with probes");
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
    of_json(&serde_json::from_str(&fs::read_to_string(&json)?)?)
}

/// The same in JSON: quantiles are in order and agree with the histogram, whose calls are all that have returned.
fn of_json(report: &serde_json::Value) -> Result<()> {
    let functions = report["functions"].as_array().context("functions")?;
    let is_prime = functions.iter().find(|one| one["function"] == "bare::is_prime" && one["calls"] == 40 * NUMBERS);
    let is_prime = is_prime.with_context(|| format!("bare::is_prime is missing: {report:.500}"))?;
    let by = &is_prime["by"][0];
    ensure!(by["caller"] == "bare::work" && by["calls"] == 40 * NUMBERS, "{by}");
    let mut timed = 0;
    for one in functions.iter().filter(|one| one["latency_min_ns"].is_u64()) {
        timed += 1;
        let parts = ["min", "p50", "p90", "p99", "max"].map(|part| one[format!("latency_{part}_ns")].as_u64());
        ensure!(parts.iter().all(Option::is_some) && parts.is_sorted(), "{parts:?} in {one:.500}");
        let ranges = one["latency_histogram"].as_array().context("a histogram")?;
        // Calls in the ranges whose end (or beginning) is not after this time.
        let calls = |edge: &str, time: u64| -> u64 {
            let those = ranges.iter().filter(|range| range[edge].as_u64().is_some_and(|edge| edge <= time));
            those.filter_map(|range| range["calls"].as_u64()).sum()
        };
        let (all, returned) = (calls("from_ns", u64::MAX), one["returned"].as_u64().context("returned")?);
        ensure!(all == returned, "{all} calls in the histogram, {returned} have returned");
        let p90 = parts[2].unwrap_or(0);
        let (below, until) = (calls("below_ns", p90), calls("from_ns", p90));
        ensure!(below * 10 < all * 9 && until * 10 >= all * 9, "p90 {p90} has {below} of {all} below it: {one:.300}");
    }
    ensure!(timed >= 20, "only {timed} functions have times");
    Ok(())
}

fn of_sleep(outside: &Outside, parts: &Parts) -> Result<()> {
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    let report = outside.file("sleep.txt");
    let (tool, elf) = (outside.tool.display().to_string(), kernel.elf.display().to_string());
    let (to, calls) = (report.display().to_string(), outside.file("sleep.folded").display().to_string());
    let probe = ["probe", "-e", "*::syscall::time::*sleep:latency", "--folded", &calls, "--kernel", &elf, "-o"];
    let runner = [&[&tool[..]], &probe[..], &[&to, "--"]].concat().into_iter().map(str::to_owned).collect();
    yardstick::boot(parts, &kernel.elf, &outside.file("sleep"), (SLEEP, Accel::Icount), "accel=icount", runner)?;
    let text = fs::read_to_string(&report)?;
    let (_, rest) = text.split_once("1  have returned: minimum ").with_context(|| text.clone())?;
    let took: u64 = rest.split(' ').next().context("a time")?.parse()?;
    eprintln!("a call that sleeps for 10 ms takes {took} ns");
    ensure!(SLEPT_NS.contains(&took), "it took {took} ns: {text}");
    let folded = fs::read_to_string(&calls)?;
    let is_sleep = |line: &str| line.contains(";test_kernel::syscall::serve;") && line.ends_with("sleep 1");
    ensure!(folded.lines().count() > 0 && folded.lines().all(is_sleep), "{folded}");
    Ok(())
}
