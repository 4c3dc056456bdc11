//! What a session does with files that it finds under its names: unfinished rotations, older profiles, files that
//! another instance writes or that cannot be looked at; and how long a file becomes.
//!
//! In: a simulated disk with files on it, and calls that fail. Out: the names and contents on the disk. No finished
//! piece is lost, and no file of another program is renamed.

use crate::support;

use kprof_daemon::drain_loop::{Options, Session};
use kprof_daemon::error::Error;
use kprof_daemon::pace::Pace;
use kprof_daemon::signals::Signals;
use kprof_daemon::source::kprof_device::KprofDevice;
use kprof_daemon::write::append::{Appended, OnFull, Waiting};
use kprof_daemon::write::compose::Form;
use kprof_daemon::write::sample_file::SampleFile;
use kprof_format::chunk::{Chunk, ChunkKind};
use std::io;
use std::path::Path;
use support::reader::{read, text_of_binary};
use support::scenario::{OUTPUT, exactly_once, options, reading, session, world};
use support::system::{SCHEME, Simulated};

const HEADER: &[u8] = b"# kprof-profile 1\n# boot now\n";

/// Writes a file, in place of one with this name.
fn put(system: &Simulated, path: &str, bytes: &[u8]) {
    let disk = &mut system.0.borrow_mut().disk;
    disk.names.remove(Path::new(path));
    let file = disk.open(Path::new(path));
    disk.write(file, 0, bytes);
}

fn is_there(system: &Simulated, path: &str) -> bool {
    system.0.borrow().disk.names.contains_key(Path::new(path))
}

fn chunk(kind: ChunkKind, payload: &[u8]) -> Vec<u8> {
    [&Chunk { kind, samples: 0, payload }.header()[..], payload].concat()
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
    session(&system, options(), &signals).unwrap();
    exactly_once(&system, &reading(&system)).unwrap();
}

#[test]
fn every_file_of_a_session_is_private() {
    let signals = Signals::default();
    let system = world(60, &signals);
    session(&system, Options { max_bytes: Some(4096), keep_files: 1000, ..options() }, &signals).unwrap();
    let world = system.0.borrow();
    assert!(world.disk.names.len() > 2 && world.disk.names.values().all(|file| world.private.contains(file)));
}

#[test]
fn a_piece_that_is_longer_than_what_is_read_at_once_is_continued_after() {
    let line = b"# batch cpu=1 from=0 to=10 boot=now\n";
    for length in [1000, 500_000, 524_288, 600_000, 1_300_000] {
        let samples = [&[line.len() as u8][..], line, &vec![7; length]].concat();
        let header = chunk(ChunkKind::Lines, HEADER);
        let whole = [header, chunk(ChunkKind::Samples, &samples)].concat();
        let mut system = world(0, &Signals::default());
        put(&system, OUTPUT, &[&whole[..], &whole[..whole.len() / 2]].concat());
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

#[test]
fn a_rotation_that_was_killed_before_its_last_renaming_is_completed_and_no_other_file_is_renamed() {
    let new = format!("{OUTPUT}.new");
    let (old, next) = ([HEADER, b"# account cpu=1 sent=1\n"].concat(), [HEADER, b"# account cpu=1 sent=2\n"].concat());
    let foreign = b"Dear reader,\n".to_vec();
    for (output, beside, found, left) in [
        (None, Some(&next), &next, None),
        (None, Some(&foreign), &vec![], Some(&foreign)),
        (None, None, &vec![], None),
        (Some(&old), Some(&next), &old, Some(&next)),
        (Some(&old), None, &old, None),
    ] {
        let mut system = world(0, &Signals::default());
        for (path, bytes) in [(OUTPUT, output), (&new, beside)] {
            bytes.into_iter().for_each(|bytes| put(&system, path, bytes));
        }
        SampleFile::open(&mut system, Path::new(OUTPUT), false).unwrap();
        assert_eq!(&system.file(OUTPUT), found);
        assert_eq!(is_there(&system, &new).then(|| system.file(&new)).as_ref(), left);
    }
}

#[test]
fn a_rotation_goes_on_if_the_file_was_moved_away_and_ends_with_every_other_error() {
    for (is_moved, error) in [(true, None), (false, Some(io::ErrorKind::Other)), (false, None)] {
        let (signals, mut system) = (Signals::default(), world(0, &Signals::default()));
        let mut file = SampleFile::open(&mut system, Path::new(OUTPUT), false).unwrap().0;
        let waiting = Waiting { on_full: OnFull::Stop, signals: &signals, until: None };
        assert_eq!(file.append(&mut system, b"before", waiting).unwrap(), Appended::Whole);
        system.0.borrow_mut().rename_error = error;
        if is_moved {
            system.0.borrow_mut().disk.names.remove(Path::new(OUTPUT));
        }
        let rotated = file.rotate(&mut system, 3, HEADER, waiting);
        assert_eq!(rotated.is_err(), error.is_some(), "{rotated:?}");
        assert_eq!(system.file(OUTPUT), if error.is_some() { &b"before"[..] } else { HEADER });
        assert_eq!(is_there(&system, &format!("{OUTPUT}.1")), !is_moved && error.is_none());
    }
}

#[test]
fn a_rotation_renames_and_replaces_no_file_that_the_program_has_not_made() {
    let recording = b"# kprof-profile 1\n# recorder kprof-record\n".to_vec();
    for (name, foreign) in [("1", b"Dear reader,\n".to_vec()), ("2", recording), ("3", Vec::new())] {
        let (signals, mut system) = (Signals::default(), world(0, &Signals::default()));
        let mut file = SampleFile::open(&mut system, Path::new(OUTPUT), false).unwrap().0;
        let waiting = Waiting { on_full: OnFull::Stop, signals: &signals, until: None };
        let numbered = |number: &str| format!("{OUTPUT}.{number}");
        ["1", "2", "3"].iter().for_each(|number| put(&system, &numbered(number), HEADER));
        put(&system, &numbered(name), &foreign);
        let refused = file.rotate(&mut system, 3, HEADER, waiting).unwrap_err();
        assert!(refused.to_string().starts_with(&format!("{OUTPUT}.{name}: ")), "{refused}");
        assert_eq!(system.file(&numbered(name)), foreign);
        let others = ["1", "2", "3"].iter().filter(|number| **number != name);
        others.for_each(|number| assert_eq!(system.file(&numbered(number)), HEADER));
        // With fewer files the name is not used.
        let kept = name.parse::<u32>().unwrap() - 1;
        if kept > 0 {
            assert_eq!(file.rotate(&mut system, kept, HEADER, waiting).unwrap(), Appended::Whole);
            assert_eq!(system.file(&numbered(name)), foreign);
        }
    }
}

#[test]
fn before_a_rotation_renames_anything_the_new_file_and_its_name_are_on_the_disk() {
    let (signals, mut system) = (Signals::default(), world(0, &Signals::default()));
    let waiting = Waiting { on_full: OnFull::Stop, signals: &signals, until: None };
    let mut file = SampleFile::open(&mut system, Path::new(OUTPUT), false).unwrap().0;
    assert_eq!(file.append(&mut system, HEADER, waiting).unwrap(), Appended::Whole);
    for _ in 0..2 {
        system.0.borrow_mut().calls.clear();
        assert_eq!(file.rotate(&mut system, 3, HEADER, waiting).unwrap(), Appended::Whole);
        let calls = system.0.borrow().calls.clone();
        let at = |call: &str| calls.iter().position(|made| *made == call);
        assert!(at("sync") < at("sync folder") && at("sync folder") < at("rename"), "{calls:?}");
        assert_eq!(calls.last(), Some(&"sync folder"), "and then the new names are");
    }
}

#[test]
fn a_rotation_leaves_a_file_that_another_process_writes_and_one_that_has_got_the_name() {
    let (signals, mut system) = (Signals::default(), world(0, &Signals::default()));
    let waiting = Waiting { on_full: OnFull::Stop, signals: &signals, until: None };
    let mut file = SampleFile::open(&mut system, Path::new(OUTPUT), false).unwrap().0;
    let older = format!("{OUTPUT}.1");
    put(&system, &older, HEADER);
    let other = SampleFile::open(&mut system, Path::new(&older), false).unwrap().0;
    assert!(matches!(file.rotate(&mut system, 3, HEADER, waiting), Err(Error::Locked { .. })));
    drop(other);
    put(&system, OUTPUT, b"Dear reader,\n");
    let refused = file.rotate(&mut system, 3, HEADER, waiting).unwrap_err();
    assert!(refused.to_string().contains("another program has put a file there"), "{refused}");
    assert_eq!(system.file(OUTPUT), b"Dear reader,\n");
}

#[test]
fn a_file_that_is_found_when_it_is_opened_by_name_again_is_continued() {
    let in_form = |form, bytes: &[u8]| match form {
        Form::Binary => chunk(ChunkKind::Lines, bytes),
        _ => bytes.to_vec(),
    };
    let other_boot = b"# kprof-profile 1\n# boot dead\n# account cpu=1 sent=1\n";
    for form in [Form::Text, Form::Binary] {
        // What is in the place of the file, how many headers there are then, and whether the file is still there.
        for (found, headers) in [("nothing", 1), ("a copy", 1), ("another boot", 2), ("the same", 1)] {
            let signals = Signals::default();
            let system = world(1000, &signals);
            let mut own = system.clone();
            let source = KprofDevice::open(&mut own, Path::new(SCHEME)).unwrap();
            let plan = Options { form, ..options() };
            let mut session = Session::open(&mut own, source, plan, signals.clone()).unwrap();
            let mut rounds = 0;
            let each_round = |_: &_, _: &_| {
                rounds += 1;
                if rounds == 10 {
                    let before = system.file(OUTPUT);
                    if found != "the same" {
                        put(&system, &format!("{OUTPUT}.1"), &before);
                        system.0.borrow_mut().disk.names.remove(Path::new(OUTPUT));
                    }
                    match found {
                        "a copy" => put(&system, OUTPUT, &before),
                        "another boot" => put(&system, OUTPUT, &in_form(form, other_boot)),
                        _ => {}
                    }
                    signals.reopen();
                }
                (rounds < 20).then_some(Pace::LONGEST)
            };
            session.run(each_round).unwrap_or_else(|error| panic!("{form:?}, {found}: {error}"));
            exactly_once(&system, &reading(&system)).unwrap_or_else(|error| panic!("{form:?}, {found}: {error}"));
            let file = system.file(OUTPUT);
            let text = if form == Form::Binary { text_of_binary(&file) } else { file };
            assert_eq!(read(&[text]).headers, headers, "{form:?}, {found}");
        }
    }
}

#[test]
fn a_file_that_another_instance_writes_is_neither_opened_nor_renamed() {
    let (mut system, path) = (world(0, &Signals::default()), Path::new(OUTPUT));
    put(&system, OUTPUT, b"# kprof-profile 1\n# recorder kprof-record\n# boot now\n# account cpu=1 sent=1\n");
    let first = SampleFile::open(&mut system, path, false).unwrap();
    assert!(matches!(SampleFile::open(&mut system, path, false), Err(Error::Locked { .. })));
    assert!(matches!(SampleFile::keep_older(&mut system, path), Err(Error::Locked { .. })));
    assert!(!is_there(&system, &format!("{OUTPUT}.old")));
    drop(first);
    SampleFile::keep_older(&mut system, path).unwrap();
    assert!(is_there(&system, &format!("{OUTPUT}.old")) && !is_there(&system, OUTPUT));
}

#[test]
fn a_file_that_is_moved_away_before_its_beginning_fits_on_the_disk_is_left_at_once() {
    for is_copy in [false, true] {
        let signals = Signals::default();
        let system = world(1000, &signals);
        let (mut own, hang_up) = (system.clone(), signals.clone());
        let mut waits = 0;
        system.0.borrow_mut().on_sleep = Box::new(move |disk| {
            waits += 1;
            if waits == 3 {
                let file = disk.names.remove(Path::new(OUTPUT)).unwrap();
                disk.names.insert(format!("{OUTPUT}.2").into(), file);
                disk.room = usize::MAX;
                if is_copy {
                    let (bytes, copy) =
                        (disk.bytes(Path::new(&format!("{OUTPUT}.1"))).to_vec(), disk.open(Path::new(OUTPUT)));
                    disk.write(copy, 0, &bytes);
                }
                hang_up.reopen();
            }
            assert!(waits < 100, "the session does not go on");
        });
        let source = KprofDevice::open(&mut own, Path::new(SCHEME)).unwrap();
        let mut session = Session::open(&mut own, source, options(), signals.clone()).unwrap();
        let mut rounds = 0;
        let each_round = |_: &_, _: &_| {
            rounds += 1;
            if rounds == 10 {
                let disk = &mut system.0.borrow_mut().disk;
                let file = disk.names.remove(Path::new(OUTPUT)).unwrap();
                disk.names.insert(format!("{OUTPUT}.1").into(), file);
                disk.room = 0;
                signals.reopen();
            }
            (rounds < 20).then_some(Pace::LONGEST)
        };
        session.run(each_round).unwrap();
        exactly_once(&system, &reading(&system)).unwrap();
        let headers = read(&[system.file(OUTPUT)]).headers;
        assert_eq!((headers, system.file(&format!("{OUTPUT}.2")).len()), (1, 0), "a copy is there: {is_copy}");
    }
}

#[test]
fn a_file_that_was_truncated_to_a_part_goes_on_after_its_last_whole_piece() {
    for form in [Form::Text, Form::Binary] {
        let signals = Signals::default();
        let system = world(1000, &signals);
        let mut own = system.clone();
        let source = KprofDevice::open(&mut own, Path::new(SCHEME)).unwrap();
        let mut session = Session::open(&mut own, source, Options { form, ..options() }, signals).unwrap();
        let (mut rounds, mut kept) = (0, Vec::new());
        let each_round = |_: &_, _: &_| {
            rounds += 1;
            if rounds == 20 {
                kept = system.file(OUTPUT);
                kept.truncate(kept.len() / 2);
                let disk = &mut system.0.borrow_mut().disk;
                let file = disk.open(Path::new(OUTPUT));
                disk.truncate(file, kept.len());
            }
            (rounds < 40).then_some(Pace::LONGEST)
        };
        session.run(each_round).unwrap_or_else(|error| panic!("{form:?}: {error}"));
        let file = system.file(OUTPUT);
        let whole = file.iter().zip(&kept).take_while(|(now, before)| now == before).count();
        assert!(whole > kept.len() / 2, "{form:?}: {whole} of {} bytes are left", kept.len());
        let text = if form == Form::Binary { text_of_binary(&file) } else { file };
        let reading = read(&[text]);
        assert_eq!((reading.headers, reading.void_batches), (2, 0), "{form:?}");
        let last = reading.samples.iter().map(|((_, tsc), ..)| *tsc).max();
        assert_eq!(last, system.0.borrow().kernel.ledger.keys().map(|(_, tsc)| *tsc).max(), "{form:?}");
    }
}
