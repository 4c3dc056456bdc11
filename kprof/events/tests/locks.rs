//! Locks: the sum of all waits is the sum of what the holders were charged with, and each side has its stack.
#![cfg(all(feature = "profiling", feature = "locks"))]

mod array_kernel;
#[path = "locks/attempts.rs"]
mod attempts;
#[path = "array_kernel/reader.rs"]
mod reader;

use array_kernel::*;
use kprof::{Config, CpuSlot, Profiler};
use kprof_events::{Events, PointCounts, Profiled, RawLock};
use lock_api::{RawMutex as _, RawRwLock as _};
use reader::Reader;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
static EVENTS: Events<ArrayKernel> = Events::new(&PROFILER);
static BOTH: Both = Both { profiler: &PROFILER, events: &EVENTS };
static SLOTS: [CpuSlot; 3] = [const { CpuSlot::new() }; 3];

impl Profiled for ArrayKernel {
    fn events() -> &'static Events<Self> {
        &EVENTS
    }
}

type Raw = RawLock<spin::Mutex<()>, ArrayKernel>;
type RawRw = RawLock<spin::RwLock<()>, ArrayKernel>;
type Mutex<T> = lock_api::Mutex<Raw, T>;

/// Sets the profiler up, once, and returns a reader.
fn reader(state: &str) -> Reader {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        set_up(&BOTH, &SLOTS, Config::new());
        for cpu in [1, 2] {
            EVENTS.register_points(cpu, || Vec::leak((0..8).map(|_| PointCounts::new()).collect())).unwrap();
            EVENTS.register_events(cpu, || memory(1 << 12)).unwrap();
        }
    });
    CPU.store(1, Ordering::Relaxed);
    Reader::begin(&PROFILER, state)
}

/// Waits until another thread waits for the lock, which the caller holds: the wait has begun when this returns.
fn until_somebody_waits(begun: &AtomicU64) {
    while begun.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
}

/// A thread that takes the lock, once, and releases it.
fn waiter(lock: &Raw, begun: &AtomicU64) {
    begun.store(1, Ordering::SeqCst);
    lock.lock();
    // SAFETY: taken one line above.
    unsafe { lock.unlock() };
}

#[test]
fn a_free_lock_is_not_counted_and_off_the_wrapper_is_a_lock() {
    let _alone = alone();
    let reader = reader("event lock.* count");
    let lock = Mutex::new(5);
    *lock.lock() += 1;
    assert!(lock.try_lock().is_some() && !lock.is_locked());
    let held = lock.lock();
    assert!(lock.is_locked() && lock.try_lock().is_none());
    drop(held);
    assert_eq!(lock.into_inner(), 6);
    assert!(reader.accounts(&PROFILER).is_empty(), "nobody has waited");
    assert_eq!(size_of::<Raw>(), 16, "one word beside the inner lock");
}

#[test]
fn the_sum_of_waits_is_the_sum_of_charges_with_threads_that_come_and_go() {
    let _alone = alone();
    let reader = reader("event lock.* count");
    let lock = Mutex::new(0_u64);
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 5_000;
    let begun = AtomicU64::new(0);
    // Somebody waits, also where the host runs the threads one after the other.
    let held = lock.lock();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (lock, begun) = (&lock, &begun);
            scope.spawn(move || {
                begun.store(1, Ordering::SeqCst);
                for round in 0..ROUNDS {
                    let mut held = lock.lock();
                    *held += 1;
                    // So that others are kept waiting also where there are fewer processors than threads.
                    if round % 64 == thread {
                        std::thread::yield_now();
                    }
                }
            });
        }
        until_somebody_waits(&begun);
        drop(held);
    });
    assert_eq!(*lock.lock(), THREADS * ROUNDS, "the lock excludes");
    let accounts = reader.accounts(&PROFILER);
    let weight = |name: &str| accounts[&(name.to_owned(), 1)]["weight"];
    assert!(weight("lock.wait") > 0);
    assert_eq!(weight("lock.wait"), weight("lock.hold"));
}

#[test]
fn a_holder_is_charged_with_the_wait_and_both_records_name_the_lock() {
    let _alone = alone();
    let reader = reader("event lock.* record");
    let (lock, begun) = (Raw::INIT, AtomicU64::new(0));
    lock.lock();
    let held = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on_own_cpu(2);
            waiter(&lock, &begun);
        });
        until_somebody_waits(&begun);
        // SAFETY: this thread holds it.
        unsafe { lock.unlock() };
    });
    let whole = held.elapsed().as_nanos() as u64;
    let address = (&raw const lock).addr() as u64;
    let other_cpu = reader::records(&PROFILER.open_events(2, 1).unwrap());
    let events: Vec<_> = [reader.read(), other_cpu].concat().into_iter().map(|(event, _)| event).collect();
    // The waiter holds the lock after its wait, and is charged with what was waited after the release.
    assert!(matches!(events.len(), 2 | 3), "{events:?}");
    assert!(events.iter().all(|event| event.arguments.as_slice()[0] == address), "{events:?}");
    let accounts = reader.accounts(&PROFILER);
    let wait = &accounts[&("lock.wait".to_owned(), 2)];
    let holds = [1, 2].map(|cpu| accounts.get(&("lock.hold".to_owned(), cpu)).map_or(0, |account| account["weight"]));
    assert_eq!(wait["weight"], holds.iter().sum::<u64>());
    // The clock of these tests is the TSC, said to tick once per nanosecond; real ones are faster.
    assert!(wait["weight"] > 15_000_000 && wait["weight"] < whole * 6, "{wait:?}: {whole} ns on another clock");
}

#[test]
fn readers_and_writers_wait_for_each_other() {
    let _alone = alone();
    let reader = reader("event lock.* count");
    let (lock, begun) = (<RawRw as lock_api::RawRwLock>::INIT, AtomicU64::new(0));
    lock.lock_exclusive();
    assert!(!lock.try_lock_shared() && lock.is_locked_exclusive());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                begun.fetch_add(1, Ordering::SeqCst);
                lock.lock_shared();
                // SAFETY: taken one line above.
                unsafe { lock.unlock_shared() };
            });
        }
        scope.spawn(|| {
            begun.fetch_add(1, Ordering::SeqCst);
            lock.lock_exclusive();
            // SAFETY: taken one line above.
            unsafe { lock.unlock_exclusive() };
        });
        until_somebody_waits(&begun);
        // SAFETY: this thread holds it.
        unsafe { lock.unlock_exclusive() };
    });
    assert!(!lock.is_locked());
    let accounts = reader.accounts(&PROFILER);
    let (wait, hold) = (&accounts[&("lock.wait".to_owned(), 1)], &accounts[&("lock.hold".to_owned(), 1)]);
    assert_eq!(wait["weight"], hold["weight"]);
    assert!(wait["filtered"] >= 1, "{wait:?}");
}

#[test]
fn what_waits_while_the_points_go_off_leaves_nothing_behind() {
    let _alone = alone();
    let reader = reader("event lock.* count");
    let (lock, begun) = (Raw::INIT, AtomicU64::new(0));
    lock.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| waiter(&lock, &begun));
        until_somebody_waits(&begun);
        reader.ctl.write(b"event * off").unwrap();
        // SAFETY: this thread holds it.
        unsafe { lock.unlock() };
    });
    assert!(reader.accounts(&PROFILER).is_empty());
    reader.ctl.write(b"event lock.* count").unwrap();
    lock.lock();
    // SAFETY: taken one line above.
    unsafe { lock.unlock() };
    assert!(reader.accounts(&PROFILER).is_empty(), "the time before is not charged to the next holder");
}

#[test]
fn a_lock_that_notes_its_holder_is_no_larger_and_works_as_any_other() {
    let _alone = alone();
    let _reader = reader("event * off");
    type Named = RawLock<spin::Mutex<()>, ArrayKernel, true>;
    assert_eq!(size_of::<Named>(), size_of::<Raw>());
    let lock = lock_api::Mutex::<Named, u64>::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..1000).for_each(|_| *lock.lock() += 1));
        }
    });
    assert_eq!(lock.try_lock().map(|held| *held), Some(3000));
}
