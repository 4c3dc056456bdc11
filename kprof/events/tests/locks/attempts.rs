//! Locks: attempts that fail, and a writer that becomes a reader.
//!
//! In: locks of `parking_lot`, threads that hold them at known times. Out: whose hits there are. Runs in: the test
//! program `locks`.

use super::array_kernel::{ArrayKernel, alone};
use super::reader::{Account, Reader};
use super::{PROFILER, reader};
use kprof_events::RawLock;
use lock_api::{RawMutex as _, RawRwLock as _, RawRwLockDowngrade as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::scope;
use std::time::Duration;

type Raw = RawLock<parking_lot::RawMutex, ArrayKernel>;
type RawRw = RawLock<parking_lot::RawRwLock, ArrayKernel>;

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
    assert!(rw.try_lock_shared() && !rw.try_lock_exclusive() && rw.try_lock_shared());
    // SAFETY: taken above, twice.
    unsafe {
        rw.unlock_shared();
        rw.unlock_shared();
        assert!(rw.try_lock_exclusive() && !rw.try_lock_shared() && !rw.try_lock_exclusive());
        rw.unlock_exclusive();
    }
    let [wait, hold, failed] = accounts(&all);
    assert_eq!((hits(&wait), hits(&hold), hits(&failed)), ((0, 0), (0, 0), (7 + 3, 0)));
    // A loop of attempts has its hits only if it is asked for.
    all.ctl.write(b"event try_lock.* off").unwrap();
    lock.lock();
    assert!(!lock.try_lock());
    // SAFETY: taken above.
    unsafe { lock.unlock() };
    assert!(all.accounts(&PROFILER).is_empty());
}

#[test]
fn a_failed_attempt_has_a_record_with_its_stack_and_the_lock() {
    let _alone = alone();
    let all = reader("event try_lock.* record");
    let lock = Raw::INIT;
    lock.lock();
    assert!(!lock.try_lock());
    // SAFETY: taken above.
    unsafe { lock.unlock() };
    let events = all.read();
    let address = (&raw const lock).addr() as u64;
    assert!(events.iter().all(|(event, stack)| event.arguments.as_slice() == [address] && !stack.is_empty()));
    assert_eq!(events.iter().map(|(event, _)| event.weight).collect::<Vec<_>>(), [0]);
    all.acknowledge(&PROFILER);
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
            lock.lock_shared();
            // SAFETY: taken above.
            unsafe { lock.unlock_shared() };
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
