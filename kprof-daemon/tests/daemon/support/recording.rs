//! `kprof-record` on the simulated system.
//!
//! In: a command line. Out: how it ended, and what it printed.

use super::kernel::Kernel;
use super::system::{SCHEME, Simulated};
use kprof_daemon::record::options::{Record, Wanted, parse};
use kprof_daemon::record::{Failed, record};
use kprof_daemon::signals::Signals;
use std::ffi::OsString;
use std::time::Duration;

pub fn wanted(words: &[&str]) -> Record {
    match parse(words.iter().map(OsString::from)).unwrap() {
        Wanted::Session(record) => *record,
        other => panic!("{other:?}"),
    }
}

/// A kernel that is stopped at first and ticks while it is running. Each round takes a millisecond of real time.
pub fn world() -> Simulated {
    let on_pause = |kernel: &mut Kernel, _| {
        std::thread::sleep(Duration::from_millis(1));
        if kernel.running {
            kernel.tick();
        }
    };
    let system = Simulated::new(Kernel::new(&[1, 2], 1 << 14, 21), Box::new(on_pause));
    system.0.borrow_mut().kernel.running = false;
    system
}

pub fn run(system: &Simulated, words: &[&str]) -> (Result<u8, Failed>, String) {
    run_on(system, words, false)
}

pub fn run_on(system: &Simulated, words: &[&str], is_terminal: bool) -> (Result<u8, Failed>, String) {
    let (mut system, mut talk) = (system.clone(), Vec::new());
    let wanted = Record { scheme: SCHEME.into(), ..wanted(words) };
    let ended = record(&mut system, &wanted, &Signals::default(), &mut talk, is_terminal);
    (ended, String::from_utf8(talk).unwrap())
}
