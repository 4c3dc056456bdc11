//! What `profiled` tells the administrator about a kernel, on the simulated system. `programs` has what it says about
//! recordings.
//!
//! In: command lines; kernels with events, and one whose profiler is Redox's own. Out: the messages.

use crate::support;

use kprof_daemon::options::{self, Wanted};
use kprof_daemon::profiled::profiled;
use kprof_daemon::signals::Signals;
use std::ffi::OsString;
use support::kernel::Kernel;
use support::ring::Ring;
use support::scenario::{OUTPUT, simulated};
use support::system::{SCHEME, Simulated};

/// Runs `profiled` with these options more, in a session of five pauses, and returns what it says.
fn said(kernel: Kernel, each: fn(&mut Kernel, u64), more: &[&str], prepare: impl FnOnce(&Simulated)) -> Vec<String> {
    let signals = Signals::default();
    let mut system = simulated(kernel, 5, &signals, each);
    prepare(&system);
    let words = [&["--scheme", SCHEME, "-o", OUTPUT], more].concat();
    let Wanted::Session(wanted) = options::profiled(words.iter().map(OsString::from)).unwrap() else {
        panic!("{words:?}: a session");
    };
    profiled(&mut system, &wanted, signals, || Ok(())).unwrap();
    system.0.borrow().said.clone()
}

#[test]
fn the_administrator_learns_that_redox_frees_what_is_read_unless_profiled_is_to_be_quiet() {
    let said = |more: &[&str]| {
        said(
            Kernel::new(&[], 1 << 10, 1),
            |_, _| {},
            more,
            |system| {
                system.0.borrow_mut().redox = Some([(0, Vec::new())].into());
            },
        )
    };
    let [first, draining, summary] = &said(&[])[..] else { panic!("three lines: {:?}", said(&[])) };
    assert!(first.contains("Redox's raw words") && first.contains("nothing is acknowledged"), "{first}");
    assert!(draining.starts_with("profiled: draining ") && summary.starts_with("profiled: 0 samples, "), "{summary}");
    assert_eq!(said(&["-q"]), [""; 0]);
}

#[test]
fn the_summary_counts_the_recorded_hits_of_points_if_there_are_any() {
    let with_events = || {
        let mut kernel = Kernel::new(&[1, 2], 1 << 13, 7);
        kernel.events = [1, 2].into_iter().map(|cpu| (cpu, Ring::new(1 << 12))).collect();
        kernel
    };
    let ticks = |kernel: &mut Kernel, _| kernel.tick();
    let ticks_and_hits = |kernel: &mut Kernel, _| {
        kernel.tick();
        kernel.hit();
    };
    let lines = said(with_events(), ticks_and_hits, &[], |_| {});
    assert!(lines[1].starts_with("profiled: 10 samples, "), "{lines:?}");
    assert_eq!(lines[2..], ["profiled: 10 recorded hits of points"]);
    assert_eq!(said(with_events(), ticks, &[], |_| {}).len(), 2, "none is not worth a line");
}
