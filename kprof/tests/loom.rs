//! The ring under loom: producer and reader are two threads, and loom tries every interleaving and every reordering
//! that the memory model allows (with up to three preemptions). Tested are both modes, the acknowledgement, a reader of
//! copies beside the owner, the cell in which a core publishes its state, and the word of the time waited for a lock.
//!
//! `RUSTFLAGS="--cfg kprof_loom" cargo test -p kprof --release --test loom`. The feature is off, because the files of
//! ring and cell are compiled into this test with loom's atomics.
//!
//! Loom does not cover two things. A nested NMI is not a thread: it runs to its end before the interrupted code
//! continues (see `nested.rs`). And loom never lets a store overtake an earlier load, so here the producer's new words
//! are never seen by a reader that should still read the old ones. That order is guaranteed by the Release of `tail`
//! (in `release`) and the Acquire of `tail` (in `look_ahead` and `room`): the reader's loads happen before its store of
//! `tail`, this store happens before the producer's load of it, and this load happens before the new words are written.
//! All other orderings were weakened one after the other (the Release of `head`, the fences of both paths of the
//! producer and of both readers, each ordering of the cell), and each time a test here failed.
#![cfg(kprof_loom)]
#![allow(dead_code, unused_imports, reason = "the files are whole")]

pub use kprof::format;

#[path = "../src/published/cell.rs"]
mod cell;
#[path = "../src/ring/mod.rs"]
mod ring;
#[path = "../src/sync.rs"]
mod sync;
#[path = "../events/src/locks/waited.rs"]
mod waited;

use cell::PublishedCell;
use format::record::Kind;
use loom::sync::Arc;
use loom::thread;
use ring::{NoCopy, Ring, Rounds, TailMover, Words};
use std::sync::atomic::{AtomicUsize, Ordering};

// The producer is the model's first thread. Loom only compares with the last access to an atomic. The producer loads
// its own `head` before it stores to it; if it were the second thread, this load would hide the consumer's load.

/// The ring's capacity in words: it holds two records and a part of a third.
const CAPACITY: usize = 16;
const LENGTH: u64 = 6;

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

fn ring() -> Arc<Ring> {
    Arc::new(Ring::new(Words::for_model(CAPACITY)))
}

/// Writes the record `tag`, in which every word is the tag. As for most samples, it is written directly if there is a
/// contiguous free range, otherwise word by word.
fn put(ring: &Ring, tag: u64) -> bool {
    if let Some((_, reservation)) = ring.reserve::<2, 4>(Rounds::new(0)) {
        reservation
            .header()
            .iter()
            .chain(&reservation.rounds(2)[0])
            .for_each(|place| place.store(tag, loom::sync::atomic::Ordering::Relaxed));
        ring.publish(Kind::Sample, LENGTH as usize);
        return true;
    }
    let mut sink = ring.room();
    (0..LENGTH).for_each(|_| sink.push(tag));
    let fits = !sink.is_full();
    if fits {
        ring.publish(Kind::Sample, sink.words());
        ring.look_ahead();
    }
    fits
}

fn put_overwriting(ring: &Ring, tag: u64) -> u64 {
    let (mut sink, overwritten) = ring.reserve_overwriting(LENGTH);
    (0..LENGTH).for_each(|_| sink.push(tag));
    assert!(!sink.is_full(), "room was made");
    ring.publish(Kind::Sample, sink.words());
    overwritten
}

/// The tag of the record at `at`, after checking that it is whole; `None` if there is none or it is being overwritten.
fn read(ring: &Ring, at: u64) -> Option<u64> {
    let words = ring.record_at(at).ok()??;
    assert_eq!(words, LENGTH);
    let mut copy = [0; 8 * LENGTH as usize];
    ring.copy(at, &mut copy).ok()?;
    let words: Vec<u64> = copy.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    assert!(words[1..].iter().all(|word| *word == words[1]), "a torn record: {words:x?}");
    Some(words[1])
}

/// As [`read`], in drop mode, in which no record is ever torn.
fn read_kept(ring: &Ring, at: u64) -> Option<u64> {
    ring.record_at(at).expect("no record is torn in drop mode")?;
    Some(read(ring, at).expect("a record that was there stays there"))
}

/// Copies one record as the reader of copies does: its tag, after checking that it is whole.
fn copy(ring: &Ring, at: u64) -> Result<Option<u64>, NoCopy> {
    let mut bytes = [0; 8 * LENGTH as usize];
    if ring.copy_records(at, &mut bytes)?.records == 0 {
        return Ok(None);
    }
    let words: Vec<u64> = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    assert!(words[1..].iter().all(|word| *word == words[1]), "a torn copy: {words:x?}");
    Ok(Some(words[1]))
}

/// Fails if the two threads interacted in only a few executions, because the model would then test nothing.
fn met(times: &AtomicUsize) {
    assert!(times.load(Ordering::Relaxed) > 5, "explored only {times:?} meetings");
}

#[test]
fn in_drop_mode_records_come_out_whole_in_order_and_are_counted() {
    static MET: AtomicUsize = AtomicUsize::new(0);
    model(|| {
        let ring = ring();
        let consumer = {
            let ring = ring.clone();
            thread::spawn(move || {
                let (mut last, mut delivered) = (0, 0);
                for _ in 0..2 {
                    let at = ring.tail();
                    if let Some(tag) = read_kept(&ring, at) {
                        assert!(tag > last, "{tag} after {last}");
                        (last, delivered) = (tag, delivered + 1);
                        TailMover::of(&ring).release(at + LENGTH, 1);
                    }
                }
                delivered
            })
        };
        let recorded = (1..=3).filter(|tag| put(&ring, *tag)).count() as u64;
        let delivered = consumer.join().unwrap();
        assert_eq!(recorded, delivered + ring.count(ring.tail(), ring.head()).unwrap());
        assert!(recorded >= 2);
        MET.fetch_add((recorded == 3) as usize, Ordering::Relaxed);
    });
    met(&MET);
}

#[test]
fn what_is_read_but_not_acknowledged_stays_whole_and_is_read_again() {
    static MET: AtomicUsize = AtomicUsize::new(0);
    model(|| {
        let ring = ring();
        assert!(put(&ring, 1));
        let consumer = {
            let ring = ring.clone();
            thread::spawn(move || {
                // Reads two records without acknowledging them, then again from the oldest one, then acknowledges it.
                let first = read_kept(&ring, 0);
                let second = read_kept(&ring, LENGTH);
                assert_eq!((first, read_kept(&ring, 0)), (Some(1), Some(1)));
                assert_eq!(ring.count(0, LENGTH), Some(1));
                TailMover::of(&ring).release(LENGTH, 1);
                MET.fetch_add(second.is_some() as usize, Ordering::Relaxed);
            })
        };
        let recorded = 1 + (2..=4).filter(|tag| put(&ring, *tag)).count() as u64;
        consumer.join().unwrap();
        assert_eq!(recorded, 1 + ring.count(ring.tail(), ring.head()).unwrap());
    });
    met(&MET);
}

#[test]
fn in_overwrite_mode_a_copy_is_whole_or_thrown_away() {
    static MET: AtomicUsize = AtomicUsize::new(0);
    model(|| {
        let ring = ring();
        assert_eq!(put_overwriting(&ring, 1) + put_overwriting(&ring, 2), 0);
        let reader = {
            let ring = ring.clone();
            thread::spawn(move || {
                for at in [0, LENGTH] {
                    match read(&ring, at) {
                        Some(tag) => assert_eq!(tag, 1 + at / LENGTH, "a copy of another record"),
                        None => drop(MET.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            })
        };
        let overwritten = put_overwriting(&ring, 3) + put_overwriting(&ring, 4);
        reader.join().unwrap();
        assert_eq!(4, overwritten + ring.count(ring.tail(), ring.head()).unwrap());
    });
    met(&MET);
}

#[test]
fn in_drop_mode_a_copy_beside_the_owner_is_whole_or_thrown_away_and_the_owner_loses_nothing() {
    static COPIED: AtomicUsize = AtomicUsize::new(0);
    static OVERTAKEN: AtomicUsize = AtomicUsize::new(0);
    static KEPT: AtomicUsize = AtomicUsize::new(0);
    model(|| {
        let ring = ring();
        assert!(put(&ring, 1));
        let owner = {
            let ring = ring.clone();
            thread::spawn(move || {
                assert_eq!(read_kept(&ring, 0), Some(1));
                TailMover::of(&ring).release(LENGTH, 1);
            })
        };
        let copier = {
            let ring = ring.clone();
            thread::spawn(move || match copy(&ring, 0) {
                Ok(tag) => {
                    assert_eq!(tag, Some(1), "a copy of another record");
                    COPIED.fetch_add(1, Ordering::Relaxed);
                    KEPT.fetch_add((ring.tail() > 0) as usize, Ordering::Relaxed);
                }
                Err(reason) => {
                    assert_eq!(reason, NoCopy::Overwritten);
                    OVERTAKEN.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        // The third record is written over the first one, if that is freed.
        let recorded = 1 + (2..=3).filter(|tag| put(&ring, *tag)).count() as u64;
        owner.join().unwrap();
        copier.join().unwrap();
        assert_eq!(recorded, 1 + ring.count(ring.tail(), ring.head()).unwrap());
    });
    met(&COPIED);
    met(&OVERTAKEN);
    met(&KEPT);
}

#[test]
fn a_freed_record_is_copied_whole_or_not_at_all_while_the_fast_path_writes_over_it() {
    static COPIED: AtomicUsize = AtomicUsize::new(0);
    static OVERTAKEN: AtomicUsize = AtomicUsize::new(0);
    model(|| {
        let ring = ring();
        assert!(put(&ring, 1) && put(&ring, 2));
        TailMover::of(&ring).release(2 * LENGTH, 2);
        let copier = {
            let ring = ring.clone();
            thread::spawn(move || match copy(&ring, LENGTH) {
                Ok(tag) => {
                    assert_eq!(tag, Some(2), "a copy of another record");
                    COPIED.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => drop(OVERTAKEN.fetch_add(1, Ordering::Relaxed)),
            })
        };
        // The fourth record is written directly over the end of the second one.
        assert!(put(&ring, 3) && put(&ring, 4));
        copier.join().unwrap();
    });
    met(&COPIED);
    met(&OVERTAKEN);
}

#[test]
fn in_overwrite_mode_a_copy_beside_the_owner_is_whole_or_thrown_away() {
    static COPIED: AtomicUsize = AtomicUsize::new(0);
    static OVERTAKEN: AtomicUsize = AtomicUsize::new(0);
    model(|| {
        let ring = ring();
        assert_eq!(put_overwriting(&ring, 1) + put_overwriting(&ring, 2), 0);
        let copier = {
            let ring = ring.clone();
            thread::spawn(move || {
                for at in [0, LENGTH] {
                    match copy(&ring, at) {
                        Ok(tag) => {
                            assert_eq!(tag, Some(1 + at / LENGTH), "a copy of another record");
                            COPIED.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(_) => drop(OVERTAKEN.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            })
        };
        let overwritten = put_overwriting(&ring, 3) + put_overwriting(&ring, 4);
        copier.join().unwrap();
        assert_eq!(4, overwritten + ring.count(ring.tail(), ring.head()).unwrap());
    });
    met(&COPIED);
    met(&OVERTAKEN);
}

#[test]
fn what_a_core_publishes_is_never_a_mix() {
    static MET: AtomicUsize = AtomicUsize::new(0);
    model(|| {
        let cell = Arc::new(PublishedCell::new());
        let reader = {
            let cell = cell.clone();
            thread::spawn(move || {
                if let Some(seen) = cell.read() {
                    let (place, task) = (seen.place, (seen.task, seen.is_idle));
                    let is_whole = matches!((place, task), (0, (0, false)) | (8, (0, false)) | (16, (7, true)));
                    assert!(is_whole, "{seen:?}");
                    MET.fetch_add((place != 0) as usize, Ordering::Relaxed);
                }
            })
        };
        assert_eq!(cell.replace(8), 0);
        assert_eq!(cell.switch(16, 7, true), 8);
        reader.join().unwrap();
    });
    met(&MET);
}

#[test]
fn a_frame_that_is_left_under_the_look_is_not_taken_for_the_one_that_was_published() {
    static MET: AtomicUsize = AtomicUsize::new(0);
    static LEFT: AtomicUsize = AtomicUsize::new(0);
    model(|| {
        let state = Arc::new((PublishedCell::new(), loom::sync::atomic::AtomicU64::new(0)));
        let reader = {
            let state = state.clone();
            thread::spawn(move || {
                let (cell, frame) = &*state;
                let Some(seen) = cell.read() else { return };
                let word = frame.load(loom::sync::atomic::Ordering::Relaxed);
                let holds = cell.still(seen.sequence);
                // If the cell is unchanged, the published frame still has the word that the entry stub wrote there.
                assert!(!holds || seen.place != 8 || word == 1, "{seen:?} {word}");
                MET.fetch_add((holds && seen.place == 8) as usize, Ordering::Relaxed);
                LEFT.fetch_add((!holds && seen.place == 8 && word == 2) as usize, Ordering::Relaxed);
            })
        };
        let (cell, frame) = &*state;
        // The core enters the kernel, leaves it again, and then uses the stack for something else.
        frame.store(1, loom::sync::atomic::Ordering::Relaxed);
        let before = cell.replace(8);
        cell.replace(before);
        frame.store(2, loom::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
    });
    met(&MET);
    met(&LEFT);
}

/// Two that take a lock, both as if they had to wait, beside a third that only releases: whatever the order, the sum of
/// charges is the sum of waits, and nothing is left.
#[test]
fn every_nanosecond_that_was_waited_is_charged_once() {
    use std::sync::atomic::AtomicU64 as Plain;
    static CHARGED_TO_OTHER: AtomicUsize = AtomicUsize::new(0);
    model(|| {
        let lock = Arc::new((loom::sync::Mutex::new(()), waited::Waited::new()));
        let (clock, sums) = (Arc::new(Plain::new(1)), Arc::new([Plain::new(0), Plain::new(0)]));
        let now = |clock: &Plain| clock.fetch_add(10, Ordering::SeqCst);
        let side = |waits: bool| {
            let (lock, clock, sums) = (lock.clone(), clock.clone(), sums.clone());
            move || {
                let begun = waits.then(|| now(&clock));
                begun.map(|begun| lock.1.begin(begun));
                let held = lock.0.lock().unwrap();
                if let Some(begun) = begun {
                    let ended = lock.1.end(now(&clock));
                    sums[0].fetch_add(ended - begun, Ordering::SeqCst);
                }
                if !lock.1.is_settled()
                    && let Some(charge) = lock.1.charge(now(&clock))
                {
                    sums[1].fetch_add(charge.ns, Ordering::SeqCst);
                    if !waits {
                        CHARGED_TO_OTHER.fetch_add(1, Ordering::Relaxed);
                    }
                }
                drop(held);
            }
        };
        let threads = [thread::spawn(side(true)), thread::spawn(side(true))];
        side(false)();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(lock.1.is_settled());
        let [waited, charged] = [&sums[0], &sums[1]].map(|sum| sum.load(Ordering::SeqCst));
        assert!(waited > 0 && waited == charged, "{waited} waited, {charged} charged");
    });
    met(&CHARGED_TO_OTHER);
}
