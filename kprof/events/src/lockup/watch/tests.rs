//! Tests of the state: each lockup is found once and in time, and nothing else is.

use super::*;

const MS: u64 = 1_000_000;
const N: u64 = 100 * MS;

/// A CPU that is looked at each millisecond.
struct Cpu {
    watch: Watch,
    now: u64,
    found: Vec<(u64, Reason)>,
    /// Where the task has left user code.
    user: Option<u64>,
}

const AT_WORK: Sample =
    Sample { tsc: 0, task: 7, address: 1, interrupts_off: false, is_at_work: true, user_instruction: None };

impl Cpu {
    fn new() -> Self {
        let mut watch = Watch::new();
        watch.restart(5 * MS, Counters::default(), 0);
        Self { watch, now: 5 * MS, found: Vec::new(), user: None }
    }

    /// One check, `step` after the one before.
    fn check(&mut self, step: u64, sample: Option<(u64, bool)>, shown: Shown) {
        self.now += step;
        self.watch.begin(self.now, N);
        if let Some((task, interrupts_off)) = sample {
            let tsc = self.now - step / 2;
            let sample =
                Sample { tsc, address: 0xff00 + task, interrupts_off, user_instruction: self.user, task, ..AT_WORK };
            self.watch.sample(&sample);
        }
        if let Some(reason) = self.watch.end(self.now, &shown, N) {
            self.found.push((self.now, reason));
        }
    }

    fn looks(&mut self, count: u64, sample: Option<(u64, bool)>, shown: Shown) {
        (0..count).for_each(|_| self.check(MS, sample, shown));
    }
}

const ANSWERED: Shown = Shown { pending: 0, answered: true, progress: false, interrupt: false, unknown: 0 };
const PROGRESS: Shown = Shown { progress: true, ..ANSWERED };
const SILENT: Shown = Shown { pending: 1, answered: false, ..ANSWERED };
const UNKNOWN: Shown = Shown { unknown: 1, ..ANSWERED };

#[test]
fn interrupts_off_for_long_enough_are_reported_once_and_in_time() {
    let mut cpu = Cpu::new();
    cpu.looks(50, None, PROGRESS);
    let from = cpu.now;
    cpu.looks(500, Some((7, true)), ANSWERED);
    let [(at, Reason::InterruptsOff)] = cpu.found[..] else { panic!("{:?}", cpu.found) };
    assert!((N..N + 3 * MS).contains(&(at - from)), "{}", at - from);
    let found = cpu.watch.found(Reason::InterruptsOff, 0);
    assert_eq!((found.from, found.task), (from + MS / 2, 7));
    assert_eq!(found.places.iter().collect::<Vec<_>>(), [(0xff07, found.ticks)]);
}

#[test]
fn each_sign_of_progress_ends_a_lockup_and_the_next_one_is_a_new_one() {
    let mut cpu = Cpu::new();
    for _ in 0..2 {
        cpu.looks(99, Some((7, false)), ANSWERED);
        cpu.check(MS, None, PROGRESS);
    }
    assert_eq!(cpu.found, []);
    cpu.looks(200, Some((7, false)), ANSWERED);
    cpu.check(MS, None, PROGRESS);
    cpu.looks(200, Some((7, false)), ANSWERED);
    assert_eq!(cpu.found.iter().map(|found| found.1).collect::<Vec<_>>(), [Reason::OneTask; 2]);
}

#[test]
fn another_task_is_progress_unless_interrupts_stay_off() {
    let mut cpu = Cpu::new();
    for task in 0..300 {
        cpu.check(MS, Some((task % 7, false)), ANSWERED);
    }
    assert_eq!(cpu.found, []);
    for task in 0..300 {
        cpu.check(MS, Some((task % 7, true)), ANSWERED);
    }
    assert_eq!(cpu.found.len(), 1, "{:?}", cpu.found);
    assert_eq!(cpu.found[0].1, Reason::InterruptsOff);
}

#[test]
fn an_interrupt_that_was_served_shows_that_interrupts_were_on() {
    let mut cpu = Cpu::new();
    for task in 0..300 {
        cpu.check(MS, Some((task % 7, true)), Shown { interrupt: task % 50 == 0, ..ANSWERED });
    }
    assert_eq!(cpu.found, []);
}

#[test]
fn a_sample_with_interrupts_on_shows_that_they_were_not_off_all_the_time() {
    let mut cpu = Cpu::new();
    for task in 0..300 {
        cpu.check(MS, Some((task % 7, task % 50 != 0)), ANSWERED);
    }
    assert_eq!(cpu.found, []);
}

#[test]
fn a_cpu_that_takes_no_tick_is_hard_locked_and_one_that_is_late_is_not() {
    let mut cpu = Cpu::new();
    for _ in 0..10 {
        cpu.looks(99, None, SILENT);
        cpu.check(MS, None, Shown { answered: true, ..SILENT });
    }
    assert_eq!(cpu.found, []);
    let from = cpu.now;
    cpu.looks(300, None, SILENT);
    let [(at, Reason::NoAnswer)] = cpu.found[..] else { panic!("{:?}", cpu.found) };
    assert!((N..N + 2 * MS).contains(&(at - from)), "{}", at - from);
    let found = cpu.watch.found(Reason::NoAnswer, 300);
    assert_eq!((found.from, found.ticks, found.unknown, found.task), (from, 300, 300, NO_TASK));
    // It answers again, and shows the code in which it was: not a second lockup.
    cpu.looks(99, Some((7, false)), ANSWERED);
    assert_eq!(cpu.found.len(), 1);
    cpu.looks(99, None, PROGRESS);
    cpu.looks(101, None, SILENT);
    assert_eq!(cpu.found.len(), 2);
}

#[test]
fn a_soft_lockup_is_reported_only_when_the_cpu_was_just_seen_at_work() {
    let mut cpu = Cpu::new();
    cpu.looks(90, Some((7, true)), ANSWERED);
    cpu.looks(30, None, SILENT);
    assert_eq!(cpu.found, []);
    cpu.check(MS, Some((7, true)), ANSWERED);
    assert_eq!(cpu.found.len(), 1);
}

#[test]
fn a_cpu_that_answers_after_a_hard_lockup_begins_anew() {
    let mut cpu = Cpu::new();
    cpu.looks(50, Some((7, false)), ANSWERED);
    cpu.looks(300, None, SILENT);
    cpu.looks(60, Some((7, false)), ANSWERED);
    assert_eq!(cpu.found.iter().map(|found| found.1).collect::<Vec<_>>(), [Reason::NoAnswer]);
}

#[test]
fn places_of_before_the_lockup_are_not_among_its_own() {
    let mut cpu = Cpu::new();
    cpu.looks(40, Some((7, true)), ANSWERED);
    cpu.check(MS, None, PROGRESS);
    cpu.looks(150, Some((8, true)), ANSWERED);
    let found = cpu.watch.found(Reason::InterruptsOff, 0);
    assert_eq!((cpu.found.len(), found.ticks, found.places.iter().collect::<Vec<_>>()), (1, 150, vec![(0xff08, 150)]));
}

#[test]
fn ticks_without_a_sample_prolong_a_lockup_and_have_no_place() {
    let mut cpu = Cpu::new();
    cpu.looks(40, Some((7, true)), ANSWERED);
    cpu.looks(200, None, UNKNOWN);
    let [(_, Reason::OneTask)] = cpu.found[..] else { panic!("{:?}", cpu.found) };
    let found = cpu.watch.found(Reason::OneTask, 0);
    assert_eq!((found.task, found.ticks, found.unknown), (7, 240, 200));
    // With a full ring from the beginning on, the task is not known.
    let mut cpu = Cpu::new();
    cpu.looks(150, None, UNKNOWN);
    let found = cpu.watch.found(Reason::OneTask, 0);
    assert_eq!((cpu.found.len(), found.task, found.ticks, found.places.iter().count()), (1, NO_TASK, 150, 0));
}

#[test]
fn a_sampler_that_was_away_finds_nothing_before_it_has_looked_four_times() {
    for (sample, shown) in [(Some((7, true)), ANSWERED), (None, SILENT)] {
        let mut cpu = Cpu::new();
        (0..3).for_each(|_| cpu.check(1000 * MS, sample, shown));
        assert_eq!(cpu.found, []);
        (0..2).for_each(|_| cpu.check(1000 * MS, sample, shown));
        assert_eq!(cpu.found.len(), 1);
    }
}

#[test]
fn a_restart_forgets_everything_but_the_newest_record() {
    let mut cpu = Cpu::new();
    cpu.watch.newest = Some(64);
    cpu.looks(99, Some((7, true)), ANSWERED);
    cpu.watch.restart(cpu.now, Counters::default(), 128);
    assert_eq!((cpu.watch.newest, cpu.watch.position), (Some(64), 128));
    cpu.looks(99, Some((7, true)), ANSWERED);
    assert_eq!(cpu.found, []);
}

#[test]
fn idle_and_user_samples_are_progress() {
    let mut cpu = Cpu::new();
    for tick in 0..300 {
        cpu.now += MS;
        cpu.watch.begin(cpu.now, N);
        let is_at_work = tick % 20 != 0;
        cpu.watch.sample(&Sample { tsc: cpu.now, interrupts_off: true, is_at_work, ..AT_WORK });
        assert_eq!(cpu.watch.end(cpu.now, &ANSWERED, N), None);
    }
}

#[test]
fn a_program_that_makes_one_system_call_after_the_other_is_not_locked_up() {
    let mut cpu = Cpu::new();
    // No sample finds its user code, because it is there so shortly; but the calls are at two instructions.
    for tick in 0..1000 {
        cpu.user = [Some(0x40_1000), None, Some(0x40_2000)][tick % 3];
        cpu.looks(30, Some((7, false)), ANSWERED);
    }
    assert_eq!(cpu.found, []);
    // It makes a call that does not end. Another task that is locked up is not this one's progress.
    cpu.looks(200, Some((7, false)), ANSWERED);
    assert_eq!(cpu.found.len(), 1);
    cpu.user = Some(0x40_3000);
    cpu.looks(200, Some((8, true)), ANSWERED);
    assert_eq!(cpu.found.iter().map(|found| found.1).collect::<Vec<_>>(), [Reason::OneTask, Reason::InterruptsOff]);
}
