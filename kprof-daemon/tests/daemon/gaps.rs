//! Records whose positions do not follow each other: some are missing, or a position is damaged.
//!
//! In: framed records, some of them missing or changed. Out: what the parser gives, and what a session writes and
//! counts if another reader has taken records. The parser must not take a damaged position for a gap, because every
//! record after it would then have a lower position than expected.

use crate::support;

use kprof_daemon::drain_loop::{Options, Session, Totals};
use kprof_daemon::pace::Pace;
use kprof_daemon::read::framed::Framed;
use kprof_daemon::read::{Item, Skipped, Why};
use kprof_daemon::signals::Signals;
use kprof_daemon::source::Stream;
use kprof_daemon::source::kprof_device::KprofDevice;
use kprof_format::record::{Kind, SampleHeader};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use support::kernel::Kernel;
use support::ring::Ring;
use support::scenario::{OUTPUT, options};
use support::system::{SCHEME, Simulated};

const WORDS: u64 = SampleHeader::WORDS as u64 + 2;

/// The bytes of samples at these positions.
fn bytes(positions: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let header = |position| SampleHeader { position, address: 4, ..SampleHeader::default() };
    let record = |at: u64| header(at).record(Kind::Sample, &[5, 6]);
    positions.into_iter().flat_map(record).flat_map(u64::to_le_bytes).collect()
}

/// The positions of the samples that are found, and what is skipped.
fn parse(bytes: &[u8], position: u64) -> (Vec<u64>, Vec<(u64, u64, Why)>, usize) {
    let (mut samples, mut skipped) = (Vec::new(), Vec::new());
    let mut records = Framed::new(bytes, Some(position));
    loop {
        match records.next() {
            Some(Item::Sample(_)) => samples.push(records.item_from()),
            Some(Item::Skipped(Skipped { from, words, why })) => skipped.push((from, words, why)),
            Some(Item::Meta(_) | Item::Event(_)) => panic!("there is none"),
            None => return (samples, skipped, bytes.len() - records.used_bytes()),
        }
    }
}

fn positions(from: u64, records: u64) -> impl Iterator<Item = u64> {
    (0..records).map(move |record| from + record * WORDS)
}

#[test]
fn records_that_are_missing_are_one_gap_and_those_after_it_count() {
    let read = bytes(positions(0, 5).chain(positions(800, 10)));
    let (samples, skipped, left) = parse(&read, 0);
    assert_eq!(samples, positions(0, 5).chain(positions(800, 10)).collect::<Vec<_>>());
    assert_eq!((skipped, left), (vec![(40, 760, Why::Gap)], 0));
}

#[test]
fn damaged_positions_that_agree_cost_only_their_records() {
    for damaged in 1..4 {
        let mut all: Vec<u64> = positions(0, 1000).collect();
        // A flipped bit of the same value in consecutive records looks like a gap before them.
        all[100..100 + damaged].iter_mut().for_each(|position| *position |= 1 << 40);
        let (samples, skipped, left) = parse(&bytes(all.iter().copied()), 0);
        assert_eq!(samples.len(), 1000 - damaged);
        let words: u64 = skipped.iter().map(|(_, words, _)| words).sum();
        assert_eq!((words, left), (damaged as u64 * WORDS, 0));
        assert!(skipped.iter().all(|(from, _, why)| *from < 8000 && *why == Why::Position), "{skipped:?}");
    }
}

#[test]
fn too_few_records_after_a_gap_are_left_for_the_next_read() {
    for records in 2..4 {
        let read = bytes(positions(0, 5).chain(positions(800, records)));
        let (samples, skipped, left) = parse(&read, 0);
        assert_eq!((samples.len(), skipped, left as u64), (5, vec![], records * WORDS * 8));
        let more = bytes(positions(800, records + 4));
        let (samples, skipped, left) = parse(&more, 40);
        assert_eq!((samples.len() as u64, skipped, left), (records + 4, vec![(40, 760, Why::Gap)], 0));
    }
}

/// Six new records in each stream.
fn six_records(kernel: &mut Kernel) {
    for _ in 0..6 {
        let id = kernel.names.len() as u64 + 1;
        kernel.name(id, format!("task {id} #%").into_bytes());
        kernel.tick_without_names();
        kernel.hit();
    }
}

fn ring(kernel: &mut Kernel, stream: Stream) -> &mut Ring {
    match stream {
        Stream::Meta => &mut kernel.meta,
        Stream::Cpu(cpu) => kernel.rings.get_mut(&cpu).unwrap(),
        Stream::Event(cpu) => kernel.events.get_mut(&cpu).unwrap(),
    }
}

/// A kernel whose streams begin at other positions than 0, because six records of each were acknowledged.
fn world() -> Simulated {
    let mut kernel = Kernel::new(&[1, 2], 1 << 13, 8);
    kernel.events = [(1, Ring::new(1 << 12))].into();
    six_records(&mut kernel);
    for stream in STREAMS {
        let ring = ring(&mut kernel, stream);
        ring.acknowledge(ring.head);
    }
    Simulated::new(kernel, Box::new(|_, _| {}))
}

const STREAMS: [Stream; 3] = [Stream::Meta, Stream::Cpu(1), Stream::Event(1)];

/// Runs a session. Before its first round six records come in each stream, and what `on_pause` makes for pause 0.
/// Returns what it has counted, its file, and whether it has all counts of points.
fn run(
    system: &Simulated,
    is_recording: bool,
    mut on_pause: impl FnMut(&mut Kernel, u64) + 'static,
) -> (Totals, String, bool) {
    let signals = Signals::default();
    let (stopper, mut own) = (signals.clone(), system.clone());
    let source = KprofDevice::open(&mut own, Path::new(SCHEME)).unwrap();
    let mut session = Session::open(&mut own, source, Options { is_recording, ..options() }, signals).unwrap();
    six_records(&mut system.0.borrow_mut().kernel);
    on_pause(&mut system.0.borrow_mut().kernel, 0);
    system.0.borrow_mut().on_pause = Box::new(move |kernel, pause| match pause {
        1..=2 => on_pause(kernel, pause),
        _ => stopper.stop(),
    });
    let totals = session.run(|_, _| Some(Pace::LONGEST)).unwrap();
    let file = String::from_utf8(system.file(OUTPUT)).unwrap();
    (totals, file, session.by_point().is_some())
}

#[test]
fn records_that_another_reader_has_taken_are_told_and_counted() {
    for (stream, is_recording) in STREAMS.into_iter().flat_map(|stream| [(stream, false), (stream, true)]) {
        let taken = Rc::new(Cell::new((0, 0)));
        let told = Rc::clone(&taken);
        let (totals, file, has_all_counts) = run(&world(), is_recording, move |kernel, pause| {
            if pause == 2 {
                six_records(kernel);
                // Another reader reads and acknowledges these records; then new ones come.
                let ring = ring(kernel, stream);
                told.set((ring.tail, ring.head - ring.tail));
                ring.acknowledge(ring.head);
                six_records(kernel);
            }
        });
        let (from, words) = taken.get();
        let line = format!("# corrupt cpu={stream} from={from} words={words} reason=gap\n");
        assert!(from > 0 && words > 30 && file.contains(&line), "recording: {is_recording}: {line}{file}");
        assert_eq!(totals.corrupt, 1, "{line}");
        assert!(!is_recording || has_all_counts == (stream != Stream::Meta), "{line}");
    }
}

#[test]
fn a_first_record_whose_position_is_damaged_is_told_with_the_position_where_it_lies() {
    for (stream, is_recording) in STREAMS.into_iter().flat_map(|stream| [(stream, false), (stream, true)]) {
        let system = world();
        let from = ring(&mut system.0.borrow_mut().kernel, stream).head;
        let mut is_first = true;
        system.0.borrow_mut().on_read = Box::new(move |read, bytes| {
            if read == stream && !bytes.is_empty() && std::mem::take(&mut is_first) {
                bytes[8 + 5] ^= 1;
            }
        });
        let (totals, file, _) = run(&system, is_recording, |kernel, _| six_records(kernel));
        let line = format!("# corrupt cpu={stream} from={from} words=");
        assert!(file.contains(&line), "recording: {is_recording}: {line}{file}");
        assert_eq!(totals.corrupt, 1, "{line}");
    }
}

#[test]
fn records_that_the_kernel_replaced_before_the_first_read_are_missing_only_if_they_are_of_this_session() {
    for (new_names, has_all) in [(0, true), (6, true), (40, false)] {
        let system = world();
        {
            let meta = &mut system.0.borrow_mut().kernel.meta;
            // A ring for 51 names. The first read frees half of it.
            (meta.capacity, meta.replaces) = (512, true);
        }
        let put_names = |kernel: &mut Kernel, count| (0..count).for_each(|_| kernel.name(1, b"task 1 #% !".to_vec()));
        put_names(&mut system.0.borrow_mut().kernel, 40);
        let (totals, _, has_all_counts) = run(&system, true, move |kernel, pause| {
            put_names(kernel, if pause == 0 { new_names } else { 0 });
        });
        assert_eq!((has_all_counts, totals.corrupt), (has_all, 0), "{new_names} names");
    }
}
