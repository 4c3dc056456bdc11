//! Sample files that cannot be continued as they are: truncated by another program, without their beginning, or from
//! another boot with the same id.
//!
//! In: sessions on the simulated system. Out: no sample that was acknowledged is lost to the daemon's doing, and the
//! daemon goes on; a file of another program is never renamed.

use crate::support;

use kprof_daemon::drain_loop::Options;
use kprof_daemon::error::Error;
use kprof_daemon::signals::Signals;
use kprof_daemon::write::compose::Form;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use support::kernel::Kernel;
use support::scenario::{OUTPUT, exactly_once, options, reading, session, ticking};
use support::system::Simulated;

const BAD: &str = "/root/profiling.txt.bad";

fn kernel() -> Kernel {
    Kernel::new(&[1, 2], 1 << 13, 8)
}

fn put(system: &Simulated, path: &str, bytes: &[u8]) {
    let disk = &mut system.0.borrow_mut().disk;
    let file = disk.open(Path::new(path));
    disk.write(file, 0, bytes);
    disk.sync(file);
    disk.sync_names();
}

#[test]
fn a_file_that_was_copied_and_truncated_goes_on_with_a_header() {
    for form in [Form::Text, Form::Binary] {
        let signals = Signals::default();
        let system = ticking(kernel(), 40, &signals);
        let mut before = std::mem::replace(&mut system.0.borrow_mut().on_pause, Box::new(|_, _| {}));
        let due = Rc::new(Cell::new(false));
        let is_due = Rc::clone(&due);
        system.0.borrow_mut().on_pause = Box::new(move |kernel, pause| {
            before(kernel, pause);
            due.set(pause == 20);
        });
        system.0.borrow_mut().copy_and_truncate_when = Some((is_due, OUTPUT.into(), format!("{OUTPUT}.1").into()));
        session(&system, Options { form, ..options() }, &signals).unwrap();
        let reading = reading(&system);
        exactly_once(&system, &reading).unwrap_or_else(|error| panic!("{form:?}: {error}"));
        assert_eq!(reading.headers, 2, "{form:?}");
        assert!(system.0.borrow().said.iter().any(|line| line.contains("truncated it to 0 bytes")), "{form:?}");
    }
}

#[test]
fn a_file_whose_beginning_is_zero_is_kept_and_a_new_one_begins() {
    let first = Signals::default();
    let system = ticking(kernel(), 40, &first);
    session(&system, options(), &first).unwrap();
    let whole = system.file(OUTPUT);
    // The first sectors are zero; or the file has been truncated and then written at its old length; or nothing of its
    // content has come to the disk.
    let mut sectors = whole.clone();
    sectors[..512].fill(0);
    let hole = [vec![0; 9000], whole[whole.len() / 2..].to_vec()].concat();
    // Only a line of a profile is left, and its beginning is at the end of what is read at once.
    let line = [vec![0; 64 * 1024 - 3], b"# batch cpu=1 from=0 to=10\n".to_vec()].concat();
    for lost in [sectors, hole, vec![0; 4096], line] {
        let signals = Signals::default();
        let system = ticking(kernel(), 20, &signals);
        put(&system, OUTPUT, &lost);
        session(&system, options(), &signals).unwrap();
        assert_eq!(system.file(BAD), lost);
        exactly_once(&system, &reading(&system)).unwrap();
        let said = system.0.borrow().said.join("\n");
        assert!(said.contains("bytes are zero") && said.contains(BAD), "{said}");
        // The next one does not replace it.
        put(&system, OUTPUT, &vec![0; system.file(OUTPUT).len()]);
        let again = Signals::default();
        again.stop();
        session(&system, options(), &again).unwrap();
        assert_eq!(system.file(BAD), lost);
        assert!(system.0.borrow().disk.names.contains_key(Path::new(&format!("{BAD}.2"))));
    }
}

#[test]
fn a_name_that_cannot_be_looked_at_is_not_free() {
    let signals = Signals::default();
    signals.stop();
    let system = ticking(kernel(), 0, &signals);
    put(&system, OUTPUT, &[0; 4096]);
    put(&system, BAD, b"of somebody else");
    system.0.borrow_mut().open_error = Some((BAD.into(), std::io::ErrorKind::PermissionDenied));
    session(&system, options(), &signals).unwrap();
    assert_eq!(system.file(BAD), b"of somebody else");
    assert_eq!(system.file(&format!("{BAD}.2")), [0; 4096]);
}

#[test]
fn a_file_of_another_program_stays_where_it_is() {
    let image = [vec![0; 512], b"\x55\xaa a disk image # batch of other things".to_vec()].concat();
    // More zeros than are read at once.
    let later = [vec![0; 200_000], b"a disk image".to_vec()].concat();
    for foreign in [image, later, b"root:x:0:0\n".to_vec()] {
        let signals = Signals::default();
        let system = ticking(kernel(), 5, &signals);
        put(&system, OUTPUT, &foreign);
        let error = session(&system, options(), &signals).unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }), "{error}");
        assert_eq!(system.file(OUTPUT), foreign);
        assert_eq!(system.0.borrow().disk.names.len(), 1);
    }
}

/// What a boot does before `profiled` starts: some ticks, at other times than in every other boot.
fn booted(ticks: u64) -> Kernel {
    let mut kernel = kernel();
    kernel.tsc = 1_000_000_000 * ticks;
    (0..ticks).for_each(|_| kernel.tick());
    kernel
}

#[test]
fn a_boot_with_a_repeated_id_that_has_recorded_more_is_told_apart_by_its_first_sample() {
    for form in [Form::Text, Form::Binary] {
        let signals = Signals::default();
        let system = ticking(kernel(), 20, &signals);
        session(&system, Options { form, ..options() }, &signals).unwrap();
        let before = system.file(OUTPUT);
        system.0.borrow_mut().kernel = booted(200);
        let error = session(&system, Options { form, ..options() }, &signals).unwrap_err().to_string();
        assert!(error.contains("move the file away") && error.contains("position 0 has TSC"), "{form:?}: {error}");
        assert_eq!(system.file(OUTPUT), before);
        assert!(system.0.borrow().kernel.rings.values().all(|ring| ring.tail == 0), "nothing was acknowledged");
    }
}

#[test]
fn a_boot_with_a_repeated_id_is_told_apart_by_its_positions() {
    // What it has recorded when `profiled` starts: less than the file has, or records before those of the file.
    for (ticks, said) in [(1, "the file goes to position"), (200, "the file begins at position")] {
        let signals = Signals::default();
        signals.stop();
        let system = ticking(booted(30), 20, &signals);
        session(&system, Options { output: "/root/earlier.txt".into(), ..options() }, &signals).unwrap();
        {
            let kernel = &mut system.0.borrow_mut().kernel;
            // As for each claim, the kernel repeats the names.
            kernel.names.clone().into_iter().for_each(|(id, name)| kernel.name(id, name));
            (0..20).for_each(|_| kernel.tick());
        }
        session(&system, options(), &signals).unwrap();
        session(&system, options(), &signals).expect("a restart in the same boot goes on");
        let before = system.file(OUTPUT);
        system.0.borrow_mut().kernel = booted(ticks);
        let error = session(&system, options(), &signals).unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("move the file away"), "{ticks} ticks: {error}");
        assert_eq!(system.file(OUTPUT), before);
        assert!(system.0.borrow().kernel.rings.values().all(|ring| ring.tail == 0), "nothing was acknowledged");
    }
}
