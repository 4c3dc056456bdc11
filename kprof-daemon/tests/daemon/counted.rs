//! Which records are in the file and which are only counted, and what is acknowledged.
//!
//! In: records of every kind, in the streams where they belong and in others. Out: the lines of the file, the counts of
//! the session, and the commands that the kernel got.

use crate::support;

use kprof_daemon::drain_loop::{Options, Session, Totals};
use kprof_daemon::error::Error;
use kprof_daemon::pace::Pace;
use kprof_daemon::signals::Signals;
use kprof_daemon::source::Stream;
use kprof_daemon::source::kprof_device::KprofDevice;
use kprof_format::record::{Header, Kind};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use support::kernel::Kernel;
use support::ring::Ring;
use support::scenario::{OUTPUT, options, reading};
use support::system::{SCHEME, Simulated};

/// Runs a session of three rounds. `put` makes records after it was opened.
fn run(
    system: &Simulated,
    options: Options,
    put: impl FnOnce(&mut Kernel),
    mut on_pause: impl FnMut(&mut Kernel) + 'static,
) -> Result<Totals, Error> {
    let signals = Signals::default();
    let (stopper, mut own) = (signals.clone(), system.clone());
    let source = KprofDevice::open(&mut own, Path::new(SCHEME))?;
    let mut session = Session::open(&mut own, source, options, signals)?;
    put(&mut system.0.borrow_mut().kernel);
    system.0.borrow_mut().on_pause = Box::new(move |kernel, pause| {
        on_pause(kernel);
        if pause > 2 {
            stopper.stop();
        }
    });
    session.run(|_, _| Some(Pace::LONGEST))
}

fn system() -> Simulated {
    let mut kernel = Kernel::new(&[1], 1 << 13, 5);
    kernel.events = [(1, Ring::new(1 << 12))].into();
    Simulated::new(kernel, Box::new(|_, _| {}))
}

/// The text of a record of the meta stream, the word of its line, and whether the line counts something.
fn example(kind: Kind) -> Option<(&'static str, &'static str, bool)> {
    Some(match kind {
        Kind::Sample | Kind::SnapshotSample | Kind::Event => return None,
        Kind::TaskName => ("sh", "task", false),
        Kind::Image => ("module 1a2b", "image", false),
        Kind::Mark => ("here", "mark", false),
        Kind::Setting => ("hz 100", "setting", false),
        Kind::Events => ("page-faults=3", "events", true),
        Kind::PointAccount => ("bytes null.read log2-6=1 filtered=1", "point-account", true),
        Kind::Point => ("bytes null.read count", "point", false),
        Kind::TaskTimes => (" running=20", "task-times", true),
        Kind::PointValues => ("sched.off-cpu running,idle", "point-values", false),
        Kind::Lockup => ("one-task ticks=9", "lockup", true),
        Kind::LockupStack => ("1e ff,1", "lockup-stack", true),
    })
}

#[test]
fn a_recording_has_no_count_from_before_it_began_and_all_else() {
    for is_recording in [false, true] {
        for (kind, (text, word, is_count)) in Kind::ALL.into_iter().filter_map(|kind| Some((kind, example(kind)?))) {
            let system = system();
            let line = format!("# {word} ");
            let put = |kernel: &mut Kernel| assert!(kernel.put_meta(kind, [7, 1, 2], text.as_bytes()));
            put(&mut system.0.borrow_mut().kernel);
            let options = Options { is_recording, ..options() };
            // The first record of the recording lies where the last one from before ends.
            let totals = run(&system, options, put, |_| {}).unwrap();
            let file = String::from_utf8(system.file(OUTPUT)).unwrap();
            let lines = file.lines().filter(|found| found.starts_with(&line) && !found.contains("null.write")).count();
            assert_eq!(lines, if is_recording && is_count { 1 } else { 2 }, "{kind:?}, {is_recording}: {file}");
            assert_eq!((totals.unknown, totals.corrupt), (0, 0), "{kind:?}");
        }
    }
}

#[test]
fn a_record_in_a_stream_where_its_kind_does_not_belong_is_counted_and_not_written() {
    let system = system();
    let put = |kernel: &mut Kernel| {
        for stream in ["meta", "1", "event-1"] {
            for kind in [Kind::Sample, Kind::Event, Kind::Mark] {
                let words = 9;
                let record = |position| vec![Header { kind, words }.encode(), position, 0, 0x5f, 1, 0, 2, 3, 0x21_2121];
                let ring = match stream {
                    "meta" => &mut kernel.meta,
                    "1" => kernel.rings.get_mut(&1).unwrap(),
                    _ => kernel.events.get_mut(&1).unwrap(),
                };
                assert!(ring.put(usize::from(words), record));
            }
        }
    };
    let totals = run(&system, options(), put, |_| {}).unwrap();
    assert_eq!((totals.unknown, totals.corrupt, totals.samples, totals.events), (6, 0, 1, 1), "{totals:?}");
    let file = String::from_utf8(system.file(OUTPUT)).unwrap();
    assert_eq!(file.matches("# mark ").count(), 1, "{file}");
    assert_eq!(file.lines().filter(|line| line.starts_with('!')).count(), 1, "{file}");
}

fn acks(system: &Simulated) -> Vec<String> {
    let commands = &system.0.borrow().kernel.commands;
    commands.iter().filter(|command| command.starts_with("ack ")).cloned().collect()
}

#[test]
fn nothing_is_acknowledged_that_the_kernel_has_freed_or_was_told_before() {
    for hides_oldest in [false, true] {
        let system = system();
        {
            let kernel = &mut system.0.borrow_mut().kernel;
            kernel.nasty.hides_oldest = hides_oldest;
            (0..5).for_each(|_| kernel.tick());
            let rings = kernel.rings.values_mut().chain([&mut kernel.meta]);
            rings.for_each(|ring| ring.acknowledge(ring.head));
            kernel.ledger.clear();
            kernel.page_faults = 0;
        }
        let mut left = 2;
        run(
            &system,
            options(),
            |_| {},
            move |kernel| {
                left -= i32::from(left > 0);
                if left == 1 {
                    kernel.tick_without_names();
                }
            },
        )
        .unwrap();
        let acks = acks(&system);
        assert_eq!(acks.iter().filter(|ack| ack.starts_with("ack 1 ")).count(), 1, "{hides_oldest}: {acks:?}");
        let ends = system.0.borrow().kernel.rings[&1].head;
        assert!(acks.contains(&format!("ack 1 {ends}")), "{acks:?}");
    }
}

#[test]
fn a_kernel_that_never_takes_an_acknowledgement_ends_the_session_after_eight_attempts() {
    let system = system();
    system.0.borrow_mut().kernel.nasty.refuses_acks = true;
    let error = run(&system, options(), Kernel::tick, Kernel::tick).unwrap_err();
    assert!(error.to_string().contains("nothing is acknowledged today"), "{error}");
    assert_eq!(system.0.borrow().kernel.nasty.refused_acks, 8);
    assert_eq!(reading(&system).samples.len(), 1, "what was read is in the file");
}

#[test]
fn a_first_word_that_is_damaged_costs_its_record_and_is_no_newer_kernel() {
    // The byte of the first word, its value, and what the session counts: damaged ranges, records of unknown kinds.
    for (byte, value, reason, counts) in [
        (3, 9, "version", (1, 0)),
        (3, 0, "version", (1, 0)),
        (2, 200, "unknown-kind", (0, 1)),
        (4, 0, "no-record", (1, 0)),
    ] {
        // The damaged record is the first one, one between others, or alone in its read.
        for damaged in [0, 2, 5] {
            let system = system();
            let record = Rc::new(Cell::new(0));
            let seen = Rc::clone(&record);
            system.0.borrow_mut().on_read = Box::new(move |stream, bytes| {
                if stream == Stream::Cpu(1) && !bytes.is_empty() {
                    let (first, mut at) = (seen.get(), 0);
                    while at < bytes.len() {
                        let words = usize::from(bytes[at]);
                        if seen.replace(seen.get() + 1) == damaged {
                            bytes[at + byte] = value;
                        }
                        at += 8 * words;
                    }
                    assert!(first == 0 || seen.get() == first + 1, "five records in the first read, then one in each");
                }
            });
            let put = |kernel: &mut Kernel| (0..5).for_each(|_| kernel.tick());
            let totals = run(&system, options(), put, Kernel::tick).unwrap();
            let (all, place) = (record.get(), format!("{reason} {value}, record {damaged}"));
            assert_eq!((totals.corrupt, totals.unknown), counts, "{place}");
            assert_eq!(totals.samples, all - 1, "{place}");
            let file = String::from_utf8(system.file(OUTPUT)).unwrap();
            assert_eq!(file.matches("# corrupt cpu=1 ").count(), 1, "{place}: {file}");
            assert!(file.contains(&format!(" reason={reason}\n")), "{place}: {file}");
            assert_eq!(reading(&system).samples.len() as u64, totals.samples, "{place}");
        }
    }
    // An older version alone, before any sample, is damage; a newer one alone is a newer kernel.
    for (version, is_newer) in [(0, false), (2, true)] {
        let system = system();
        system.0.borrow_mut().kernel.version = Some(version);
        let ended = run(&system, options(), Kernel::tick, |_| {});
        assert_eq!(ended.is_err(), is_newer, "version {version}: {ended:?}");
    }
}
