//! How many rounds a session takes, because each has costs that do not depend on the number of samples.
//!
//! In: a simulated kernel that counts waits, copies less than it is asked for, or has more than one round reads. Out:
//! the batches of the file, how much each round reads, and the limits of the waits.

use crate::support;

use kprof_daemon::drain_loop::{Options, Session};
use kprof_daemon::pace::Pace;
use kprof_daemon::signals::Signals;
use kprof_daemon::source::Stream;
use kprof_daemon::source::kprof_device::KprofDevice;
use kprof_format::record::{Kind, MAX_WORDS, SampleHeader};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use support::kernel::Kernel;
use support::scenario::{OUTPUT, exactly_once, options, reading, session, simulated};
use support::system::{SCHEME, Simulated};

/// A session with one pause, in which every CPU gets `ticks` samples.
fn after_one_pause(mut kernel: Kernel, ticks: u32, options: Options) -> Simulated {
    let signals = Signals::default();
    let stops = signals.clone();
    kernel.name(1, b"task 1 #%".to_vec());
    let system = Simulated::new(
        kernel,
        Box::new(move |kernel, pause| match pause {
            1 => (0..ticks).for_each(|_| kernel.tick_without_names()),
            _ => stops.stop(),
        }),
    );
    session(&system, options, &signals).unwrap();
    exactly_once(&system, &reading(&system)).unwrap();
    system
}

/// The batches of samples of CPU 1 in the file.
fn batches(system: &Simulated) -> usize {
    let file = system.file(OUTPUT);
    file.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"# batch cpu=1 ")).count()
}

#[test]
fn a_kernel_that_copies_less_than_a_ring_at_once_is_read_to_the_end_in_one_round() {
    for max_bytes in [0, 32 * 1024, 64 * 1024, 100_000] {
        let mut kernel = Kernel::new(&[1, 2, 3], 32 * 1024, 7);
        kernel.nasty.max_bytes = max_bytes;
        let system = after_one_pause(kernel, 1500, options());
        let bytes = system.0.borrow().kernel.rings[&1].head * 8;
        assert!(bytes > 100_000, "more than one such read: {bytes} bytes");
        assert_eq!(batches(&system), 1, "reads of at most {max_bytes} bytes");
    }
}

#[test]
fn no_wait_is_longer_than_the_round_before_it_allows() {
    let signals = Signals::default();
    let system = simulated(Kernel::new(&[1], 1 << 13, 7), 5, &signals, |_, _| {});
    let mut own = system.clone();
    let source = KprofDevice::open(&mut own, Path::new(SCHEME)).unwrap();
    let mut limits = [100, 1000, 20].map(Duration::from_millis).into_iter();
    Session::open(&mut own, source, options(), signals).unwrap().run(|_, _| limits.next()).unwrap();
    assert_eq!(system.0.borrow().kernel.waits, [100, 1000, 20], "and without a limit the session ends");
}

/// Puts records of this length into a ring, as many as these words have room for.
fn put_words(kernel: &mut Kernel, cpu: u32, words: usize, length: usize) {
    for _ in 0..words / length {
        let callers = vec![5; length - SampleHeader::WORDS];
        let header = |position| SampleHeader { position, tsc: 1, task: 1, address: 5, ..SampleHeader::default() };
        let ring = kernel.rings.get_mut(&cpu).unwrap();
        assert!(ring.put(length, |position| header(position).record(Kind::Sample, &callers).collect()));
    }
}

#[test]
fn rounds_are_bounded_reach_every_cpu_and_follow_each_other_until_all_is_read() {
    // Many CPUs; a bound of the file, which makes rounds smaller; one CPU with a ring larger than what is read at once.
    for (cpus, ring_words, kernel_bytes, max_bytes, round_bytes, read_bytes) in [
        (12, 1 << 15, 0, None, 1 << 20, 256 << 10),
        (12, 1 << 15, 0, Some(1 << 20), 128 << 10, 128 << 10),
        (1, 1 << 17, 200_000, None, 1 << 20, 256 << 10),
        (1, 1 << 17, 32 << 10, None, 1 << 20, 256 << 10),
    ] {
        let cpus: Vec<u32> = (0..cpus).collect();
        let mut kernel = Kernel::new(&cpus, ring_words, 7);
        kernel.nasty.max_bytes = kernel_bytes;
        let system = Simulated::new(kernel, Box::new(|_, _| {}));
        let mut own = system.clone();
        let source = KprofDevice::open(&mut own, Path::new(SCHEME)).unwrap();
        let plan = Options { max_bytes, keep_files: 100, ..options() };
        let mut session = Session::open(&mut own, source, plan, Signals::default()).unwrap();
        cpus.iter().for_each(|cpu| put_words(&mut system.0.borrow_mut().kernel, *cpu, ring_words as usize, 900));
        let (mut rounds, mut read) = (0, vec![0; cpus.len()]);
        let each_round = |_: &_, _: &_| {
            let kernel = &mut system.0.borrow_mut().kernel;
            let now = kernel.rings.values().map(|ring| ring.tail as usize * 8).collect();
            let before = std::mem::replace(&mut read, now);
            let new: Vec<usize> = read.iter().zip(before).map(|(now, before)| now - before).collect();
            assert!(new.iter().all(|bytes| *bytes <= read_bytes), "round {rounds} has read {new:?} bytes");
            assert!(new.iter().sum::<usize>() <= round_bytes + read_bytes, "round {rounds} has read {new:?} bytes");
            rounds += 1;
            if rounds <= 20 {
                // What was read comes again: there is always more than a round reads.
                assert!(kernel.waits.is_empty(), "it has waited after round {rounds}, although there is more");
                for cpu in &cpus {
                    let ring = &kernel.rings[cpu];
                    put_words(kernel, *cpu, (ring.capacity - (ring.head - ring.tail)) as usize, 900);
                }
            }
            if rounds == 20 {
                assert!(kernel.rings.values().all(|ring| ring.tail > 0), "some CPU was never read");
            }
            (rounds < 25).then_some(Pace::LONGEST)
        };
        session.run(each_round).unwrap();
    }
}

#[test]
fn a_round_that_ends_before_the_last_cpu_is_followed_by_another_at_once() {
    let cpus: Vec<u32> = (0..12).collect();
    let system = Simulated::new(Kernel::new(&cpus, 1 << 15, 7), Box::new(|_, _| {}));
    // So little that no read leaves something, and in all more than a round of this session reads.
    cpus.iter().for_each(|cpu| put_words(&mut system.0.borrow_mut().kernel, *cpu, 2 * MAX_WORDS, MAX_WORDS));
    let mut own = system.clone();
    let source = KprofDevice::open(&mut own, Path::new(SCHEME)).unwrap();
    let plan = Options { max_bytes: Some(1 << 20), keep_files: 100, ..options() };
    let mut session = Session::open(&mut own, source, plan, Signals::default()).unwrap();
    let mut rounds = 0;
    let each_round = |_: &_, _: &_| {
        let kernel = &system.0.borrow().kernel;
        rounds += 1;
        let left = kernel.rings.values().filter(|ring| ring.tail < ring.head).count();
        assert!((rounds == 1) == (left > 0), "{left} CPUs are left after round {rounds}");
        assert!(kernel.waits.is_empty());
        (rounds < 2).then_some(Pace::LONGEST)
    };
    session.run(each_round).unwrap();
}

#[test]
fn a_reader_of_copies_waits_until_a_quarter_of_a_ring_is_there() {
    let signals = Signals::default();
    let stopper = signals.clone();
    let on_pause = move |kernel: &mut Kernel, pause| {
        match pause {
            ..5 => {}
            5..10 => put_words(kernel, 1, 1 << 11, MAX_WORDS),
            10..15 => put_words(kernel, 1, 1 << 12, MAX_WORDS),
            _ => stopper.stop(),
        }
        // The other reader has got them.
        let ring = kernel.rings.get_mut(&1).unwrap();
        ring.acknowledge(ring.head);
    };
    let system = Simulated::new(Kernel::new(&[1], 1 << 13, 7), Box::new(on_pause));
    let mut own = system.clone();
    let source = KprofDevice::open_copies(&mut own, Path::new(SCHEME)).unwrap();
    let options = Options { is_recording: true, ..options() };
    Session::open(&mut own, source, options, signals).unwrap().run(|_, _| Some(Pace::LONGEST)).unwrap();
    // Nothing comes, so the wait is doubled; then a quarter of the ring in each, and then half of it.
    let waits = system.0.borrow().kernel.waits.clone();
    assert_eq!(waits, [2, 4, 8, 16, 32, 32, 32, 32, 32, 32, 16, 8, 4, 2, 1]);
}

#[test]
fn what_was_read_before_a_source_went_away_is_in_the_file() {
    let found = [1, 2].map(|reads| {
        let mut kernel = Kernel::new(&[1], 1 << 15, 7);
        (0..2000).for_each(|_| kernel.tick());
        (kernel.nasty.max_bytes, kernel.nasty.reads_until_gone) = (40_000, Some(reads));
        let system = Simulated::new(kernel, Box::new(|_, _| {}));
        let error = session(&system, options(), &Signals::default()).unwrap_err();
        assert_eq!(error.exit_code(), 5, "{error}");
        reading(&system).samples.len()
    });
    assert!(found[0] > 300 && found[1] > found[0] + 300, "samples after one and after two reads: {found:?}");
}

#[test]
fn all_names_are_read_in_a_round_however_small_rounds_are() {
    let mut kernel = Kernel::new(&[1], 1 << 15, 7);
    (1..=2000).for_each(|id| kernel.name(id, format!("task {id} #%").into_bytes()));
    (0..20).for_each(|_| kernel.tick_without_names());
    assert!(kernel.meta.head * 8 > 100_000, "more than a round of this session");
    let signals = Signals::default();
    signals.stop();
    let system = Simulated::new(kernel, Box::new(|_, _| {}));
    session(&system, Options { max_bytes: Some(64 << 10), keep_files: 100, ..options() }, &signals).unwrap();
    exactly_once(&system, &reading(&system)).unwrap();
}

#[test]
fn the_meta_stream_is_read_only_if_it_has_something_new() {
    let signals = Signals::default();
    let stopper = signals.clone();
    let mut kernel = Kernel::new(&[1], 1 << 13, 7);
    kernel.name(1, b"task 1 #%".to_vec());
    let on_pause = move |kernel: &mut Kernel, pause| match pause {
        ..10 => kernel.tick_without_names(),
        _ => stopper.stop(),
    };
    let system = Simulated::new(kernel, Box::new(on_pause));
    let reads = Rc::new(Cell::new(0));
    let count = Rc::clone(&reads);
    system.0.borrow_mut().on_read =
        Box::new(move |stream, _| count.set(count.get() + u32::from(stream == Stream::Meta)));
    session(&system, options(), &signals).unwrap();
    exactly_once(&system, &reading(&system)).unwrap();
    assert_eq!(reads.get(), 1, "reads of the meta stream");
}
