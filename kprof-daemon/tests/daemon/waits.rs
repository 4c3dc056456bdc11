//! A session that cannot write: the disk is full, or the reader of its pipe takes nothing.
//!
//! In: sessions on the simulated system. Out: each wait ends when the session is to end, or when the file is to be
//! reopened; no sample is lost or written twice.

use crate::support;

use kprof_daemon::drain_loop::Options;
use kprof_daemon::error::Error;
use kprof_daemon::signals::Signals;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use support::disk::Disk;
use support::kernel::Kernel;
use support::scenario::{self, OUTPUT, exactly_once, options, reading, session};
use support::system::Simulated;

/// A system with a tick in each of 40 pauses.
fn ticking(signals: &Signals) -> Simulated {
    scenario::ticking(Kernel::new(&[1, 2], 1 << 13, 8), 40, signals)
}

/// The same, with a disk of 5000 bytes.
fn full_disk(signals: &Signals) -> Simulated {
    let system = ticking(signals);
    system.0.borrow_mut().disk.room = 5000;
    system
}

/// Calls `act` in wait number `number` of the session.
fn in_wait(system: &Simulated, number: u32, mut act: impl FnMut(&mut Disk) + 'static) -> Rc<Cell<u32>> {
    let waits = Rc::new(Cell::new(0));
    let count = Rc::clone(&waits);
    system.0.borrow_mut().on_sleep = Box::new(move |disk| {
        count.set(count.get() + 1);
        if count.get() == number {
            act(disk);
        }
        assert!(count.get() < 1000, "the session does not end");
    });
    waits
}

/// Lets the next session end at once, with free space, and checks that the file then has each sample once.
fn the_rest_is_still_there(system: &Simulated) {
    system.0.borrow_mut().disk.room = usize::MAX;
    let again = Signals::default();
    again.stop();
    session(system, options(), &again).unwrap();
    exactly_once(system, &reading(system)).unwrap();
}

#[test]
fn a_wait_for_room_ends_with_the_session() {
    type End = fn(&Signals);
    let (by_signal, by_child): (End, End) = (Signals::stop, Signals::child_ended);
    for end in [by_signal, by_child] {
        let signals = Signals::default();
        let system = full_disk(&signals);
        let ending = signals.clone();
        let waits = in_wait(&system, 25, move |_| end(&ending));
        let error = session(&system, options(), &signals).unwrap_err();
        assert_eq!((error.exit_code(), waits.get()), (9, 25), "{error}");
        the_rest_is_still_there(&system);
    }
    let signals = Signals::default();
    let system = full_disk(&signals);
    let waits = in_wait(&system, 0, |_| {});
    let error = session(&system, Options { duration: Some(Duration::from_secs(60)), ..options() }, &signals);
    let error = error.unwrap_err();
    assert!(error.exit_code() == 9 && waits.get() > 300, "{error}: {} waits", waits.get());
    the_rest_is_still_there(&system);
}

#[test]
fn room_that_comes_with_the_end_of_the_session_is_used() {
    let signals = Signals::default();
    let system = full_disk(&signals);
    let ending = signals.clone();
    let waits = in_wait(&system, 25, move |disk| {
        disk.room = usize::MAX;
        ending.stop();
    });
    session(&system, options(), &signals).unwrap();
    assert_eq!(waits.get(), 25);
    exactly_once(&system, &reading(&system)).unwrap();
}

#[test]
fn a_file_that_is_moved_away_from_a_full_disk_is_left_at_once() {
    let signals = Signals::default();
    let system = full_disk(&signals);
    let hang_up = signals.clone();
    let waits = in_wait(&system, 25, move |disk| {
        let file = disk.names.remove(Path::new(OUTPUT)).expect("the file is there");
        disk.names.insert(format!("{OUTPUT}.1").into(), file);
        hang_up.reopen();
        // There is room on the disk that the new file is on.
        disk.room = usize::MAX;
    });
    session(&system, options(), &signals).unwrap();
    assert_eq!(waits.get(), 25);
    assert!(reading(&system).headers == 2 && system.file(OUTPUT).starts_with(b"# kprof-profile 1\n"));
    exactly_once(&system, &reading(&system)).unwrap();
}

#[test]
fn a_reader_that_takes_nothing_is_waited_for_until_the_session_is_to_end() {
    // It takes nothing for a while: everything arrives.
    let signals = Signals::default();
    let system = ticking(&signals);
    let stalls = Rc::clone(&system.0.borrow().reader_stalls);
    stalls.set(true);
    in_wait(&system, 100, move |_| stalls.set(false));
    let to_stdout = || Options::new("-");
    // A command that has ended does not end the wait: its recording has to be written.
    signals.child_ended();
    session(&system, to_stdout(), &signals).unwrap();
    let written = support::reader::read(&[system.file("/stdout")]);
    assert!(!written.samples.is_empty());
    exactly_once(&system, &written).unwrap();

    // It takes nothing any more: the session ends a second after it was asked to.
    for duration in [None, Some(Duration::from_secs(5))] {
        let signals = Signals::default();
        let system = ticking(&signals);
        system.0.borrow().reader_stalls.set(true);
        let ending = signals.clone();
        let waits = in_wait(&system, if duration.is_some() { 0 } else { 50 }, move |_| ending.stop());
        let error = session(&system, Options { duration, ..to_stdout() }, &signals).unwrap_err();
        assert!(matches!(error, Error::Stalled { .. }) && error.exit_code() == 8, "{error}");
        assert!((59..=60).contains(&waits.get()), "{} waits", waits.get());
    }
}
