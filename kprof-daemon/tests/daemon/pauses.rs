//! When a session sleeps, how often it tries at its end, and what it writes when sampling stops while it runs.
//!
//! In: simulated kernels whose `wait` ends early or is refused, or that stop sampling. Out: the sleeps of the session,
//! and the accounts in its file. Must never depend on real time: the simulated system has a clock of its own.

use crate::support;

use kprof_daemon::drain_loop::{Options, Session};
use kprof_daemon::pace::Pace;
use kprof_daemon::signals::Signals;
use kprof_daemon::source::kprof_device::KprofDevice;
use kprof_daemon::source::redox_device::RedoxDevice;
use std::path::Path;
use std::time::Duration;
use support::kernel::{Kernel, Nasty};
use support::scenario::{OUTPUT, exactly_once, options, reading, session};
use support::system::{SCHEME, Simulated};

/// A kernel of one CPU with one sample, and a session that is told to end in this pause.
fn world(nasty: Nasty, last_pause: u64, signals: &Signals, mut act: impl FnMut(&mut Kernel) + 'static) -> Simulated {
    let mut kernel = Kernel::new(&[1], 1 << 13, 7);
    kernel.tick();
    kernel.nasty = nasty;
    let stopper = signals.clone();
    let on_pause = move |kernel: &mut Kernel, pause: u64| {
        act(kernel);
        if pause >= last_pause {
            stopper.stop();
        }
    };
    Simulated::new(kernel, Box::new(on_pause))
}

/// The sleeps of the daemon in milliseconds.
fn sleeps(system: &Simulated) -> Vec<u128> {
    system.0.borrow().sleeps.iter().map(Duration::as_millis).collect()
}

#[test]
fn a_session_sleeps_only_if_the_wait_of_the_kernel_ends_at_once_without_records() {
    let slept = |wakes_after: Option<u64>, cannot_wait: bool, ticks: bool| {
        let signals = Signals::default();
        let nasty = Nasty { wakes_after, cannot_wait, ..Nasty::default() };
        let act = move |kernel: &mut Kernel| (0..u32::from(ticks)).for_each(|_| kernel.tick());
        let system = world(nasty, 6, &signals, act);
        session(&system, options(), &signals).unwrap();
        exactly_once(&system, &reading(&system)).unwrap();
        sleeps(&system)
    };
    assert_eq!(slept(None, false, false), [0; 0]);
    assert_eq!(slept(Some(1), false, false), [0; 0], "a wait of a millisecond is no busy loop");
    assert_eq!(slept(Some(0), false, true), [0; 0], "each wait has brought records");
    // The first wait follows a round that has read the first sample.
    assert_eq!(slept(Some(0), false, false), [2, 4, 8, 16]);
    assert_eq!(slept(None, true, false), [2, 4, 8, 16, 32, 64]);
}

#[test]
fn a_reader_of_copies_sleeps_for_the_rest_of_a_wait_that_ended_at_once() {
    let slept = |wakes_after: Option<u64>, cannot_wait: bool| {
        let signals = Signals::default();
        let system = world(Nasty { wakes_after, cannot_wait, ..Nasty::default() }, 5, &signals, |_| {});
        let mut own = system.clone();
        let source = KprofDevice::open_copies(&mut own, Path::new(SCHEME)).unwrap();
        let options = Options { is_recording: true, ..options() };
        Session::open(&mut own, source, options, signals).unwrap().run(|_, _| Some(Pace::LONGEST)).unwrap();
        sleeps(&system)
    };
    assert_eq!(slept(None, false), [0; 0]);
    assert_eq!(slept(Some(1), false), [0; 0], "the kernel has woken it, for a reason of its own");
    // Pauses are slept in pieces of 5 ms.
    assert_eq!(slept(Some(0), false), [2, 4, 5, 3, 5, 5, 5, 1]);
    assert_eq!(slept(None, true), [2, 4, 5, 3, 5]);
}

#[test]
fn a_signal_ends_the_pause_of_a_recording() {
    let signals = Signals::default();
    let system = world(Nasty { cannot_wait: true, ..Nasty::default() }, 3, &signals, |_| {});
    system.0.borrow_mut().kernel.running = false;
    session(&system, Options { is_recording: true, ..options() }, &signals).unwrap();
    assert_eq!(sleeps(&system), [5; 3]);
}

#[test]
fn the_account_is_written_once_when_sampling_has_stopped_and_all_is_read() {
    // Sampling stops in the fourth pause, after a last sample or without one. The session goes on for some rounds.
    for has_last_sample in [true, false] {
        let (signals, mut pause) = (Signals::default(), 0);
        let act = move |kernel: &mut Kernel| {
            pause += 1;
            if matches!(pause, 1 | 3) || (pause == 4 && has_last_sample) {
                kernel.tick();
            }
            kernel.running = pause < 4;
        };
        let system = world(Nasty::default(), 9, &signals, act);
        session(&system, options(), &signals).unwrap();
        exactly_once(&system, &reading(&system)).unwrap();
        let file = String::from_utf8(system.file(OUTPUT)).unwrap();
        let accounts: Vec<&str> = file.lines().filter(|line| line.starts_with("# account cpu=1 ")).collect();
        assert_eq!(accounts.len(), 2, "one when sampling has stopped, and one at the end of the session: {file}");
        assert_eq!(accounts[0], accounts[1], "all was read before the first one");
    }
}

#[test]
fn a_session_ends_although_a_stream_that_has_records_gives_none() {
    let signals = Signals::default();
    signals.stop();
    let system = world(Nasty { busy_reads: u32::MAX, ..Nasty::default() }, 0, &signals, |_| {});
    session(&system, options(), &signals).unwrap();
    assert_eq!(sleeps(&system), [1; 64], "it has tried 64 times, because another process may be reading");
    assert!(reading(&system).samples.is_empty());
}

#[test]
fn a_session_that_can_get_no_more_records_ends_at_once() {
    let signals = Signals::default();
    signals.stop();
    let system = world(Nasty::default(), 0, &signals, |_| {});
    let mut own = system.clone();
    let counters = KprofDevice::open_counters(&mut own, Path::new(SCHEME)).unwrap();
    Session::open(&mut own, counters, options(), signals.clone()).unwrap().run(|_, _| Some(Pace::LONGEST)).unwrap();
    assert_eq!(sleeps(&system), [0; 0], "only the counters can be read");

    system.0.borrow_mut().redox = Some([(1, Vec::new())].into());
    let redox = RedoxDevice::open(&mut own, Path::new(SCHEME)).unwrap();
    Session::open(&mut own, redox, options(), signals).unwrap().run(|_, _| Some(Pace::LONGEST)).unwrap();
    assert_eq!(sleeps(&system), [0; 0], "this kernel does not tell how much there is");
}
