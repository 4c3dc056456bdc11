//! Measures the cost of a hit of a point: off, counted, and recorded with a stack of sixteen frames; and that of the
//! four calls of the scheduler for one time that a thread is off its CPU. Under `-icount` the difference of the TSC is
//! the number of instructions.
//!
//! The log gets one line for each state: `point: record, 25.0 instructions`, `point: off the CPU, count, 900.0
//! instructions`. No reader may have the streams.

use alloc::format;
use alloc::vec;
use core::hint::black_box;

use kprof::Unit;
use kprof::format::event::Event;
use kprof::format::marker::Marker;
use kprof_events::{Point, TaskState, TaskTimes};

use crate::{cpu, log, profiling};

static MEASURED: Point = Point::new("measured.hit", Unit::Count);
/// Two threads that do not exist.
static THREADS: [TaskTimes; 2] = [TaskTimes::new(), TaskTimes::new()];

/// The stack of a hit has this many frames, up to the entry of the system call.
pub const FRAMES: usize = 16;

/// Measures `rounds` hits in each state.
pub fn measure(rounds: u64) {
    // The first hit lists the point.
    profiling::EVENTS.hit(&MEASURED, 1);
    set("measured.hit", "record");
    below(0, 1, hit);
    let found = frames(|_| true).unwrap_or(0);
    let more = FRAMES.saturating_sub(found);
    for state in ["off", "count", "record"] {
        set("measured.hit", state);
        mean(state, rounds, |weight| below(more, black_box(weight), hit));
    }
    set("measured.hit", "off");
    let newest = frames(|_| true);
    for state in ["off", "count", "record"] {
        set("sched.off-cpu", state);
        mean(&format!("off the CPU, {state}"), rounds, |_| below(more, 0, time_off_cpu));
    }
    set("sched.off-cpu", "off");
    match newest {
        Some(FRAMES) => {}
        found => log!("point: the last record has {found:?} frames"),
    }
}

/// Writes the mean of what `measured` returns, called with interrupts off.
fn mean(what: &str, rounds: u64, measured: impl Fn(u64) -> u64) {
    let mut spent = 0;
    for round in 0..rounds {
        spent += x86_64::instructions::interrupts::without_interrupts(|| measured(round));
    }
    let tenths = spent * 10 / rounds.max(1);
    log!("point: {what}, {}.{} instructions", tenths / 10, tenths % 10);
}

pub fn set(point: &str, state: &str) {
    command(&format!("event {point} {state}"));
}

/// Gives a command to the profiler. The log says so if it is refused.
pub fn command(line: &str) {
    if let Err(error) = profiling::PROFILER.open_control(0).write(line.as_bytes()) {
        log!("point: {line}: {error}");
    }
}

/// The kernel's frames in the newest record of this CPU that is meant, if there is one.
pub fn frames(is_meant: impl Fn(&Event) -> bool) -> Option<usize> {
    let ctl = profiling::PROFILER.open_control(0);
    ctl.write(b"protocol 1").ok()?;
    let mut bytes = vec![0; 1024 * 1024];
    let read = profiling::PROFILER.open_events(cpu::id(), 0).ok()?.read(&mut bytes).ok()?;
    let words: vec::Vec<u64> = bytes[..read].as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (mut at, mut found) = (0, None);
    while let Some(first) = words.get(at) {
        let record = words.get(at..at + (*first as u16) as usize)?;
        let (event, stack) = Event::of(|word| record.get(word).copied().unwrap_or(0), record.len())?;
        if is_meant(&event) {
            found = Some(record[stack..].iter().take_while(|word| Marker::decode(**word).is_none()).count());
        }
        at += record.len();
    }
    found
}

/// Calls `measured` this many frames deeper.
#[inline(never)]
pub fn below(frames: usize, weight: u64, measured: fn(u64) -> u64) -> u64 {
    match frames {
        0 => measured(weight),
        more => black_box(below(more - 1, weight, measured)),
    }
}

/// The instructions of a hit.
#[inline(never)]
pub fn hit(weight: u64) -> u64 {
    spent(|| profiling::EVENTS.hit(&MEASURED, weight))
}

/// The instructions of the four calls for a thread that blocks, is woken, runs again.
#[inline(never)]
pub fn time_off_cpu(_: u64) -> u64 {
    let ([one, other], events) = (&THREADS, &profiling::EVENTS);
    spent(|| {
        events.switched(one, other, TaskState::Blocked(0));
        events.woken(one);
        events.switched(other, one, TaskState::Preempted);
        events.resumed(one);
    })
}

/// The mean of what `with` returns, less that of what `without` returns: in turns, with interrupts off. Rounded:
/// instructions are whole, but a reading of the clock can be one off, depending on how many instructions were executed
/// before. So this number differs from round to round.
#[inline(always)]
pub fn more(rounds: u64, without: impl Fn(u64) -> u64, with: impl Fn(u64) -> u64) -> i64 {
    let mut more = 0;
    for round in 0..rounds {
        x86_64::instructions::interrupts::without_interrupts(|| {
            shift(round);
            more -= without(round) as i64;
            shift(round / 3);
            more += with(round) as i64;
        });
    }
    whole(more, rounds)
}

/// Executes a few instructions, another number of them for each of sixteen numbers.
#[inline(always)]
pub fn shift(number: u64) {
    (0..number % 16).for_each(|step| {
        black_box(step);
    });
}

/// The mean of `rounds` numbers with this sum, rounded.
pub fn whole(sum: i64, rounds: u64) -> i64 {
    let rounds = rounds.max(1) as i64;
    (sum + rounds / 2).div_euclid(rounds)
}

/// The instructions of `work`. Those of the measurement are measured without it, and subtracted.
#[inline(always)]
pub fn spent(work: impl FnOnce()) -> u64 {
    // SAFETY: RDTSC has no effect. `black_box` completes each reading before the next one begins.
    let look = || black_box(unsafe { core::arch::x86_64::_rdtsc() });
    let start = look();
    let begun = look();
    work();
    let end = look();
    (end - begun) - (begun - start)
}
