//! `kprof-record stat`: counts instead of stacks.
//!
//! In: ctl, which counts since the session began. Out: events, and shares of the time that add up to 100 %. Runs in: user
//! process. The shares are shares of ticks: each tick is counted by what its CPU was doing.

use super::account::Account;
use crate::by_task::ByTask;
use crate::ctl::Ctl;
use kprof_format::counter::Counter;
use kprof_format::fact::Fact;
use kprof_format::record::EVENT_NAMES;
use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

/// The maximum number of lines in the table by task.
const MAX_TASKS: usize = 20;

/// What can become of a tick: the kernel's counter and the words for it.
const KINDS: [(Counter, &str); 7] = [
    (Counter::User, "user"),
    (Counter::IrqOn, "kernel, interrupts on"),
    (Counter::IrqOff, "kernel, interrupts off"),
    (Counter::Interrupt, "interrupt or exception"),
    (Counter::Idle, "idle"),
    (Counter::Coalesced, "coalesced with the next tick"),
    (Counter::Pending, "not taken: the CPU did not answer"),
];

/// Writes the counts and shares.
///
/// # Errors
/// Errors of the writer.
pub fn write(
    out: &mut impl Write,
    ctl: &Ctl,
    by_task: &ByTask,
    command: &[OsString],
    elapsed: Duration,
) -> io::Result<()> {
    let seconds = elapsed.as_secs_f64();
    let command: Vec<String> = command.iter().map(|word| word.display().to_string()).collect();
    let account = Account(ctl);
    let fact = |fact, unknown| ctl.fact(fact).unwrap_or(unknown);
    let (cpus, hz, clock) = (ctl.cpus().count(), fact(Fact::Hz, "?"), fact(Fact::Clock, "tsc"));
    let clock = if clock == "instructions" { "; time is counted in instructions" } else { "" };
    let name = if command.is_empty() { "the whole system".into() } else { format!("`{}`", command.join(" ")) };
    writeln!(out, "{name}: {seconds:.2} s, {cpus} CPUs sampled at {hz} Hz{clock}\n")?;
    for event in Counter::EVENTS {
        let (count, event) = (account.sum(event), event.name());
        writeln!(out, "{count:>14}  {event:<18} {:>12.1} /s", count as f64 / seconds.max(1e-9))?;
    }
    let sent = account.sum(Counter::Sent);
    writeln!(out, "{sent:>14}  ticks\n")?;
    let shares = KINDS.map(|(counter, words)| (words, account.sum(counter)));
    for (words, ticks) in shares.into_iter().chain([("lost", account.lost())]) {
        writeln!(out, "{:>12.1} %  {words}", percent(ticks, sent))?;
    }
    let named: u64 = shares.iter().map(|(_, ticks)| ticks).sum::<u64>() + account.lost();
    if named != sent {
        let rest = sent.abs_diff(named);
        writeln!(out, "{:>12.1} %  not accounted for ({rest} ticks): the counters do not add up", percent(rest, sent))?;
    }
    write_tasks(out, &by_task.table())
}

/// Writes the table by task; nothing if the kernel does not count by task.
fn write_tasks(out: &mut impl Write, table: &[(String, [u64; 3])]) -> io::Result<()> {
    if table.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}  task", EVENT_NAMES.map(|event| format!("{event:>18}")).concat())?;
    for (name, counts) in table.iter().take(MAX_TASKS) {
        writeln!(out, "{}  {name}", counts.map(|count| format!("{count:>18}")).concat())?;
    }
    match table.len().saturating_sub(MAX_TASKS) {
        0 => Ok(()),
        more => writeln!(out, "and {more} tasks with fewer events"),
    }
}

fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_everything() {
        let text = "hz 1000\nclock instructions\ncpu.1.sent 200\ncpu.1.coalesced 6\ncpu.1.pending 4\ncpu.1.user 90\ncpu.1.idle 20\n\
                    cpu.1.irq-on 50\ncpu.1.irq-off 20\ncpu.1.interrupt 8\ncpu.1.lost-full 2\n\
                    cpu.1.context-switches 5\ncpu.1.page-faults 7\ncpu.1.interrupts 9\n";
        let ctl = Ctl::parse(text);
        let mut out = Vec::new();
        let mut by_task = ByTask::default();
        by_task.add(b"cp", b"context-switches=4 page-faults=7 interrupts=2");
        write(&mut out, &ctl, &by_task, &["cp".into(), "a".into()], Duration::from_secs(2)).unwrap();
        let out = String::from_utf8(out).unwrap();
        let shares: Vec<f64> = out.lines().filter_map(|line| line.split_once(" %")?.0.trim().parse().ok()).collect();
        assert_eq!(shares, [45.0, 25.0, 10.0, 4.0, 10.0, 3.0, 2.0, 1.0], "{out}");
        assert!(out.contains("`cp a`: 2.00 s, 1 CPUs sampled at 1000 Hz; time is counted in instructions"), "{out}");
        assert!(out.contains("5  context-switches            2.5 /s"), "{out}");
        assert!(!out.contains("not accounted"), "{out}");
        assert!(out.ends_with("                 4                 7                 2  cp\n"), "{out}");
    }
}
