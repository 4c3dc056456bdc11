//! Judges what a profile says of locks: who waited, and who made them wait.
//!
//! In: a profile whose waits were all recorded, and the serial log with a line `known: locks WAITED LONG SHORT` of the
//! workload `locks`, as the kernel itself has counted, in nanoseconds. Out: nothing, or the first thing that is wrong.
//! The sum of all waits for the planted lock is the sum of what its holders were charged with, to the nanosecond. It is
//! what the kernel has counted, and so are the parts of the two functions, up to a thousandth: the kernel reads its
//! clock a little before a wait begins, and a little before a release.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use crate::parts::Parts;

/// How much the profile and the kernel may differ, of the whole time waited.
const BOUND: f64 = 0.001;
/// The share of the function that holds the lock for the longer time.
const LONG_SHARE: f64 = 0.7;
/// The functions of the workload.
const PLANTED: [&str; 3] = [LONG, SHORT, WAITER];
const LONG: &str = "workload::locks::hold_long";
const SHORT: &str = "workload::locks::hold_short";
const WAITER: &str = "workload::locks::wait_for_lock";

/// Judges the profile in `file`.
pub fn judge(file: &Path, log: &str, parts: &Parts, symbols: &Path) -> Result<()> {
    let known =
        log.lines().find_map(|line| line.split_once("known: locks ")).context("the log has no `known: locks`")?;
    let numbers: Vec<u64> = known.1.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [waited, long, short] = numbers[..] else { bail!("known: locks {}", known.1) };
    let stacks = |event: &str| parts.event_stacks::<u64>(event, file, symbols);
    let sum_if = |stacks: &[(String, u64)], is_wanted: &dyn Fn(&str) -> bool| -> u64 {
        stacks.iter().filter(|(stack, _)| is_wanted(stack)).map(|(_, ns)| ns).sum()
    };
    // What a function calls, or an interrupt in it, may take other locks: those of the scheduler.
    let sum = |stacks: &[(String, u64)], name: &str| sum_if(stacks, &|stack| stack.ends_with(name));
    let (waits, holds) = (stacks("lock.wait")?, stacks("lock.hold")?);
    for stacks in [&waits, &holds] {
        ensure!(sum(stacks, "[lost]") == 0, "hits of locks have no record");
    }
    let [wait, hold] = [&waits, &holds].map(|stacks| PLANTED.iter().map(|name| sum(stacks, name)).sum::<u64>());
    println!("  the planted lock: {wait} ns waited, {hold} ns charged to holders; {waited} ns known");
    ensure!(wait == hold, "{wait} ns were waited, but holders were charged with {hold} ns");
    ensure!(sum(&waits, WAITER) == wait, "somebody else has waited");
    let near = |what: &str, found: u64, known: u64| -> Result<()> {
        println!("  {what}: {found} ns, {known} known");
        let bound = BOUND * waited as f64;
        ensure!(found.abs_diff(known) as f64 <= bound, "{what}: {found} ns, but the kernel has counted {known}");
        Ok(())
    };
    near("waited", wait, waited)?;
    let holder = |name: &str| sum(&holds, name);
    let (by_long, by_short) = (holder(LONG), holder(SHORT));
    near("made to wait by `hold_long`", by_long, long)?;
    near("made to wait by `hold_short`", by_short, short)?;
    near("made to wait by the waiters themselves", holder(WAITER), waited.saturating_sub(long + short))?;
    let share = by_long as f64 / (by_long + by_short) as f64;
    println!("  shares of the holders: {:.2} and {:.2} %", 100.0 * share, 100.0 - 100.0 * share);
    ensure!((share - LONG_SHARE).abs() <= 0.01, "`hold_long` has {:.2} % of the holders' time", 100.0 * share);
    let (all_waits, all_holds) = (sum_if(&waits, &|_| true), sum_if(&holds, &|_| true));
    println!("  all locks: {all_waits} ns waited, {all_holds} ns charged to holders");
    // A wait that had not ended when the points were switched off is on one side only.
    let bound = (BOUND * all_waits as f64) as u64;
    ensure!(all_waits.abs_diff(all_holds) <= bound, "all locks: {all_waits} ns waited, {all_holds} ns charged");
    Ok(())
}
