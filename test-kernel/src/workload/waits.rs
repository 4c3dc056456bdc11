//! Threads whose waits are known: the kernel itself counts what they do, in the threads, and never asks the profiler.
//!
//! A thread sleeps a known time; one waits for another, which says when it wakes it; two with the same amount of work
//! compete for a CPU. The log gets lines `known: THREAD PARTS LEAST MOST`: how many ticks of the TSC the thread did
//! that, at least and at most. Parts are those of `kprof-fold waits`, joined by `+`. The bounds are right if one CPU
//! runs threads and QEMU counts instructions.

use alloc::sync::Arc;
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use x86_64::instructions::interrupts;

use crate::cpu::{clock, turns};
use crate::log;
use crate::task::thread;
use crate::wait::{self, Reason, WaitQueue};

const SLEEP_NS: u64 = 10_000_000;
const TURN_NS: u64 = 7_000_000;
/// The work of each competing thread in a round, in iterations.
const WORK: u64 = 2_000_000;
/// What the kernel needs, in nanoseconds, from where a thread reads the clock to where it leaves its CPU, or back.
const SLACK_NS: u64 = 20_000;

/// How many threads have ended.
struct Ended {
    count: AtomicU64,
    changed: WaitQueue,
}

impl Ended {
    fn add(&self) {
        self.count.fetch_add(1, Ordering::Release);
        self.changed.wake();
    }
}

/// A turn that one thread waits for and another gives.
struct Turn {
    given: AtomicU64,
    /// When the last one was given.
    given_at: AtomicU64,
    changed: WaitQueue,
}

fn ticks(ns: u64) -> u64 {
    (ns as u128 * clock::tsc_hz() as u128 / 1_000_000_000) as u64
}

fn known(thread: &str, parts: &str, least: u64, most: u64) {
    log!("known: {thread} {parts} {least} {most}");
}

/// Runs all threads for this many rounds.
pub fn run(rounds: u64) {
    let ended = Arc::new(Ended { count: AtomicU64::new(0), changed: WaitQueue::new(Reason::Workload) });
    let start = |name: &'static str, work: fn(u64, &Turn, &'static str), turn: &Arc<Turn>| {
        let (ended, turn) = (ended.clone(), turn.clone());
        thread::spawn_kernel(name, move || {
            work(rounds, &turn, name);
            ended.add();
        });
    };
    let turn =
        Turn { given: AtomicU64::new(0), given_at: AtomicU64::new(0), changed: WaitQueue::new(Reason::Workload) };
    let turn = Arc::new(turn);
    start("sleeper", sleeper, &turn);
    start("waiter", waiter, &turn);
    start("giver", giver, &turn);
    ended.changed.wait(|| ended.count.load(Ordering::Acquire) == 3);
    start("rival-1", rival, &turn);
    start("rival-2", rival, &turn);
    ended.changed.wait(|| ended.count.load(Ordering::Acquire) == 5);
}

/// Sleeps; no interrupt comes between the clock and the sleep.
#[inline(never)]
fn sleeper(rounds: u64, _: &Turn, name: &str) {
    let (mut asked, mut most) = (0, 0);
    for _ in 0..rounds {
        interrupts::without_interrupts(|| {
            let (before, deadline_ns) = (clock::tsc(), clock::now_ns() + SLEEP_NS);
            wait::sleep_until(deadline_ns, false);
            asked += ticks(SLEEP_NS);
            most += clock::tsc() - before;
        });
    }
    known(name, "blocked.sleep", asked - rounds * ticks(SLACK_NS), most);
}

/// Waits for a turn, again and again.
#[inline(never)]
fn waiter(rounds: u64, turn: &Turn, name: &str) {
    let mut waited = 0;
    for round in 1..=rounds {
        interrupts::without_interrupts(|| {
            let before = clock::tsc();
            turn.changed.wait(|| turn.given.load(Ordering::Acquire) >= round);
            waited += turn.given_at.load(Ordering::Relaxed).saturating_sub(before);
        });
    }
    let slack = rounds * ticks(SLACK_NS);
    known(name, "blocked.workload", waited.saturating_sub(slack), waited + slack);
}

/// Gives a turn after each of its sleeps.
#[inline(never)]
fn giver(rounds: u64, turn: &Turn, _: &str) {
    for _ in 0..rounds {
        wait::sleep_until(clock::now_ns() + TURN_NS, false);
        interrupts::without_interrupts(|| {
            turn.given_at.store(clock::tsc(), Ordering::Relaxed);
            turn.given.fetch_add(1, Ordering::Release);
            turn.changed.wake();
        });
    }
}

/// Works without a wait. How long it works is measured before, with interrupts off.
#[inline(never)]
fn rival(rounds: u64, _: &Turn, name: &str) {
    let (alone, begun) = interrupts::without_interrupts(|| {
        let before = clock::tsc();
        work();
        let begun = clock::tsc();
        (begun - before, begun)
    });
    (0..rounds).for_each(|_| work());
    let (whole, slack) = (clock::tsc() - begun, ticks(SLACK_NS));
    let works = rounds * alone;
    // If QEMU shares turns, the sampler CPU runs between the instructions of a work, not always equally long.
    let beside = if turns::is_shared() { works / 1000 } else { 0 };
    // Interrupts count as the work of the thread that they interrupt, and take less than a twentieth.
    known(name, "running", works + alone - beside, works + works / 20 + alone + slack);
    known(name, "running+preempted", whole + alone, whole + alone + slack);
    known(name, "preempted", (whole - works).saturating_sub(works / 20), whole - works + beside);
}

#[inline(never)]
fn work() {
    (0..WORK).for_each(|number| {
        black_box(number);
    });
}
