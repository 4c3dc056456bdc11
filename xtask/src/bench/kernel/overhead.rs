//! The overhead table: what each kind of event costs. In: the test kernel, under `-icount`. Out: a row for each kind,
//! and a line per goal.
//!
//! The instructions of one event are measured in a loop in the kernel: with the points off, counted, sampled by weight
//! and not chosen, and recorded with a stack of sixteen frames. They are all that the profiler adds where such an event
//! happens, the clock included. The slowdown is that of the default workload with the points of one kind alone: each
//! run with events has a run without them before and after it. A machine for each kind has a ring for all its records.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Goals, machine, slowdown};
use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::qemu::Accel;
use crate::run;
use crate::test::feature_off::{ENDS, text_bytes};

/// The states that are measured, as the kernel prints them.
const STATES: [&str; 4] = ["off", "count", "not sampled", "record"];
/// The most that the default workload may be slower with the points of one kind, or with all of them, counted.
const SLOWER: f64 = 3.0;
const NONE: f64 = f64::INFINITY;

/// A kind of event.
struct Kind {
    name: &'static str,
    /// Its points in the default workload. Empty: it has no such event, or another row has the same points.
    points: &'static str,
    /// The most instructions in each state.
    limits: [f64; 4],
}

/// A plain point has the limits of the specification. The others read the clock, take the lock of a task, or hit
/// several points, so each has what it costs today as its limit, with a little room: builds of the same code differ by
/// some instructions.
const KINDS: [Kind; 8] = [
    Kind { name: "plain point", points: "null.write", limits: [3.0, 25.0, NONE, 400.0] },
    // Four calls and three hits.
    Kind { name: "time off the CPU", points: "sched.*", limits: [12.0, 870.0, NONE, 1950.0] },
    // Two hits: the waiter's and the holder's. It asks for the states of three points. With one CPU at work nobody
    // waits for a lock.
    Kind { name: "lock that is waited for", points: "", limits: [50.0, 345.0, NONE, 1075.0] },
    // The allocator's own path differs from call to call, so a mean of these few rounds can be three instructions off.
    // `--filter heap` has the specified limit, 12, and takes 4000 rounds.
    Kind { name: "allocation", points: "heap.*", limits: [6.0, 15.0, 15.0, 625.0] },
    Kind { name: "free", points: "", limits: [9.0, 15.0, 15.0, 640.0] },
    // Two instructions for the arguments.
    Kind { name: "request to a disk", points: "", limits: [6.0, 27.0, NONE, 420.0] },
    // The kernel finds the point of the number.
    Kind { name: "system call", points: "syscall.*", limits: [12.0, 60.0, NONE, 440.0] },
    Kind { name: "page fault", points: "page.fault", limits: [3.0, 52.0, NONE, 430.0] },
];

/// What the points of a kind do to the default workload.
struct Slowdown {
    hits: u64,
    counted: f64,
    recorded: f64,
}

/// Measures, prints and judges the table.
///
/// # Errors
/// If a machine does not end well, or a record is lost or has another stack.
pub fn table(goals: &mut Goals, parts: &Parts, on: &Kernel) -> Result<()> {
    let bytes = bytes_with_feature_off(parts)?;
    let ran = machine::run(parts, on, "event-cost", Accel::Icount, 2, "event-ring-words=262144")?;
    ran.passed()?;
    let log = ran.log;
    ensure!(!log.contains("the last record has"), "a record does not have sixteen frames:\n{log}");
    let mut rows = Vec::new();
    for kind in &KINDS {
        let costs: Vec<f64> = STATES.iter().map(|state| cost(&log, kind.name, state)).collect::<Result<_>>()?;
        let slowdown = if kind.points.is_empty() { None } else { Some(slowdown(parts, on, kind.points)?) };
        rows.push((kind, costs, slowdown));
    }
    let all = slowdown(parts, on, "*")?;
    println!(
        "{:24} {:>11} {:>35}   {:>11} {:>28}",
        "", "feature off", "instructions of one event", "", "default workload, slower by"
    );
    println!(
        "{:24} {:>11} {:>6} {:>8} {:>11} {:>8}   {:11} {:>9} {:>9} {:>9}",
        "kind", "bytes", "off", "counted", "not sampled", "recorded", "points", "hits", "counted", "recorded"
    );
    for (kind, costs, slowdown) in &rows {
        let [off, count, not_sampled, record] = costs[..] else { continue };
        let left = format!("{:24} {bytes:>11} {off:>6} {count:>8} {not_sampled:>11} {record:>8}", kind.name);
        match slowdown {
            Some(slowdown) => println!("{left}   {}", slowdown.columns(kind.points)),
            None => println!("{left}"),
        }
    }
    println!("{:24} {bytes:>11} {:37}   {}", "all", "", all.columns("*"));
    goals.at_most("feature off: bytes of code more than without the calls", bytes as f64, 0.0);
    for (kind, costs, slowdown) in &rows {
        for ((state, cost), limit) in STATES.iter().zip(costs).zip(kind.limits).filter(|(_, limit)| *limit < NONE) {
            goals.at_most(&format!("{}, {state}: instructions", kind.name), *cost, limit);
        }
        if let Some(slowdown) = slowdown {
            let what = format!("the default workload with {} counted: slower, percent", kind.points);
            goals.at_most(&what, slowdown.counted, SLOWER);
        }
    }
    goals.at_most("the default workload with all points counted: slower, percent", all.counted, SLOWER);
    Ok(())
}

impl Slowdown {
    fn columns(&self, points: &str) -> String {
        format!("{points:11} {:>9} {:>7.2} % {:>7.2} %", self.hits, self.counted, self.recorded)
    }
}

/// How many bytes larger the code is with the calls than without them, if the feature is off.
fn bytes_with_feature_off(parts: &Parts) -> Result<u64> {
    let sizes = ["", "no-calls"]
        .map(|features| -> Result<u64> { text_bytes(&build::kernel(parts.toolchain, features, &[])?.symbols, ENDS) });
    let [off, without] = sizes;
    Ok(off?.abs_diff(without?))
}

/// The instructions of an event of a kind, from the kernel's log.
pub(super) fn cost(log: &str, kind: &str, state: &str) -> Result<f64> {
    let begins = format!("cost: {kind}, {state}, ");
    let line = log.lines().find_map(|line| line.split_once(&begins)?.1.strip_suffix(" instructions"));
    Ok(line.with_context(|| format!("no line `{begins}` in:\n{log}"))?.parse()?)
}

/// Runs the default workload with these points.
fn slowdown(parts: &Parts, on: &Kernel, points: &str) -> Result<Slowdown> {
    let append = format!("event-ring-words={} points={points}", slowdown::RING_WORDS);
    let ran = machine::run(parts, on, "event-slowdown", Accel::Icount, 2, &append)?;
    ran.passed()?;
    let share = ran.share;
    let text = std::fs::read_to_string(share.join("slowdown.txt"))?;
    let number = |name: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.with_context(|| format!("no line {name} in:\n{text}"))?.trim().parse()?)
    };
    let (words, size) = (number("words-recorded ")?, number("ring-words ")?);
    ensure!(words < size, "{points}: {words} words were recorded, and the ring has {size}");
    let times = slowdown::times(&text)?;
    let percent = |state: &str| Ok::<_, anyhow::Error>(100.0 * slowdown::slower(&times, state)?);
    let mut fold = Command::new(&parts.fold);
    let stat = run::output(fold.arg("latency").arg(share.join("profiling.txt")).args(["--event", points]))?;
    let hits = stat.lines().filter_map(hits).sum();
    ensure!(hits > 0, "the default workload has no hits of {points}:\n{stat}");
    Ok(Slowdown { hits, counted: percent("counted")?, recorded: percent("recorded")? })
}

/// The hits in a line `NAME: N hits, ...` of `kprof-fold latency`.
fn hits(line: &str) -> Option<u64> {
    line.split_once(": ")?.1.split_once(" hits, ")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_with_hits_count() {
        let text = "null.write: 30000 hits, 92160000 bytes in all, mean 3072.0 bytes\n  balanced: 7 hits = 0 recorded";
        assert_eq!(text.lines().filter_map(hits).sum::<u64>(), 30_000);
        let log = "[1] cost: page fault, not sampled, 206 instructions\ncost: page fault, off, 3 instructions\n";
        assert_eq!(cost(log, "page fault", "not sampled").unwrap(), 206.0);
        assert!(cost(log, "page fault", "record").is_err());
    }
}
