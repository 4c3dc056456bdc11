//! Locks: attempts, waits with a time limit, upgradable readers.
//!
//! In: locks of `spin` and `parking_lot`, threads that hold them at known times. Out: whose hits there are, and that
//! the sum of waits is that of charges. Runs in: the test program `locks`.

use super::array_kernel::{ArrayKernel, alone};
use super::reader::{Account, Reader};
use super::{PROFILER, reader};
use kprof_events::RawLock;
use lock_api::{
    RawMutex as _, RawMutexFair as _, RawMutexTimed as _, RawRwLock as _, RawRwLockDowngrade as _, RawRwLockFair as _,
    RawRwLockRecursive as _, RawRwLockRecursiveTimed as _, RawRwLockTimed as _, RawRwLockUpgrade as _,
    RawRwLockUpgradeDowngrade as _, RawRwLockUpgradeFair as _, RawRwLockUpgradeTimed as _,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

type Raw = RawLock<parking_lot::RawMutex, ArrayKernel>;
type RawRw = RawLock<parking_lot::RawRwLock, ArrayKernel>;
type SpinRw = RawLock<spin::RwLock<()>, ArrayKernel>;

const SHORT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_millis(20);
/// The clock of these tests is the TSC, said to tick once per nanosecond; real ones are faster, by at most this.
const FASTEST: u64 = 6;

/// The accounts of `lock.wait`, `lock.hold` and `try_lock.failed`.
fn accounts(reader: &Reader) -> [Account; 3] {
    let mut accounts = reader.accounts(&PROFILER);
    ["lock.wait", "lock.hold", "try_lock.failed"].map(|name| accounts.remove(&(name.to_owned(), 1)).unwrap_or_default())
}

fn of(account: &Account, name: &str) -> u64 {
    account.get(name).copied().unwrap_or(0)
}

/// How many hits, and the sum of their weights.
fn hits(account: &Account) -> (u64, u64) {
    (["recorded", "filtered", "lost"].iter().map(|name| of(account, name)).sum(), of(account, "weight"))
}

#[test]
fn attempts_that_fail_are_counted_and_are_no_waits() {
    let _alone = alone();
    let all = reader("event lock.* count\nevent try_lock.* count");
    let lock = Raw::INIT;
    assert!(lock.try_lock());
    (0..7).for_each(|_| assert!(!lock.try_lock()));
    // SAFETY: taken above.
    unsafe { lock.unlock() };
    let rw = RawRw::INIT;
    rw.lock_upgradable();
    assert!(!rw.try_lock_upgradable() && !rw.try_lock_exclusive() && rw.try_lock_shared());
    // SAFETY: taken above; the upgrade fails, because there is a reader.
    unsafe {
        assert!(!rw.try_upgrade());
        rw.unlock_shared();
        assert!(rw.try_upgrade() && !rw.try_lock_shared() && !rw.try_lock_shared_recursive());
        rw.unlock_exclusive();
    }
    let [wait, hold, failed] = accounts(&all);
    assert_eq!((hits(&wait), hits(&hold), hits(&failed)), ((0, 0), (0, 0), (7 + 5, 0)));
    // A loop of attempts has its hits only if it is asked for.
    all.ctl.write(b"event try_lock.* off").unwrap();
    lock.lock();
    assert!(!lock.try_lock());
    // SAFETY: taken above.
    unsafe { lock.unlock() };
    assert!(all.accounts(&PROFILER).is_empty());
}

#[test]
fn a_wait_that_is_given_up_is_charged_to_the_holder_and_only_until_its_end() {
    let _alone = alone();
    let all = reader("event lock.* count\nevent try_lock.* count");
    let lock = Raw::INIT;
    lock.lock();
    let begun = Instant::now();
    scope(|scope| {
        scope.spawn(|| assert!(!lock.try_lock_for(SHORT)));
        scope.spawn(|| assert!(!lock.try_lock_until(Instant::now() + SHORT)));
    });
    let given_up = begun.elapsed().as_nanos() as u64 * FASTEST;
    let [wait, hold, failed] = accounts(&all);
    assert_eq!(hits(&wait), hits(&failed));
    assert_eq!((hits(&wait).0, hits(&hold)), (2, (0, 0)), "the holder has not released yet");
    assert!(of(&wait, "weight") >= 2 * SHORT.as_nanos() as u64 && of(&wait, "weight") <= 2 * given_up);
    sleep(LONG);
    // SAFETY: taken above.
    unsafe { lock.unlock() };
    let [more, charged, _] = accounts(&all);
    assert_eq!((hits(&more), hits(&charged)), ((0, 0), (1, of(&wait, "weight"))), "not for the time after the end");
    lock.lock();
    // SAFETY: taken above.
    unsafe { lock.unlock_fair() };
    assert!(all.accounts(&PROFILER).is_empty(), "the next holder has made nobody wait");
}

/// An inner lock that is released while a wait with a time limit ends: the wait fails though nobody holds the lock.
struct Free(AtomicU64);

// SAFETY: nobody ever takes it, so it excludes.
unsafe impl lock_api::RawMutex for Free {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(AtomicU64::new(0));
    type GuardMarker = lock_api::GuardNoSend;
    fn lock(&self) {
        unreachable!()
    }
    fn try_lock(&self) -> bool {
        false
    }
    unsafe fn unlock(&self) {}
    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexTimed for Free {
    type Duration = Duration;
    type Instant = u64;
    fn try_lock_for(&self, timeout: Duration) -> bool {
        sleep(timeout);
        false
    }
    fn try_lock_until(&self, locked: u64) -> bool {
        sleep(SHORT);
        self.0.store(locked, Ordering::Relaxed);
        false
    }
}

#[test]
fn what_no_holder_has_caused_is_on_the_waiter_and_not_on_the_next_holder() {
    let _alone = alone();
    let all = reader("event lock.* count");
    let lock = RawLock::<Free, ArrayKernel>::INIT;
    assert!(!lock.try_lock_for(SHORT));
    let [wait, hold, failed] = accounts(&all);
    assert_eq!((hits(&wait).0, hits(&hold)), (1, hits(&wait)));
    assert_eq!(hits(&failed), (0, 0), "it is off");
    // Somebody holds it at the end: it is for that one's release.
    assert!(!lock.try_lock_until(1));
    let [wait, hold, _] = accounts(&all);
    assert_eq!((hits(&wait).0, hits(&hold)), (1, (0, 0)));
    // SAFETY: it has no effect; it is the release of the lock that is said to be held.
    unsafe { lock.unlock() };
    assert_eq!(hits(&accounts(&all)[1]), hits(&wait));
}

#[test]
fn a_failed_attempt_has_a_record_with_its_stack_and_the_lock() {
    let _alone = alone();
    let all = reader("event try_lock.* record");
    let lock = Raw::INIT;
    lock.lock();
    assert!(!lock.try_lock() && !lock.try_lock_for(SHORT));
    // SAFETY: taken above.
    unsafe { lock.unlock() };
    let events = all.read();
    let address = (&raw const lock).addr() as u64;
    assert!(events.iter().all(|(event, stack)| event.arguments.as_slice() == [address] && !stack.is_empty()));
    let weights: Vec<_> = events.iter().map(|(event, _)| event.weight).collect();
    assert!(weights.len() == 2 && weights[0] == 0 && weights[1] >= SHORT.as_nanos() as u64, "{weights:?}");
    all.acknowledge(&PROFILER);
}

/// One reader and an upgrade that waits for it, on any lock.
fn upgrade_waits<R>(lock: &R, all: &Reader)
where
    R: lock_api::RawRwLockUpgradeDowngrade + Sync,
{
    lock.lock_shared();
    let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
    scope(|scope| {
        scope.spawn(|| {
            lock.lock_upgradable();
            begun.store(1, Ordering::SeqCst);
            // SAFETY: taken above.
            unsafe { lock.upgrade() };
            done.store(1, Ordering::SeqCst);
            assert!(lock.is_locked_exclusive());
            // SAFETY: taken above.
            unsafe {
                lock.downgrade_to_upgradable();
                lock.downgrade_upgradable();
                lock.unlock_shared();
            }
        });
        super::until_somebody_waits(&begun);
        assert_eq!(done.load(Ordering::SeqCst), 0);
        // SAFETY: taken above.
        unsafe { lock.unlock_shared() };
    });
    assert!(!lock.is_locked());
    let [wait, hold, failed] = accounts(all);
    assert_eq!((hits(&wait).0, hits(&wait).1, hits(&failed)), (1, hits(&hold).1, (0, 0)));
    assert!(of(&wait, "weight") >= Duration::from_millis(15).as_nanos() as u64, "{wait:?}");
}

#[test]
fn an_upgrade_waits_for_readers() {
    let _alone = alone();
    let all = reader("event lock.* count");
    let (spin, parked) = (SpinRw::INIT, RawRw::INIT);
    upgrade_waits(&spin, &all);
    upgrade_waits(&parked, &all);
}

#[test]
fn an_upgrade_with_a_time_limit_is_charged_to_the_reader_that_releases() {
    let _alone = alone();
    let all = reader("event lock.* count\nevent try_lock.* count");
    let lock = RawRw::INIT;
    lock.lock_shared();
    assert!(lock.try_lock_upgradable_for(SHORT));
    // SAFETY: taken above.
    unsafe {
        assert!(!lock.try_upgrade_for(SHORT) && !lock.try_upgrade_until(Instant::now() + SHORT));
        lock.unlock_shared();
    }
    let [wait, hold, failed] = accounts(&all);
    assert_eq!((hits(&wait), hits(&hold)), (hits(&failed), (1, hits(&wait).1)));
    // SAFETY: taken above.
    unsafe {
        assert!(lock.try_upgrade_for(SHORT));
        lock.downgrade_to_upgradable();
        lock.unlock_upgradable_fair();
    }
    assert!(!lock.is_locked() && all.accounts(&PROFILER).is_empty(), "nobody has waited");
}

#[test]
fn a_writer_that_becomes_a_reader_is_charged_with_the_readers_that_waited_for_it() {
    let _alone = alone();
    let all = reader("event lock.* count");
    let (lock, begun) = (RawRw::INIT, AtomicU64::new(0));
    lock.lock_exclusive();
    scope(|scope| {
        let reader = scope.spawn(|| {
            begun.store(1, Ordering::SeqCst);
            assert!(lock.try_lock_shared_recursive_for(Duration::from_secs(100)));
            // SAFETY: taken above.
            unsafe { lock.unlock_shared_fair() };
        });
        super::until_somebody_waits(&begun);
        // SAFETY: taken above.
        unsafe { lock.downgrade() };
        let charged = of(&accounts(&all)[1], "weight");
        assert!(charged >= Duration::from_millis(15).as_nanos() as u64, "{charged} ns");
        reader.join().unwrap();
        // SAFETY: still held as a reader.
        unsafe { lock.unlock_shared() };
    });
    assert!(!lock.is_locked());
}

#[test]
fn sums_are_equal_with_threads_of_which_some_give_up() {
    let _alone = alone();
    let all = reader("event lock.* count\nevent try_lock.* count");
    let lock = RawRw::INIT;
    const ROUNDS: u32 = if cfg!(miri) { 20 } else { 2_000 };
    let given_up = AtomicU64::new(0);
    scope(|scope| {
        for thread in 0..4_u32 {
            let (lock, given_up) = (&lock, &given_up);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let little = Duration::from_micros(u64::from(round % 8) * 5);
                    let hold = || if round % 16 == thread { sleep(little) } else { std::thread::yield_now() };
                    let is_taken = match (thread + round) % 4 {
                        0 => lock.try_lock_exclusive_for(little),
                        1 => lock.try_lock_shared_until(Instant::now() + little),
                        2 => lock.try_lock_upgradable_until(Instant::now() + little),
                        _ => {
                            lock.lock_exclusive();
                            true
                        }
                    };
                    if !is_taken {
                        given_up.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    hold();
                    // SAFETY: taken in this way above.
                    unsafe {
                        match (thread + round) % 4 {
                            1 => lock.unlock_shared(),
                            2 if lock.try_upgrade_for(little) => lock.unlock_exclusive(),
                            2 => {
                                given_up.fetch_add(1, Ordering::Relaxed);
                                lock.unlock_upgradable();
                            }
                            _ => lock.unlock_exclusive(),
                        }
                    }
                }
            });
        }
    });
    // What was waited after the last charge of a holder that had not released yet is for the next holder.
    lock.lock_exclusive();
    // SAFETY: taken above.
    unsafe { lock.unlock_exclusive() };
    let [wait, hold, failed] = accounts(&all);
    assert_eq!(of(&wait, "weight"), of(&hold, "weight"));
    assert_eq!(hits(&failed).0, given_up.into_inner());
    assert!(of(&wait, "weight") > of(&failed, "weight") && hits(&failed).0 > 0, "{wait:?} {failed:?}");
}
