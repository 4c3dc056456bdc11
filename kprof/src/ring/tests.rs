//! Tests of the ring on one thread, and ring memory for the tests of other modules.

use super::*;
use crate::errors::BadMemory;
use crate::format::record::{Header, Kind, MAX_WORDS};
use consumer::Copy;
use core::mem::MaybeUninit;
use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicPtr},
};

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
    if cfg!(miri) {
        // Nearly to the physical end.
        assert!((0..10).all(|_| put(&ring, 100)));
        TailMover::of(&ring).release(1000, 10);
    }
    for _ in 0..if cfg!(miri) { 10 } else { 3 * MAX_WORDS } {
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
    assert!(overwritten > if cfg!(miri) { 16 } else { 4000 });
    assert_eq!(ring.record_at(0), Err(Torn));
}

/// Checks that contiguous free words are known up to `end` and no further, and where they are.
fn check_known_words(ring: &Ring, end: u64) {
    ring.look_ahead();
    let head = ring.head();
    let last = u32::try_from(end - head).unwrap() - producer::MIN_ROOM as u32;
    for (more, is_known) in [(0, true), (last, true), (last + 1, false), (last + 40, false)] {
        let known = (ring.reserve::<8, 1>(Rounds::new(more)).is_some(), ring.reserve_after::<8>(more).is_some());
        assert_eq!(known, (is_known, is_known), "{more} words after {head}");
    }
    for more in [0, 1, 3] {
        assert_eq!(ring.reserve::<8, 8>(Rounds::new(more)).unwrap().1.rounds(8).len(), 1 + more as usize);
    }
    let (at, reservation) = ring.reserve::<8, 8>(Rounds::new(0)).unwrap();
    let most = producer::MIN_ROOM + last as usize;
    assert_eq!(ring.room_after(0, most).map(<[_]>::len), Some(most));
    assert!(ring.room_after(0, most + 1).is_none() && ring.room_after(1, most).is_none());
    let (first, places) = ring.reserve_after::<8>(3).unwrap();
    assert_eq!(ring.room_after(3, 40).unwrap().as_ptr(), places.as_ptr());
    let address = reservation.header().as_ptr().addr();
    assert_eq!((at, core::ptr::from_ref(first).addr()), (head, address));
    assert_eq!(places.as_ptr().addr(), address + 3 * size_of::<u64>());
    places[1].store(at, Ordering::Relaxed);
    assert_eq!(ring.word(head + 4), at);
}

#[test]
fn contiguous_free_words_are_known_up_to_the_physical_end_or_the_tail() {
    let ring = ring_of(MAX_WORDS);
    let knows_none = || ring.reserve::<8, 8>(Rounds::new(0)).is_none() && ring.reserve_after::<8>(0).is_none();
    assert!(knows_none(), "nothing is known yet");
    check_known_words(&ring, 1024);
    assert!((0..10).all(|_| put(&ring, 10)));
    check_known_words(&ring, 1024);
    TailMover::of(&ring).release(100, 10);
    check_known_words(&ring, 1024);
    assert!((0..92).all(|_| put(&ring, 10)));
    ring.look_ahead();
    assert!(knows_none(), "four words are no room");
    assert!(put(&ring, 10));
    check_known_words(&ring, 1124);
}

/// Writes a record whose words follow from its position; in overwrite mode over the oldest ones.
fn put_numbered(ring: &Ring, words: u64, overwrites: bool) -> bool {
    let at = ring.head();
    let mut sink = if overwrites { ring.reserve_overwriting(words).0 } else { ring.room() };
    (0..words).for_each(|word| sink.push((at + word) << 8));
    let fits = !sink.is_full();
    if fits {
        ring.publish(Kind::Sample, sink.words());
    }
    fits
}

/// The newer record lies where the old one lay and has its length, so only the positions tell them apart.
#[test]
fn a_record_that_was_overwritten_by_one_of_the_same_length_is_torn() {
    let ring = ring_of(MAX_WORDS);
    for _ in 0..MAX_WORDS / 8 + 1 {
        assert!(put_numbered(&ring, 8, true));
    }
    assert_eq!((ring.tail(), ring.removed()), (8, 1), "no more records are given up than needed");
    assert_eq!((ring.record_at(0), ring.copy(0, &mut [0; 64]), ring.count(0, 8)), (Err(Torn), Err(Torn), None));
    assert_eq!((ring.record_at(8), ring.copy(8, &mut [0; 64]), ring.count(8, 16)), (Ok(Some(8)), Ok(()), Some(1)));
}

/// Checks copies that begin at `at`; returns the number of records.
fn check_numbered(at: u64, bytes: &[u8]) -> u64 {
    let words: Vec<u64> = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let (mut from, mut records) = (0, 0);
    while from < words.len() {
        let length = usize::from(Header::decode(words[from]).expect("a record's first word").words);
        let rest = (from + 1..from + length).map(|word| (at + word as u64) << 8);
        assert_eq!(words[from + 1..from + length], rest.collect::<Vec<_>>(), "a copy of other words");
        (from, records) = (from + length, records + 1);
    }
    records
}

/// A producer, an owner and a reader of copies on three threads; they go through many laps of the ring.
fn beside_each_other(overwrites: bool) {
    const WORDS: u64 = 300;
    let (records, ring_words) = if cfg!(miri) { (5, MAX_WORDS) } else { (4000, 2 * MAX_WORDS) };
    let (ring, done) = (ring_of(ring_words), AtomicBool::new(false));
    let (ring, done) = (&ring, &done);
    let (owned, copied, overtaken) = std::thread::scope(|scope| {
        let owner = scope.spawn(move || {
            if overwrites {
                return 0;
            }
            let (mut at, mut records, mut copy) = (0, 0, vec![0; 8 * WORDS as usize]);
            loop {
                let is_last = done.load(Ordering::SeqCst);
                match ring.record_at(at).expect("the owner's records stay") {
                    Some(words) => {
                        ring.copy(at, &mut copy).expect("the owner's records stay");
                        records += check_numbered(at, &copy);
                        at += words;
                        TailMover::of(ring).release(at, 1);
                    }
                    None if is_last => return records,
                    None => std::thread::yield_now(),
                }
            }
        });
        let copier = scope.spawn(move || {
            let (mut at, mut copied, mut overtaken, mut buffer) = (0, 0, 0, vec![0; 3 * 8 * WORDS as usize]);
            loop {
                let is_last = done.load(Ordering::SeqCst);
                match ring.copy_records(at, &mut buffer) {
                    Ok(Copy { records: 0, .. }) if is_last => return (copied, overtaken),
                    Ok(Copy { words, records }) => {
                        assert_eq!(check_numbered(at, &buffer[..words as usize * 8]), records);
                        (at, copied) = (at + words, copied + records);
                    }
                    Err(reason) => {
                        assert_eq!(reason, NoCopy::Overwritten);
                        let oldest = ring.tail();
                        assert!(oldest > at, "nothing was overwritten at {at}");
                        (at, overtaken) = (oldest, overtaken + (oldest - at) / WORDS);
                    }
                }
                std::thread::yield_now();
            }
        });
        let mut made = 0;
        while made < records {
            let fits = put_numbered(ring, WORDS, overwrites);
            made += u64::from(fits);
            if !fits || made.is_multiple_of(8) {
                std::thread::yield_now();
            }
        }
        done.store(true, Ordering::SeqCst);
        let (copied, overtaken) = copier.join().unwrap();
        (owner.join().unwrap(), copied, overtaken)
    });
    assert_eq!(owned, if overwrites { 0 } else { records }, "the owner gets every record");
    assert_eq!(copied + overtaken, records, "each record is copied once or known to be lost");
    assert!(copied > 0);
}

#[test]
fn copies_beside_an_owner_are_whole_or_known_to_be_lost_in_drop_mode() {
    beside_each_other(false);
}

#[test]
fn copies_are_whole_or_known_to_be_lost_in_overwrite_mode() {
    beside_each_other(true);
}
