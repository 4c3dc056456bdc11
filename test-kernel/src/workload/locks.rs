//! A lock that others wait for, held by two functions: the kernel itself counts who waits and who holds, and never asks
//! the profiler.
//!
//! Of each ten milliseconds one function holds the lock for seven and the other for three, while two threads wait. The
//! log gets a line `known: locks WAITED LONG SHORT`: the nanoseconds that the threads have waited, and those in which
//! they waited for each of the functions. The rest of the first is the time from a release on until a thread has the
//! lock, and for which the thread before it has it. Needs three CPUs that run threads.

use core::array;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::cpu::clock;
use crate::lock::Lock;
use crate::log;
use crate::profiling::RawKernelLock;
use crate::task::thread;

const WAITERS: usize = 2;
const LONG_NS: u64 = 7_000_000;
const SHORT_NS: u64 = 3_000_000;

static LOCK: Lock<u64, RawKernelLock> = Lock::new(0);
/// The number of the round; in each, both threads wait once.
static ROUND: AtomicU64 = AtomicU64::new(0);
/// Since when each thread waits, in ticks of the TSC; 0: it does not.
static BEGUN: [AtomicU64; WAITERS] = [const { AtomicU64::new(0) }; WAITERS];
/// How many waits have ended, and how many ticks they have lasted.
static ENDED: AtomicU64 = AtomicU64::new(0);
static WAITED: AtomicU64 = AtomicU64::new(0);

/// Runs this many rounds, each with both functions.
pub fn run(rounds: u64) {
    let waits = 2 * rounds;
    ROUND.store(0, Ordering::SeqCst);
    ENDED.store(0, Ordering::SeqCst);
    WAITED.store(0, Ordering::SeqCst);
    for number in 0..WAITERS {
        thread::spawn_kernel("lock-waiter", move || (1..=waits).for_each(|round| wait_for_lock(number, round)));
    }
    let (mut long, mut short) = (0, 0);
    for round in 0..rounds {
        long += hold_long(2 * round + 1);
        short += hold_short(2 * round + 2);
    }
    let [waited, long, short] = [WAITED.load(Ordering::SeqCst), long, short].map(ns);
    log!("known: locks {waited} {long} {short}");
}

/// Holds the lock for the longer time. Returns for how many ticks others have waited.
#[inline(never)]
fn hold_long(round: u64) -> u64 {
    let held = LOCK.lock();
    let waited = keep_waiting(round, LONG_NS);
    drop(held);
    until_all_had_it(round);
    waited
}

/// Holds the lock for the shorter time.
#[inline(never)]
fn hold_short(round: u64) -> u64 {
    let held = LOCK.lock();
    let waited = keep_waiting(round, SHORT_NS);
    drop(held);
    until_all_had_it(round);
    waited
}

/// Lets the threads begin to wait, and returns later how long all of them have waited until then.
#[inline(never)]
fn keep_waiting(round: u64, for_ns: u64) -> u64 {
    ROUND.store(round, Ordering::SeqCst);
    let mut begun = [0; WAITERS];
    while begun.contains(&0) {
        core::hint::spin_loop();
        begun = array::from_fn(|number| BEGUN[number].load(Ordering::SeqCst));
    }
    let end = clock::now_ns() + for_ns;
    while clock::now_ns() < end {
        core::hint::spin_loop();
    }
    let now = clock::tsc();
    begun.iter().map(|begun| now.saturating_sub(*begun)).sum()
}

/// Waits for the lock once in each round.
#[inline(never)]
fn wait_for_lock(number: usize, round: u64) {
    while ROUND.load(Ordering::SeqCst) < round {
        core::hint::spin_loop();
    }
    let begun = clock::tsc();
    BEGUN[number].store(begun, Ordering::SeqCst);
    let mut held = LOCK.lock();
    let waited = clock::tsc().saturating_sub(begun);
    *held += 1;
    drop(held);
    BEGUN[number].store(0, Ordering::SeqCst);
    WAITED.fetch_add(waited, Ordering::SeqCst);
    ENDED.fetch_add(1, Ordering::SeqCst);
}

fn until_all_had_it(round: u64) {
    while ENDED.load(Ordering::SeqCst) < round * WAITERS as u64 {
        core::hint::spin_loop();
    }
}

fn ns(ticks: u64) -> u64 {
    (u128::from(ticks) * 1_000_000_000 / u128::from(clock::tsc_hz())) as u64
}
