//! Rotation, size limits and reopening of the sample file.
//!
//! In: sessions on the simulated system. Out: files of bounded length that together have every sample once.

use crate::support;

use kprof_daemon::drain_loop::{Options, Totals};
use kprof_daemon::signals::Signals;
use kprof_daemon::write::compose::Form;
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
