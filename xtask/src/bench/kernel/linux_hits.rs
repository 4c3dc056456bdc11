//! What a hit costs, beside Linux. In: the test kernel, and Debian's Linux with its perf, in turns in the same QEMU
//! under `-icount`. Out: a row for each pair of events, with the ratio, and a line per goal: below Linux.
//!
//! Both run a loop of one system call (the program `call-cost`). The cost of a hit is the difference of its
//! instructions with the event and without it. Both count and record on the whole machine, and perf leaves out the
//! program's stack. A hit of a point of a system call has the time of the call, for which Linux needs two tracepoints.
//! These two record no stack of the kernel, because Linux gives them the registers of the program; the others do.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::perf::Linux;
use super::{Goals, machine};
use crate::build::Kernel;
use crate::parts::Parts;
use crate::qemu::Accel;
use crate::tools::Install;

const TURNS: usize = 2;
/// The most instructions of a hit beside those of Linux.
const BELOW: f64 = 1.0;
const STATES: [&str; 2] = ["count", "record"];
const LIMIT: Duration = Duration::from_secs(300);
/// Without the workarounds for processors that are not this one: they would make each call longer.
const LINUX: &str = "nokaslr mitigations=off";

/// Our point, the name of Linux's event in the script, and its description.
const PAIRS: [(&str, &str, &str); 4] = [
    ("null.write", "plain", "timer:itimer_state"),
    ("syscall.getppid", "call", "syscalls:sys_enter_getppid"),
    ("syscall.getppid", "time", "syscalls:sys_enter_getppid + sys_exit_..."),
    ("probe", "probe", "kprobe at __x64_sys_getppid"),
];

/// Measures, prints and judges the pairs.
///
/// # Errors
/// If a machine does not end well, or perf records nothing.
pub fn compare(goals: &mut Goals, parts: &Parts, on: &Kernel, install: Install) -> Result<()> {
    let program = parts.programs.join("call-cost");
    let linux = Linux::prepare(parts, install, include_str!("tracepoints.sh"), &[&program])?;
    let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        let ran = machine::run(parts, on, "event-calls", Accel::Icount, 2, "event-ring-words=16777216")?;
        ran.passed()?;
        ours.push(std::fs::read_to_string(ran.share.join("calls.txt"))?);
        theirs.push(linux.run(parts, (Accel::Icount, 1), LINUX, LIMIT)?);
    }
    let mut judged = Vec::new();
    println!("{:15} {:41} {:8} {:>7} {:>7} {:>6}", "point", "event of Linux", "a hit", "kprof", "Linux", "ratio");
    for (point, event, shown) in PAIRS {
        for state in STATES {
            let [kprof, perf] = [(&ours, point), (&theirs, event)].map(|(logs, name)| mean(logs, name, state));
            let (kprof, perf) = (kprof?, perf?);
            let ratio = kprof / perf;
            println!("{point:15} {shown:41} {state:8} {kprof:>7.0} {perf:>7.0} {ratio:>6.3}");
            judged.push((format!("a hit of {point}, {state}: instructions beside those of {shown}"), ratio));
        }
    }
    judged.iter().for_each(|(what, ratio)| goals.at_most(what, *ratio, BELOW));
    Ok(())
}

/// The mean over the turns of the instructions of a hit.
fn mean(logs: &[String], name: &str, state: &str) -> Result<f64> {
    let costs: Vec<f64> = logs.iter().map(|log| cost(log, name, state)).collect::<Result<_>>()?;
    Ok(costs.iter().sum::<f64>() / costs.len() as f64)
}

/// The instructions of a hit: those of a call in a line `NAME STATE INSTRUCTIONS`, less those in the lines before and
/// after it.
fn cost(log: &str, name: &str, state: &str) -> Result<f64> {
    let of_name = |line: &str| {
        let (state, instructions) = line.trim_end().strip_prefix(name)?.strip_prefix(' ')?.split_once(' ')?;
        Some((state.to_owned(), instructions.parse().ok()?))
    };
    let lines: Vec<(String, f64)> = log.lines().filter_map(of_name).collect();
    let at = lines.iter().position(|(of, _)| of == state).with_context(|| format!("no {name} {state} in:\n{log}"))?;
    match lines.get(at.wrapping_sub(1)..at + 2) {
        Some([(before, without), (_, with), (after, later)]) if before == "off" && after == "off" => {
            Ok(with - (without + later) / 2.0)
        }
        _ => bail!("{name} {state} has no run without it before and after it:\n{log}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_costs_what_its_run_takes_more_than_the_runs_beside_it() {
        let log = "other off 1\r\ncall off 100\r\ncall count 130.5\r\ncall off 101\r\ncall record 200\r\n";
        assert_eq!(cost(log, "call", "count").unwrap(), 30.0);
        assert!(cost(log, "call", "record").unwrap_err().to_string().contains("no run without it before and after"));
        assert!(cost(log, "other", "count").is_err());
    }
}
