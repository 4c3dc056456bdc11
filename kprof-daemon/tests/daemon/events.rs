//! Every recorded hit is in the file exactly once, with the names of its point and its task: the daemon is stopped
//! before each of its system calls, on a disk that loses what was not synced.
//!
//! In: a run with samples and events on the simulated kernel. Out: the lines of events in whole batches.

use crate::support;

use kprof_daemon::drain_loop::Options;
use kprof_daemon::signals::Signals;
use kprof_daemon::write::compose::Form;
use kprof_format::chunk::{Chunk, ChunkKind};
use std::collections::BTreeMap;
use support::Random;
use support::disk::Crash;
use support::kernel::Kernel;
use support::ring::Ring;
use support::scenario::{OUTPUT, options, session};
use support::system::Simulated;

const PAUSES: u64 = 12;

/// A simulated system with samples and events in each of `PAUSES` pauses.
fn world(signals: &Signals) -> Simulated {
    let signals = signals.clone();
    let on_pause = move |kernel: &mut Kernel, pause: u64| {
        if pause < PAUSES {
            kernel.tick();
            (0..kernel.random.below(5)).for_each(|_| kernel.hit());
        } else {
            kernel.running = false;
            signals.stop();
        }
    };
    let system = Simulated::new(Kernel::new(&[1, 2], 1 << 14, 7), Box::new(on_pause));
    {
        let kernel = &mut system.0.borrow_mut().kernel;
        kernel.events = [1, 2].into_iter().map(|cpu| (cpu, Ring::new(1 << 12))).collect();
        kernel.tick();
        kernel.hit();
    }
    system
}

/// The lines of events in the whole batches of a file, by CPU and TSC, with how often each is there.
fn events(file: &[u8]) -> BTreeMap<(u32, u64), Vec<String>> {
    let mut text = Vec::new();
    let mut rest = file;
    while let Ok((chunk, more)) = Chunk::split(rest) {
        if chunk.kind == ChunkKind::Lines {
            text.extend_from_slice(chunk.payload);
        }
        rest = more;
    }
    let text = String::from_utf8(if text.is_empty() { file.to_vec() } else { text }).expect("text");
    let (mut found, mut open) = (BTreeMap::<_, Vec<String>>::new(), Vec::new());
    for line in text.lines() {
        if line.starts_with("# batch cpu=event-") {
            open.clear();
        } else if line.starts_with("# end cpu=event-") {
            let count = format!("samples={}", open.len());
            assert!(line.split(' ').any(|field| field == count), "{line}");
            for line in open.drain(..) {
                let fields: Vec<&str> = String::as_str(&line).split(' ').collect();
                let number = |at: usize| u64::from_str_radix(fields[at], 16).expect("hex");
                found.entry((number(2) as u32, number(3))).or_default().push(line.clone());
            }
        } else if line.starts_with('!') {
            open.push(line.to_owned());
        }
    }
    found
}

fn check(system: &Simulated, place: &str) {
    let found = events(&system.file(OUTPUT));
    let expected = system.0.borrow().kernel.event_ledger.clone();
    let once: BTreeMap<_, _> = expected.into_iter().map(|(key, line)| (key, vec![line])).collect();
    assert_eq!(found, once, "{place}");
}

fn plan(form: Form) -> Options {
    Options { form, ..options() }
}

#[test]
fn events_are_in_the_file_once_with_their_names_and_acknowledged() {
    for form in [Form::Text, Form::Binary] {
        let signals = Signals::default();
        let system = world(&signals);
        let totals = session(&system, plan(form), &signals).unwrap();
        check(&system, &format!("{form:?}"));
        let kernel = &system.0.borrow().kernel;
        assert!(totals.events > 20 && totals.events == kernel.event_ledger.len() as u64, "{totals:?}");
        assert!(kernel.events.values().all(|ring| ring.tail == ring.head), "all are acknowledged");
    }
}

#[test]
fn a_daemon_stopped_before_any_system_call_loses_and_repeats_no_event() {
    for form in [Form::Text, Form::Binary] {
        let calls = {
            let signals = Signals::default();
            let system = world(&signals);
            session(&system, plan(form), &signals).unwrap();
            system.0.borrow().calls.len()
        };
        let crashes = [Crash::KeepsAll, Crash::ForgetsUnsynced, Crash::KeepsSome];
        for (stop_at, crash) in (1..calls).flat_map(|call| crashes.map(|crash| (call, crash))) {
            let signals = Signals::default();
            let system = world(&signals);
            system.0.borrow_mut().stop_at = Some(stop_at);
            session(&system, plan(form), &signals).expect_err("the run ends at the stop");
            {
                let world = &mut *system.0.borrow_mut();
                world.disk.crash(crash, &mut Random(stop_at as u64 + 1));
                world.stop_at = None;
            }
            let again = Signals::default();
            let stopper = again.clone();
            system.0.borrow_mut().on_pause = Box::new(move |_, _| stopper.stop());
            session(&system, plan(form), &again).unwrap();
            check(&system, &format!("{form:?}, call {stop_at}, {crash:?}"));
        }
    }
}
