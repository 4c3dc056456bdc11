//! Judges what a profile says of tasks and their waits.
//!
//! In: a profile, and the serial log with lines `known: TASK PARTS LEAST MOST` of the workload `waits`: the least and
//! the greatest number of ticks that the task spent so, as the kernel itself has counted. Out: nothing, or the first
//! thing that is wrong. For every task the parts of its time are all of it, to the tick. All tasks together ran as long
//! as their CPU was not idle, to the tick. For the tasks of the log, the hits of `sched.off-cpu` have the weight of the
//! time in which the task was ready or blocked, up to a nanosecond each.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::parts::Parts;
use crate::run;

/// Parts of a task's time on the CPU, or of an idle task.
const ON_CPU: [&str; 3] = ["running", "idle", "other-tasks"];

/// The ticks of a task by the names of the parts.
type Times = BTreeMap<String, u64>;

/// Judges the profile in `file`.
pub fn judge(file: &Path, log: &str, parts: &Parts, symbols: &Path) -> Result<()> {
    let text = run::output(Command::new(&parts.fold).arg("waits").arg(file).args(["--format", "json"]))?;
    let document: Value = serde_json::from_str(&text).context("`waits` prints JSON")?;
    let tsc_hz = document["tsc_hz"].as_f64().context("the profile has a clock")?;
    let mut tasks = BTreeMap::<String, Times>::new();
    for task in document["tasks"].as_array().into_iter().flatten() {
        let name = task["name"].as_str().context("a task has a name")?;
        let times: Times = serde_json::from_value(task["parts"].clone())?;
        if task["balanced"] != Value::Bool(true) || times.values().sum::<u64>() != task["ticks"].as_u64().unwrap_or(0) {
            bail!("the parts of the time of {name} are not all of it: {task}");
        }
        tasks.insert(name.to_owned(), times);
    }
    if tasks.len() < 3 {
        bail!("the profile has the times of {} tasks only", tasks.len());
    }
    // With one CPU that runs threads, and times up to one moment, what the threads ran is what the idle one did not.
    let idle: Vec<&Times> = tasks.values().filter(|times| times.contains_key("idle")).collect();
    let is_up_to_one_moment = log.contains("known: ");
    if let (&[idle], true) = (idle.as_slice(), is_up_to_one_moment) {
        let part = |times: &Times, name: &str| times.get(name).copied().unwrap_or(0);
        let (ran, others) =
            (tasks.values().map(|times| part(times, "running")).sum::<u64>(), part(idle, "other-tasks"));
        println!("  all tasks: {ran} ticks running; the idle one: {others} ticks in which others ran");
        if ran != others {
            bail!("all tasks ran for {ran} ticks, but the CPU ran tasks for {others}");
        }
    }
    let known = log.lines().filter_map(|line| line.split_once("known: ")).map(|(_, rest)| rest.trim());
    let mut judged = BTreeMap::new();
    for line in known {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, sum, least, most] = words[..] else { bail!("known: {line}") };
        let times = tasks.get(name).with_context(|| format!("the profile has no times of {name}"))?;
        let ticks: u64 = sum.split('+').map(|part| times.get(part).copied().unwrap_or(0)).sum();
        let (least, most): (u64, u64) = (least.parse()?, most.parse()?);
        println!("  {name}: {sum} {ticks} ticks, {least} to {most} expected");
        if ticks < least || ticks > most {
            bail!("{name}: {sum} {ticks} ticks, but the kernel has counted {least} to {most}");
        }
        judged.insert(name, times);
    }
    for (name, times) in judged {
        let off = times.iter().filter(|(part, _)| !ON_CPU.contains(&part.as_str()));
        let expected = off.map(|(_, ticks)| *ticks as f64).sum::<f64>() * 1e9 / tsc_hz;
        let mut fold = Command::new(&parts.fold);
        fold.args(["script", "--event", "sched.off-cpu", "--quiet", "--task", name]).arg(file).arg(symbols);
        let weights: Vec<u64> = run::output(&mut fold)?.lines().filter_map(weight).collect();
        let sum: u64 = weights.iter().sum();
        println!("  {name}: {} events of {sum} ns in all, {expected:.1} ns off the CPU", weights.len());
        // Each weight is rounded down.
        if sum as f64 > expected + 1.0 || (sum as f64) < expected - 1.0 - weights.len() as f64 {
            bail!("{name}: its events have {sum} ns, but it was off the CPU for {expected:.1} ns");
        }
    }
    Ok(())
}

/// The weight in the first line of an event: `TASK CPU TIME: WEIGHT ns: sched.off-cpu: ...`.
fn weight(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(" ns: sched.off-cpu:")?;
    before.rsplit(' ').next()?.parse().ok()
}
