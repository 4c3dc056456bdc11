//! Rotation, size limits, reopening and the live stream of the sample file.
//!
//! In: sessions on the simulated system. Out: files of bounded length that together have every sample once; a receiver
//! of the live stream that gets whole lines and sees from the positions which records it did not get.

use crate::support;

use kprof_daemon::drain_loop::{Options, Totals};
use kprof_daemon::signals::Signals;
use kprof_daemon::write::append::{Appended, OnFull, Waiting};
use kprof_daemon::write::compose::Form;
use kprof_daemon::write::sample_file::SampleFile;
use kprof_format::chunk::{Chunk, ChunkKind};
use kprof_format::serial;
use std::path::Path;
use support::kernel::Kernel;
use support::reader::read;
use support::scenario::{OUTPUT, exactly_once, options, reading, session};
use support::system::Simulated;

/// A simulated system with some ticks in each of `pauses` pauses. Then the session ends.
fn world(pauses: u64, signals: &Signals) -> Simulated {
    let signals = signals.clone();
    let on_pause = move |kernel: &mut Kernel, pause: u64| {
        if pause > pauses {
            return signals.stop();
        }
        (0..kernel.random.below(6)).for_each(|_| kernel.tick());
    };
    Simulated::new(Kernel::new(&[1, 2], 1 << 14, 12), Box::new(on_pause))
}

fn run(system: &Simulated, options: Options, signals: &Signals) -> Totals {
    let totals = session(system, options, signals).unwrap();
    exactly_once(system, &reading(system)).unwrap();
    totals
}

#[test]
fn rotated_files_are_bounded_and_together_hold_everything() {
    for form in [Form::Text, Form::Binary] {
        let signals = Signals::default();
        let system = world(100, &signals);
        run(&system, Options { max_bytes: Some(8192), keep_files: 1000, form, ..options() }, &signals);
        let world = system.0.borrow();
        let lengths: Vec<usize> = world.disk.names.keys().map(|path| world.disk.bytes(path).len()).collect();
        assert!(lengths.len() > 3, "{form:?}: {lengths:?}");
        // The account at the end of the file may exceed the limit.
        assert!(lengths.iter().all(|length| *length <= 8192 + 600), "{form:?}: {lengths:?}");
        assert!(!world.disk.names.contains_key(Path::new("/root/profiling.txt.new")));
    }
}

#[test]
fn only_so_many_old_files_are_kept() {
    let signals = Signals::default();
    let system = world(100, &signals);
    session(&system, Options { max_bytes: Some(8192), keep_files: 2, ..options() }, &signals).unwrap();
    let world = system.0.borrow();
    let names: Vec<String> = world.disk.names.keys().map(|path| path.display().to_string()).collect();
    assert_eq!(names, [OUTPUT, "/root/profiling.txt.1", "/root/profiling.txt.2"]);
}

#[test]
fn without_rotation_the_session_ends_at_the_greatest_length_and_the_rest_stays_in_the_kernel() {
    let signals = Signals::default();
    let system = world(100, &signals);
    let bounded = Options { max_bytes: Some(8192), ..options() };
    let totals = session(&system, bounded, &signals).unwrap();
    assert!(totals.reached_max);
    assert!(system.file(OUTPUT).len() <= 8192 + 600, "{}", system.file(OUTPUT).len());
    assert_eq!(reading(&system).void_batches, 0);
    assert_eq!(reading(&system).samples.len() as u64, totals.samples, "what was left out is not counted");
    assert!(system.0.borrow().kernel.rings.values().any(|ring| ring.tail < ring.head));
    // Without a limit the next session gets the remaining samples.
    let again = Signals::default();
    again.stop();
    run(&system, options(), &again);
}

#[test]
fn after_a_rename_sighup_begins_a_new_file() {
    let signals = Signals::default();
    let system = world(60, &signals);
    let (hup, disk) = (signals.clone(), system.clone());
    let mut before = std::mem::replace(&mut system.0.borrow_mut().on_pause, Box::new(|_, _| {}));
    let renaming = std::rc::Rc::new(std::cell::Cell::new(false));
    let flag = std::rc::Rc::clone(&renaming);
    system.0.borrow_mut().on_pause = Box::new(move |kernel, pause| {
        before(kernel, pause);
        if pause == 30 {
            flag.set(true);
            hup.reopen();
        }
        if pause == 40 {
            // If the file was not renamed, reopening changes nothing.
            hup.reopen();
        }
    });
    disk.0.borrow_mut().rename_when = Some((renaming, OUTPUT.into(), "/root/profiling.txt.1".into()));
    run(&system, options(), &signals);
    assert!(system.file("/root/profiling.txt.1").starts_with(b"# kprof-profile 1\n"));
    assert!(system.file(OUTPUT).starts_with(b"# kprof-profile 1\n"));
}

fn live(takes: usize, form: Form) -> (Simulated, Totals) {
    let signals = Signals::default();
    let system = world(60, &signals);
    system.0.borrow_mut().receiver.takes = takes;
    let totals = run(&system, Options { live: Some("/dev/live".into()), form, ..options() }, &signals);
    (system, totals)
}

#[test]
fn a_fast_receiver_gets_every_line_of_the_file() {
    let (system, totals) = live(usize::MAX, Form::Text);
    assert_eq!(totals.live_dropped, 0);
    let got = system.0.borrow().receiver.got.clone();
    let lines: Vec<&[u8]> = got.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let mut text = Vec::new();
    for (sequence, line) in (0..).zip(&lines) {
        let line = serial::read(line).unwrap().unwrap();
        assert_eq!(line.sequence, sequence);
        text.extend_from_slice(line.line);
        text.push(b'\n');
    }
    let file = system.file(OUTPUT);
    assert!(text.ends_with(&file), "the stream ends as the file does");
    assert_eq!(totals.live as usize, lines.len());
}

#[test]
fn a_slow_receiver_gets_whole_lines_and_the_gaps_say_how_many_are_missing() {
    let (system, totals) = live(97, Form::Text);
    let got = system.0.borrow().receiver.got.clone();
    let mut seen = 0;
    let mut last = None;
    for line in got.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let line = serial::read(&line[..line.len() - 1]).unwrap().unwrap();
        assert!(last.is_none_or(|last| line.sequence > last));
        last = Some(line.sequence);
        seen += 1;
    }
    assert!(seen > 0);
    assert_eq!(totals.live, seen, "what the device took is counted");
}

#[test]
fn an_absent_receiver_costs_nothing_but_a_count() {
    for takes in [0, usize::MAX] {
        let signals = Signals::default();
        let system = world(60, &signals);
        system.0.borrow_mut().receiver.is_absent = takes > 0;
        let totals = run(&system, Options { live: Some("/dev/live".into()), ..options() }, &signals);
        let lines = system.file(OUTPUT).iter().filter(|byte| **byte == b'\n').count() as u64;
        assert_eq!(totals.live, 0);
        assert!(totals.live_dropped >= lines, "{} of {lines}", totals.live_dropped);
    }
}

#[test]
fn the_binary_stream_is_whole_chunks() {
    let (system, totals) = live(usize::MAX, Form::Binary);
    let got = system.0.borrow().receiver.got.clone();
    let (mut rest, mut chunks) = (&got[..], 0);
    while !rest.is_empty() {
        rest = Chunk::split(rest).unwrap().1;
        chunks += 1;
    }
    assert_eq!((totals.live, totals.live_dropped), (chunks, 0));
    assert!(got.ends_with(&system.file(OUTPUT)));
}

#[test]
fn a_file_is_as_long_as_it_may_be_and_takes_at_least_one_piece() {
    let (signals, mut system) = (Signals::default(), world(0, &Signals::default()));
    let mut file = SampleFile::open(&mut system, Path::new(OUTPUT), false).unwrap().0;
    assert!(!file.would_exceed(1000, 10), "nothing is in it yet");
    let waiting = Waiting { on_full: OnFull::Stop, signals: &signals, until: None };
    assert_eq!(file.append(&mut system, &[b'.'; 100], waiting).unwrap(), Appended::Whole);
    for (more, max, exceeds) in [(0, 99, true), (0, 100, false), (1, 100, true), (50, 150, false), (51, 150, true)] {
        assert_eq!(file.would_exceed(more, max), exceeds, "{more} more, {max}");
    }
    // The beginning of a file is no piece of its own.
    assert_eq!(file.rotate(&mut system, 3, b"# kprof-profile 1\n", waiting).unwrap(), Appended::Whole);
    assert!(!file.would_exceed(1000, 10));
    assert_eq!(file.append(&mut system, &[b'.'; 100], waiting).unwrap(), Appended::Whole);
    assert!(file.would_exceed(1, 118) && !file.would_exceed(1, 119));
}

#[test]
fn the_standard_output_is_neither_cut_nor_synced_nor_rotated_even_if_it_is_a_file() {
    for is_file in [false, true] {
        let signals = Signals::default();
        let system = world(30, &signals);
        system.0.borrow_mut().stdout_is_file = is_file;
        let bounded = Options { output: "-".into(), max_bytes: Some(2000), keep_files: 2, ..options() };
        assert!(!session(&system, bounded, &signals).unwrap().reached_max);
        exactly_once(&system, &read(&[system.file("/stdout")])).unwrap();
        let calls = &system.0.borrow().calls;
        for call in ["truncate", "sync", "rename", "lock", "chmod"] {
            assert!(!calls.contains(&call), "{call}, a file: {is_file}");
        }
    }
}

#[test]
fn a_disk_that_does_not_count_names_has_no_deleted_file() {
    let signals = Signals::default();
    let system = world(40, &signals);
    system.0.borrow_mut().counts_names = false;
    run(&system, options(), &signals);
}

#[test]
fn every_file_of_a_session_is_private() {
    let signals = Signals::default();
    let system = world(60, &signals);
    run(&system, Options { max_bytes: Some(4096), keep_files: 1000, ..options() }, &signals);
    let world = system.0.borrow();
    assert!(world.disk.names.len() > 2 && world.disk.names.values().all(|file| world.private.contains(file)));
}

#[test]
fn a_piece_that_is_longer_than_what_is_read_at_once_is_continued_after() {
    let chunk = |kind, payload: &[u8]| [&Chunk { kind, samples: 0, payload }.header()[..], payload].concat();
    let line = b"# batch cpu=1 from=0 to=10 boot=now\n";
    for length in [1000, 500_000, 524_288, 600_000, 1_300_000] {
        let samples = [&[line.len() as u8][..], line, &vec![7; length]].concat();
        let header = chunk(ChunkKind::Lines, b"# kprof-profile 1\n# boot now\n");
        let whole = [header, chunk(ChunkKind::Samples, &samples)].concat();
        let mut system = world(0, &Signals::default());
        {
            let disk = &mut system.0.borrow_mut().disk;
            let file = disk.open(Path::new(OUTPUT));
            disk.write(file, 0, &[&whole[..], &whole[..whole.len() / 2]].concat());
        }
        let resumed = SampleFile::open(&mut system, Path::new(OUTPUT), true).unwrap().1;
        assert_eq!(resumed.finished_bytes, whole.len() as u64, "{length}");
        assert!(system.file(OUTPUT) == whole, "{length}");
    }
}

#[test]
fn an_older_file_that_cannot_be_looked_at_is_an_error() {
    let mut system = world(0, &Signals::default());
    assert!(SampleFile::keep_older(&mut system, Path::new(OUTPUT)).is_ok(), "there is none");
    system.0.borrow_mut().stop_at = Some(1);
    let error = SampleFile::keep_older(&mut system, Path::new(OUTPUT)).unwrap_err();
    assert!(error.to_string().contains("looking at the file that is there"), "{error}");
}
