//! Tests of a check: what the counters of a CPU tell, and what they do not tell.

use super::*;
use crate::event::Event;
use crate::tests::quiet::{self, Quiet};
use core::sync::atomic::Ordering;
use kprof::internals::with_tick;
use kprof::{Config, Outcome, Profiler};

/// A machine that reports lockups of a millisecond.
fn machine(config: Config) -> (&'static Profiler<Quiet>, &'static Events<Quiet>) {
    quiet::machine(Config { tsc_hz: 1_000_000_000, lockup_ms: 1, ..config })
}

fn events(config: Config) -> &'static Events<Quiet> {
    machine(config).1
}

/// Looks again and again, with something that happens on CPU 1 in between, until this many reports were made or
/// twenty times the threshold has passed. Returns the reports. A busy host may not run this thread for a while: such a
/// pause counts as a tenth of the threshold, because nobody looks in it.
fn looks(events: &'static Events<Quiet>, most: usize, mut between: impl FnMut(&CpuSlot)) -> Vec<String> {
    let (mut last, mut passed, mut is_first) = (timestamp::read(), 0, true);
    loop {
        check(events, 0, core::mem::take(&mut is_first));
        let reports = events.kernel().told.lock().unwrap().clone();
        let now = timestamp::read();
        (passed, last) = (passed + (now - last).min(100_000), now);
        if reports.len() >= most || passed > 20_000_000 {
            return reports;
        }
        between(&events.state.shared.slots()[1]);
    }
}

/// A tick whose sample finds the ring full.
fn lose(slot: &CpuSlot) {
    slot.raise_tick();
    with_tick(slot, |_| {
        slot.handler.counters.lost_full.add(1);
        Outcome::Lost
    });
}

#[test]
#[cfg_attr(miri, ignore = "waits in real time")]
fn a_full_ring_hides_the_place_of_a_lockup_but_not_the_lockup_if_switches_are_counted() {
    let count = |events: &'static Events<Quiet>| {
        events.state.slots()[1].by_task.add(Event::ContextSwitch, None);
        events
    };
    let found = looks(count(events(Config::new())), 1, lose);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found.iter().all(|text| text.starts_with("soft lockup: CPU 1 has run nothing but kernel code")));
    // What is not known is never taken for a lockup: the task, or whether user code or the idle task ran.
    let none: [String; 0] = [];
    assert_eq!(looks(events(Config::new()), 1, lose), none);
    assert_eq!(looks(count(events(Config { include_user: true, ..Config::new() })), 1, lose), none);
    assert_eq!(looks(count(events(Config { include_idle: true, ..Config::new() })), 1, lose), none);
}

#[test]
#[cfg_attr(miri, ignore = "waits in real time")]
fn a_cpu_that_is_offline_or_halted_is_not_judged_and_one_that_takes_no_tick_is() {
    let found = looks(events(Config::new()), 1, CpuSlot::raise_tick);
    assert!(found[0].starts_with("hard lockup: CPU 1 has not answered for "), "{found:?}");
    let (profiler, offline) = machine(Config::new());
    profiler.offline(1);
    assert!(looks(offline, 1, CpuSlot::raise_tick).is_empty());
    let state = &events(Config::new()).state;
    let slot = &state.shared.slots()[1];
    let filtered = || counters(slot, &state.slots()[1]).filtered;
    assert_eq!(filtered(), 0);
    slot.sampler.halted.add(1);
    slot.handler.counters.user.add(2);
    slot.handler.counters.idle.add(4);
    assert_eq!(filtered(), 7);
}

#[test]
#[cfg_attr(miri, ignore = "waits in real time")]
fn the_sampler_does_not_judge_itself() {
    let events = events(Config::new());
    let (begin, mut is_first) = (timestamp::read(), true);
    while timestamp::read() - begin < 20_000_000 {
        check(events, 1, core::mem::take(&mut is_first));
        events.state.shared.slots()[1].raise_tick();
    }
    assert!(events.kernel().told.lock().unwrap().is_empty());
}

#[test]
fn what_is_not_certain_is_progress_and_a_served_interrupt_is_none() {
    let shared = events(Config::new()).state.shared;
    let before = Counters { switches: 1, ..Counters::default() };
    let is_progress = |now: Counters, torn| {
        let shown = shown(shared, (&before, &now), 0, torn);
        (shown.progress, shown.interrupt, shown.unknown)
    };
    assert_eq!(is_progress(before, false), (false, false, 0));
    assert_eq!(is_progress(before, true), (true, false, 0));
    assert_eq!(is_progress(Counters { filtered: 1, ..before }, false), (true, false, 0));
    assert_eq!(is_progress(Counters { lost_torn: 1, ..before }, false), (true, false, 0));
    assert_eq!(is_progress(Counters { switches: 2, ..before }, false), (true, false, 0));
    assert_eq!(is_progress(Counters { interrupts: 1, ..before }, false), (false, true, 0));
    assert_eq!(is_progress(Counters { lost_full: 3, ..before }, false), (false, false, 3));
    assert!(is_progress(Counters { lost_full: 3, switches: 0, ..before }, false).0);
}

#[test]
fn a_sample_says_whether_the_cpu_was_at_work_with_interrupts_off() {
    // A kernel in the lower half.
    const KERNEL: u64 = 0x20_1000;
    let of = |stack: &[u64]| {
        let header = SampleHeader { tsc: 5, task: 7, address: stack[0], ..SampleHeader::default() };
        let sample = sample(&[&header.words(), &stack[1..]].concat(), |address| address == KERNEL);
        assert_eq!((sample.tsc, sample.task, sample.address), (5, 7, stack[0]));
        (sample.is_at_work, sample.interrupts_off)
    };
    let facts = |facts| Marker::Facts(Facts(facts)).encode();
    assert_eq!(of(&[KERNEL, KERNEL]), (true, false));
    assert_eq!(of(&[KERNEL, facts(Facts::INTERRUPTS_OFF), KERNEL]), (true, true));
    assert_eq!(of(&[0x40_1000]), (false, false));
    assert_eq!(of(&[KERNEL, facts(Facts::IDLE), KERNEL]), (false, false));
    let in_interrupt = [KERNEL, facts(Facts::IDLE | Facts::INTERRUPTS_OFF), Marker::Interrupt(32).encode(), KERNEL];
    assert_eq!(of(&in_interrupt), (true, true));
}

#[test]
fn a_sample_says_where_user_code_was_left_if_its_stack_is_not_truncated() {
    let of = |stack: &[u64]| sample(&[&SampleHeader::default().words(), stack].concat(), |_| true).user_instruction;
    let (syscall, user) = (Marker::Syscall.encode(), Marker::User.encode());
    assert_eq!(of(&[0x20_1000, 0x20_2000, syscall, user, 0x40_1000, 0x40_2000]), Some(0x40_1000));
    assert_eq!([of(&[]), of(&[0x20_1000, syscall]), of(&[0x20_1000, syscall, user])], [None; 3]);
}

#[test]
#[cfg_attr(miri, ignore = "waits in real time")]
fn with_the_trigger_published_there_is_no_hard_lockup() {
    let published = events(Config::new());
    published.state.shared.set_trigger(Trigger::Published);
    assert!(looks(published, 1, CpuSlot::raise_tick).is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "waits in real time")]
fn what_is_off_is_not_looked_for_and_a_pause_begins_anew() {
    let (profiler, off) = machine(Config::new());
    profiler.open_control(1).write(b"lockup off").unwrap();
    assert!(looks(off, 1, CpuSlot::raise_tick).is_empty());
    // Each check is the first one since sampling was stopped.
    let paused = events(Config::new());
    let begin = timestamp::read();
    while timestamp::read() - begin < 20_000_000 {
        paused.state.shared.slots()[1].sampler.tick.fetch_add(1, Ordering::Relaxed);
        check(paused, 0, true);
    }
    assert!(paused.kernel().told.lock().unwrap().is_empty());
}
