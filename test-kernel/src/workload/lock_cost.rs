//! Measures what the profiler adds to a lock that nobody waits for. Under `-icount` the difference of the TSC is the
//! number of instructions.
//!
//! The log gets lines `lock: off, 2 instructions more`: for taking and releasing a lock that the profiler watches,
//! beside the same lock without it, in turns; with the points of locks off, and recorded. Then `lock: leaf, off, ...`:
//! a function that calls nothing, not even in the lock, has no frame; with two calls that are hardly ever made it has
//! one. And `lock: try, off, ...`: the same as the first, with an attempt that succeeds.

use alloc::format;
use core::hint::black_box;

use lock_api::{Mutex, RawMutex};

use super::points::{more, set, spent};
use crate::log;
use crate::profiling::RawKernelLock;

static PLAIN: Mutex<spin::Mutex<()>, u64> = Mutex::new(0);
static WATCHED: Mutex<RawKernelLock, u64> = Mutex::new(0);

/// Measures `rounds` locks in each state.
pub fn measure(rounds: u64) {
    for state in ["off", "record"] {
        set("lock.*", state);
        mean(state, rounds, [plain, watched]);
        mean(&format!("leaf, {state}"), rounds, [plain_leaf, watched_leaf]);
        set("try_lock.*", state);
        mean(&format!("try, {state}"), rounds, [plain_try, watched_try]);
    }
    ["lock.*", "try_lock.*"].into_iter().for_each(|points| set(points, "off"));
}

fn mean(what: &str, rounds: u64, works: [fn(); 2]) {
    let [plain, watched] = works.map(|work| move |_| instructions(black_box(work)));
    log!("lock: {what}, {} instructions more", more(rounds, plain, watched));
}

/// The same code measures both, because the compiler moves instructions between readings of the clock.
#[inline(never)]
fn instructions(work: fn()) -> u64 {
    spent(work)
}

#[inline(never)]
fn plain() {
    count(&PLAIN, next);
}

#[inline(never)]
fn watched() {
    count(&WATCHED, next);
}

#[inline(never)]
fn plain_leaf() {
    count(&PLAIN, |number| number + 1);
}

#[inline(never)]
fn watched_leaf() {
    count(&WATCHED, |number| number + 1);
}

#[inline(never)]
fn plain_try() {
    try_count(&PLAIN);
}

#[inline(never)]
fn watched_try() {
    try_count(&WATCHED);
}

#[inline(never)]
fn next(number: u64) -> u64 {
    black_box(number) + 1
}

/// Takes the lock and releases it.
#[inline(always)]
fn count<R: RawMutex>(lock: &Mutex<R, u64>, next: impl FnOnce(u64) -> u64) {
    let mut held = lock.lock();
    *held = next(*held);
}

/// The same with an attempt; nobody else has the lock.
#[inline(always)]
fn try_count<R: RawMutex>(lock: &Mutex<R, u64>) {
    if let Some(mut held) = lock.try_lock() {
        *held = next(*held);
    }
}
