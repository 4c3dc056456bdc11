//! The lockups of a profile: CPUs that the kernel has reported as stuck. Stage: read.
//!
//! In: `# lockup` lines and the `# lockup-stack` lines that belong to them. Out: one [`Lockup`] for each report, with
//! where the CPU was and the newest stack of every CPU. A report that stands in the file twice (a serial log may have
//! the report itself and its records) counts once.

use kprof_format::line::{self, Hex, Name};
use kprof_format::lockup::{LockupCounter, Reason, address_of_name, lock_of_name, stack_of_text};
use std::collections::BTreeMap;

/// A CPU that was locked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lockup {
    /// When it was found, in TSC ticks.
    pub tsc: u64,
    /// Since when the CPU had shown no progress.
    pub from: u64,
    /// The CPU.
    pub cpu: u64,
    /// `soft` or `hard`.
    pub kind: String,
    /// What was seen, by the kernel's word.
    pub reason: String,
    /// The task, if it is known.
    pub task: Option<Vec<u8>>,
    /// The ticks of the lockup.
    pub ticks: u64,
    /// Those of the ticks that have no address.
    pub unknown: u64,
    /// How many ticks found the CPU at which address.
    pub places: BTreeMap<u64, u64>,
    /// The address of the lock that the CPU waited for, and the CPU on which it was taken, if that is known.
    pub holder: Option<(u64, u64)>,
    /// The newest stacks.
    pub stacks: Vec<Stack>,
}

/// The newest stack of a CPU when a lockup was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The CPU.
    pub cpu: u64,
    /// When it was sampled, in TSC ticks.
    pub tsc: u64,
    /// The task.
    pub task: Vec<u8>,
    /// Addresses and markers, innermost first.
    pub words: Vec<u64>,
}

impl Lockup {
    /// For how many milliseconds the CPU was locked up when this was found.
    pub fn ms(&self, tsc_hz: f64) -> f64 {
        self.tsc.saturating_sub(self.from) as f64 * 1000.0 / tsc_hz
    }

    /// What the sampler has seen, as the end of a sentence about the CPU.
    pub fn what(&self) -> &str {
        match Reason::of(&self.reason) {
            Some(Reason::InterruptsOff) => "had interrupts off",
            Some(Reason::OneTask) => "ran nothing but kernel code of one task",
            Some(Reason::NoAnswer) => "did not answer",
            None => &self.reason,
        }
    }
}

/// Adds the lockup of a line.
pub fn add(lockups: &mut Vec<Lockup>, line: &line::Lockup<'_>) {
    let (Hex(tsc), Hex(from), cpu) = (line.tsc, line.from, line.cpu);
    if lockups.iter().any(|known| (known.tsc, known.cpu) == (tsc, cpu)) {
        return;
    }
    let mut lockup = Lockup {
        tsc,
        from,
        cpu,
        kind: line.kind.to_string(),
        reason: line.reason.to_string(),
        task: line.task.map(bytes),
        ..Lockup::default()
    };
    for (name, count) in line.counters.in_text() {
        match (LockupCounter::of(name), address_of_name(name)) {
            (Some(LockupCounter::Ticks), _) => lockup.ticks = count,
            (Some(LockupCounter::Unknown), _) => lockup.unknown = count,
            (None, Some(address)) => drop(lockup.places.insert(address, count)),
            (None, None) => lockup.holder = lock_of_name(name).map(|lock| (lock, count)).or(lockup.holder),
        }
    }
    lockups.push(lockup);
}

/// Adds the stack of a line to its lockup. Without one it is ignored.
pub fn add_stack(lockups: &mut [Lockup], line: &line::LockupStack<'_>) {
    let text = line.stack.to_string();
    let stack = Stack { cpu: line.cpu, tsc: line.tsc.0, task: bytes(line.task), words: stack_of_text(&text).collect() };
    // Two CPUs may be found locked up at the same moment: each of the two reports has all stacks.
    for lockup in lockups.iter_mut().filter(|lockup| lockup.tsc == line.of.0) {
        if lockup.stacks.iter().all(|known| known.cpu != stack.cpu) {
            lockup.stacks.push(stack.clone());
        }
    }
}

/// Adds the lockups of a later header of the same boot.
pub fn extend(lockups: &mut Vec<Lockup>, newer: Vec<Lockup>) {
    let is_new = |lockup: &Lockup| !lockups.iter().any(|known| (known.tsc, known.cpu) == (lockup.tsc, lockup.cpu));
    let newer: Vec<Lockup> = newer.into_iter().filter(is_new).collect();
    lockups.extend(newer);
}

fn bytes(name: Name<'_>) -> Vec<u8> {
    name.bytes().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kprof_format::line::Line;

    fn read(lines: &[&str]) -> Vec<Lockup> {
        let mut lockups = Vec::new();
        for text in lines {
            match Line::parse(text).unwrap() {
                Line::Lockup(line) => add(&mut lockups, &line),
                Line::LockupStack(line) => add_stack(&mut lockups, &line),
                other => panic!("{other}"),
            }
        }
        lockups
    }

    const LOCKUP: &str =
        " lockup tsc=f cpu=2 from=5 kind=soft reason=one-task ticks=9 unknown=2 at-ffffffff80000000=7 task=sh";
    const STACK: &str = " lockup-stack of=f cpu=1 tsc=d stack=ffffffff80000001,ffffffff80000002 task=dd";

    #[test]
    fn a_report_that_is_there_twice_counts_once() {
        let once = read(&[LOCKUP, STACK]);
        assert_eq!(once, read(&[LOCKUP, STACK, LOCKUP, STACK]));
        assert_eq!((once.len(), once[0].ticks, once[0].unknown, once[0].stacks.len()), (1, 9, 2, 1));
        assert_eq!(once[0].places, BTreeMap::from([(0xffff_ffff_8000_0000, 7)]));
        assert_eq!(once[0].task.as_deref(), Some(&b"sh"[..]));
        let mut twice = once.clone();
        extend(&mut twice, once.clone());
        assert_eq!(twice, once);
    }

    #[test]
    fn the_holder_of_the_lock_that_a_cpu_waits_for_is_read() {
        let line = " lockup tsc=f cpu=2 from=5 kind=soft reason=one-task ticks=7 holder-ffffffff80400004=3 \
                    at-ffffffff80000000=7 other=5 task=sh";
        let lockups = read(&[line, LOCKUP.replace("tsc=f", "tsc=10").as_str()]);
        let holders = lockups.iter().map(|lockup| lockup.holder).collect::<Vec<_>>();
        assert_eq!(holders, [Some((0xffff_ffff_8040_0004, 3)), None]);
        assert_eq!(lockups[0].places.len(), 1);
    }

    #[test]
    fn a_stack_goes_to_its_own_lockup() {
        let lockups = read(&[LOCKUP, " lockup tsc=ff cpu=2 from=fa kind=hard reason=no-answer ticks=3", STACK]);
        assert_eq!(lockups.iter().map(|lockup| lockup.stacks.len()).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(lockups[1].task, None);
    }
}
