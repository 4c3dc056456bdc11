//! `kprof-qemu count` with the bare kernel, whose calls are known: the counts are exact, repeat, agree with each other
//! and with QEMU's clock, do not change what the kernel does, and cost no more than was promised.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::{COUNTED, LIMIT, Outcome, Outside};
use crate::run;

/// How many times the processor time of QEMU alone it may take to count by calling context.
const TIMES_BY_CONTEXT: f64 = 5.0;
/// The same for counts by function alone.
const TIMES_FLAT: f64 = 2.0;

/// The first QEMU that counts each vCPU by itself.
const EACH_VCPU: (u32, u32) = (9, 2);
/// The first QEMU that tells where interrupts and exceptions begin.
const TELLS_ENTRIES: (u32, u32) = (10, 2);
/// The rounds of the bare kernel's work, and how many numbers each of them looks at.
const ROUNDS: u64 = 40;
const NUMBERS: u64 = 30_000 - 2;

/// Instructions and calls by function.
type Rows = BTreeMap<String, (u64, u64)>;
/// Those of a run, and what the tool said.
type Counted = Result<(Rows, String)>;

/// Runs the checks.
pub fn check(outside: &Outside, outcome: &mut Outcome) {
    let file = |name: &str| outside.file(name).display().to_string();
    // Where runs may differ, the loops of kmain, in which the bare kernel waits for its second CPU, are not compared.
    let own = |rows: &Rows| {
        let waits = rows.get("kmain").filter(|_| outside.is_unsteady()).map_or(0, |(own, _)| *own);
        let without = |name: &str, own: u64| if ["kmain", "all"].contains(&name) { own - waits } else { own };
        rows.iter().map(|(name, (own, _))| (name.clone(), without(name, *own))).collect::<Vec<_>>()
    };
    let part = file("part.folded");
    let by_calls = ["--folded", &file("calls.folded"), "--per-cpu", &part, "--from", "bare::work"];
    let count_calls = || count(outside, "calls", &by_calls);
    let counted = match outside.is_unsteady() {
        true => outside.repeated(count_calls, |(rows, _)| own(rows)),
        false => count_calls(),
    };
    let is_alike = |flat: &Counted| {
        flat.as_ref().is_ok_and(|(flat, _)| counted.as_ref().is_ok_and(|(rows, _)| own(flat) == own(rows)))
    };
    let flat = outside.until_alike(|| count(outside, "flat", &["--flat"]), is_alike);
    let by_context = || counted.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"));
    let by_function = || flat.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"));
    outcome.check(
        "every instruction is counted, and known calls are found",
        by_context().and_then(|(rows, said)| {
            has_known_calls(rows)?;
            ensure!(said.contains("otherwise the same"), "QEMU's clock has another count: {said}");
            ensure!(said.contains(" 0 jumps without a reason"), "{said}");
            let is_told = said.contains("; what is guessed with older versions differs in 0\n");
            ensure!(is_told || outside.version < TELLS_ENTRIES, "entries are not told, or guessed otherwise: {said}");
            is_cheap(said, TIMES_BY_CONTEXT)
        }),
    );
    outcome.check(
        "two runs, by context and flat, have the same counts",
        by_context().and_then(|(rows, _)| {
            let (flat, said) = by_function()?;
            ensure!(own(rows) == own(flat), "by context {:?}, flat {:?}", own(rows), own(flat));
            is_cheap(said, TIMES_FLAT)
        }),
    );
    outcome
        .check("the folded stacks have all instructions", by_context().and_then(|(rows, _)| is_folded(outside, rows)));
    outcome.check("the work is between two functions, on one vCPU", by_context().and_then(|_| is_part(outside)));
    let is_same_log = || -> Result<()> {
        let log = |name: &str| fs::read(outside.file(name)).with_context(|| name.to_owned());
        ensure!(log("alone.log")? == log("calls.log")?, "the serial log is another one when instructions are counted");
        ensure!(log("alone.log")? == log("flat.log")?, "the serial log is another one when they are counted flat");
        Ok(())
    };
    outcome.check("the kernel does not notice that it is counted", is_same_log());
    let threads = match outside.version >= EACH_VCPU {
        true => is_the_same_on_threads(outside),
        false => is_refused(outside),
    };
    outcome.check("known calls are found on several threads, or these are refused", threads);
}

/// Counts, with QEMU alone before; gives the rows and what was said.
fn count(outside: &Outside, name: &str, options: &[&str]) -> Result<(Rows, String)> {
    let table = outside.file(&format!("{name}.txt"));
    let mut command = run::bound(&outside.tool);
    command.args(["count", "--compare", "--min", "0", "--kernel"]).arg(&outside.kernel).arg("-o").arg(&table);
    command.args(options).arg("--").arg(&outside.qemu).args(outside.machine(&format!("{name}.log"), &COUNTED));
    let done = run::caught(&mut command, LIMIT)?;
    let code = done.status.and_then(|status| status.code());
    ensure!(code == Some(33), "it ended with {code:?}: {}", done.text);
    let text = fs::read_to_string(&table)?;
    let mut rows = Rows::new();
    for line in text.lines().skip(1).take_while(|line| !line.is_empty()) {
        let (numbers, function) = line.rsplit_once("  ").context("a row has a function")?;
        let mut numbers = numbers.split_whitespace();
        let own: u64 = numbers.next().context("a row has a number")?.parse()?;
        let calls = numbers.nth(1).and_then(|calls| calls.parse().ok()).unwrap_or(0);
        let row: &mut (u64, u64) = rows.entry(function.to_owned()).or_default();
        *row = (row.0 + own, row.1 + calls);
    }
    Ok((rows, done.text))
}

fn has_known_calls(rows: &Rows) -> Result<()> {
    let known = [("bare::work", ROUNDS), ("bare::checksum", ROUNDS), ("bare::is_prime", ROUNDS * NUMBERS)];
    for (function, calls) in known {
        let found = rows.get(function).map(|row| row.1);
        ensure!(found == Some(calls), "{function} has {found:?} calls, and not {calls}");
    }
    let sum: u64 = rows.iter().filter(|(name, _)| *name != "all").map(|(_, row)| row.0).sum();
    let all = rows.get("all").map(|row| row.0);
    ensure!(all == Some(sum) && sum > 100_000_000, "the rows have {sum} instructions, and the sum is {all:?}");
    Ok(())
}

fn is_cheap(said: &str, limit: f64) -> Result<()> {
    let (before, _) = said.split_once(" times the processor time").context("the cost is missing")?;
    let times: f64 = before.rsplit(' ').next().context("the cost has a number")?.parse()?;
    eprintln!("counting takes {times} times the processor time of QEMU alone");
    ensure!(times <= limit, "counting takes {times} times as long; {limit} times was promised");
    Ok(())
}

fn is_folded(outside: &Outside, rows: &Rows) -> Result<()> {
    let text = fs::read_to_string(outside.file("calls.folded"))?;
    let mut all = 0;
    let mut primes = 0;
    for line in text.lines() {
        let (stack, count) = line.rsplit_once(' ').context("a line has a count")?;
        let count: u64 = count.parse()?;
        all += count;
        primes += if stack == "kmain;bare::work;bare::is_prime" { count } else { 0 };
    }
    ensure!(
        rows.get("all").map(|row| row.0) == Some(all),
        "the stacks have {all} instructions, the table {:?}",
        rows["all"]
    );
    let own = rows.get("bare::is_prime").map(|row| row.0);
    ensure!(own == Some(primes), "is_prime under work has {primes} instructions, in all {own:?}");
    Ok(())
}

/// CPU 0 samples, CPU 1 works. From the first call of `work` on there is all of it, and nothing of what came before.
fn is_part(outside: &Outside) -> Result<()> {
    let read = |name: &str| fs::read_to_string(outside.file(name)).with_context(|| name.to_owned());
    let of = |text: &str, stack: &str| {
        let count = text.lines().find_map(|line| line.strip_prefix(stack)?.strip_prefix(' ')?.parse::<u64>().ok());
        count.with_context(|| format!("{stack} was not counted"))
    };
    let (whole, part) = (read("calls.folded")?, read("part.folded")?);
    for stack in ["kmain;bare::work", "kmain;bare::work;bare::is_prime"] {
        let (all, inside) = (of(&whole, stack)?, of(&part, &format!("[cpu 1];{stack}"))?);
        ensure!(all == inside, "{stack} has {all} instructions, and {inside} of them from bare::work on");
    }
    let (all, inside) = (of(&whole, "kmain")?, of(&part, "[cpu 1];kmain")?);
    ensure!(inside < all, "kmain has {all} instructions before and in the work, and {inside} from the work on");
    Ok(())
}

/// The work is the same without a clock that counts instructions, and both counts of all instructions are.
fn is_the_same_on_threads(outside: &Outside) -> Result<()> {
    let table = outside.file("threads.txt");
    let mut command = run::bound(&outside.tool);
    command
        .args(["count", "--flat", "--kernel"])
        .arg(&outside.kernel)
        .arg("-o")
        .arg(&table)
        .arg("--")
        .arg(&outside.qemu);
    let machine = ["-smp", "2", "-accel", "tcg,thread=multi", "-cpu", "max"];
    let done = run::caught(command.args(outside.machine("threads.log", &machine)), LIMIT)?;
    let code = done.status.and_then(|status| status.code());
    ensure!(code == Some(33) && done.text.contains("one by one: the same"), "exit code {code:?}: {}", done.text);
    let text = fs::read_to_string(&table)?;
    let one = fs::read_to_string(outside.file("flat.txt"))?;
    let own = |text: &str| {
        let line = text.lines().find(|line| line.ends_with(" bare::is_prime"))?;
        line.split_whitespace().next().map(str::to_owned)
    };
    ensure!(
        own(&text).is_some() && own(&text) == own(&one),
        "is_prime: {:?}, with -icount {:?}",
        own(&text),
        own(&one)
    );
    Ok(())
}

fn is_refused(outside: &Outside) -> Result<()> {
    let mut command = run::bound(&outside.tool);
    command.args(["count", "--kernel"]).arg(&outside.kernel).arg("--").arg(&outside.qemu).args(["-smp", "2"]);
    let done = run::caught(&mut command, LIMIT)?;
    let code = done.status.and_then(|status| status.code());
    ensure!(code == Some(2) && done.text.contains("in one thread"), "exit code {code:?}: {}", done.text);
    Ok(())
}
