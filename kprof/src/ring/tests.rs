//! Tests of the ring on one thread, and ring memory for the tests of other modules.

use super::*;
use crate::errors::BadMemory;
use crate::format::record::{Header, Kind, MAX_WORDS};
use core::mem::MaybeUninit;
use std::sync::{Mutex, atomic::AtomicPtr};

/// Ring memory that lives as long as the test process. Leak checkers know of it.
pub(crate) fn memory(words: usize) -> &'static mut [MaybeUninit<u64>] {
    static KEPT: Mutex<Vec<AtomicPtr<MaybeUninit<u64>>>> = Mutex::new(Vec::new());
    let memory = Box::leak(vec![MaybeUninit::uninit(); words].into_boxed_slice());
    KEPT.lock().unwrap().push(AtomicPtr::new(memory.as_mut_ptr()));
    memory
}

/// A ring of `words` words.
pub(crate) fn ring_of(words: usize) -> Ring {
    let ring = Ring::none();
    ring.install(memory(words)).expect("ring memory");
    ring
}

fn put(ring: &Ring, words: u64) -> bool {
    let mut sink = ring.room();
    (0..words).for_each(|word| sink.push(word));
    let fits = !sink.is_full();
    if fits {
        ring.publish(Kind::Sample, sink.words());
    }
    fits
}

fn count_all(ring: &Ring) -> u64 {
    ring.count(ring.tail(), ring.head()).expect("whole records")
}

#[test]
fn memory_that_is_no_ring_is_refused() {
    assert!(matches!(Ring::none().install(memory(1000)), Err(BadMemory::NotPowerOfTwo(1000))));
    assert!(matches!(Ring::none().install(memory(512)), Err(BadMemory::TooSmall(512))));
    assert!(matches!(Ring::none().install(memory(0)), Err(BadMemory::NotPowerOfTwo(0))));
}

#[test]
fn a_full_ring_takes_nothing_and_loses_nothing() {
    let ring = ring_of(MAX_WORDS);
    let mut records = 0;
    while put(&ring, 10) {
        records += 1;
    }
    assert_eq!(records, 102);
    assert_eq!(count_all(&ring), 102);
    assert_eq!(ring.head() - ring.tail(), 1020);
    assert_eq!(ring.count(0, 20), Some(2));
    assert_eq!(ring.count(0, 21), None);
    TailMover::of(&ring).release(20, 2);
    assert!(put(&ring, 10) && put(&ring, 10));
    assert_eq!(count_all(&ring), 102);
}

#[test]
fn records_are_whole_across_the_physical_end_at_every_offset() {
    let ring = ring_of(MAX_WORDS);
    let mut copy = [0; 88];
    for _ in 0..if cfg!(miri) { 110 } else { 3 * MAX_WORDS } {
        let at = ring.head();
        assert!(put(&ring, 11));
        assert_eq!(ring.record_at(at), Ok(Some(11)));
        ring.copy(at, &mut copy).unwrap();
        let words: Vec<u64> = copy.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words[0], Header { kind: Kind::Sample, words: 11 }.encode());
        assert_eq!(words[1..], (1..11).collect::<Vec<u64>>());
        TailMover::of(&ring).release(at + 11, 1);
    }
}

#[test]
fn overwriting_gives_up_whole_old_records_and_counts_them() {
    let ring = ring_of(MAX_WORDS);
    let (mut recorded, mut overwritten) = (0, 0);
    for length in (6..40).cycle().take(if cfg!(miri) { 120 } else { 5000 }) {
        let (mut sink, gone) = ring.reserve_overwriting(64);
        overwritten += gone;
        assert_eq!(ring.removed(), overwritten);
        for word in 0..length {
            sink.push(word);
        }
        assert!(!sink.is_full());
        ring.publish(Kind::Sample, sink.words());
        recorded += 1;
        assert_eq!(recorded, ring.removed() + count_all(&ring));
    }
    assert!(overwritten > if cfg!(miri) { 40 } else { 4000 });
    assert_eq!(ring.record_at(0), Err(Torn));
}
