//! Rotation, size limits, reopening and the live stream of the sample file.
//!
//! In: sessions on the simulated system. Out: files of bounded length that together have every sample once; a receiver
//! of the live stream that gets whole lines and sees from the positions which records it did not get.

use crate::support;

use kprof_daemon::drain_loop::{Options, Totals};
use kprof_daemon::signals::Signals;
use kprof_daemon::write::compose::Form;
use kprof_format::chunk::Chunk;
use kprof_format::serial;
use std::path::Path;
use support::scenario::{OUTPUT, exactly_once, options, reading, session, world};
use support::system::Simulated;

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
    assert_eq!(totals.bytes, file.len() as u64);
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
