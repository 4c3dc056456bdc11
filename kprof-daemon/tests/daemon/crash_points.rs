//! Every sample counts exactly once: the daemon is stopped before each of its system calls, on a disk that loses what
//! was not synced.
//!
//! In: a long run on the simulated kernel. Out: after a restart every sample that was in a ring counts once for a
//! reader that shares no code with the daemon. A daemon that acknowledges before it has synced fails this test.

use crate::support;

use kprof_daemon::drain_loop::Options;
use kprof_daemon::signals::Signals;
use kprof_daemon::write::compose::Form;
use support::Random;
use support::disk::Crash;
use support::kernel::Kernel;
use support::scenario::{OUTPUT, exactly_once, options, reading, reading_damaged, session};
use support::system::world::LastCall;
use support::system::{KILLED, Simulated};

/// The number of pauses of a run. Some ticks come in each pause.
const PAUSES: u64 = 40;

/// A simulated system with ticks in each of `PAUSES` pauses. In the last pause the daemon is told to end.
fn world(signals: &Signals) -> Simulated {
    let signals = signals.clone();
    let on_pause = move |kernel: &mut Kernel, pause: u64| {
        if pause < PAUSES {
            for _ in 0..kernel.random.below(4) {
                kernel.tick();
            }
        }
        if pause >= PAUSES {
            kernel.running = false;
            signals.stop();
        }
    };
    let system = Simulated::new(Kernel::new(&[1, 2, 3], 1 << 14, 7), Box::new(on_pause));
    system.0.borrow_mut().kernel.tick();
    system
}

/// The file of another boot on which a later file is written: its sectors are what a lost write leaves there.
fn stale(plan: &Options) -> Vec<u8> {
    let signals = Signals::default();
    let system = world(&signals);
    system.0.borrow_mut().kernel.boot = 0xdead;
    session(&system, Options { max_bytes: None, ..plan.clone() }, &signals).expect("nothing stands in its way");
    system.file(OUTPUT)
}

/// Runs until call `stop_at`, crashes, and runs again to the end. Returns how many lines of the file are damaged. The
/// error says what is wrong with the file.
fn crash_and_resume(
    plan: &Options,
    stop_at: usize,
    crash: Crash,
    last_call: LastCall,
    acks_before_sync: bool,
    stale: &[u8],
) -> Result<usize, String> {
    let signals = Signals::default();
    let system = world(&signals);
    {
        let mut world = system.0.borrow_mut();
        world.stop_at = Some(stop_at);
        world.last_call = last_call;
        world.acks_before_sync = acks_before_sync;
    }
    let error = session(&system, plan.clone(), &signals).expect_err("the run ends at the stop");
    let chain = format!("{error}");
    assert!(chain.contains(KILLED), "call {stop_at}: {chain}");
    {
        let world = &mut *system.0.borrow_mut();
        world.disk.stale = stale.into();
        world.disk.crash(crash, &mut Random(stop_at as u64 + 1));
        world.stop_at = None;
        world.acks_before_sync = false;
    }
    let again = Signals::default();
    let stopper = again.clone();
    system.0.borrow_mut().on_pause = Box::new(move |_, _| stopper.stop());
    session(&system, plan.clone(), &again).map_err(|error| format!("call {stop_at}: {error}"))?;
    let reading = reading_damaged(&system);
    exactly_once(&system, &reading)
        .map_err(|error| format!("stopped at call {stop_at}, {crash:?}, {last_call:?}: {error}"))?;
    // After a rotation that was not acknowledged, or a hole, a batch may be written again. A reader then skips it.
    let may_repeat = plan.max_bytes.is_some() || matches!(crash, Crash::Zeros | Crash::Stale);
    let repeats = reading.skipped_batches > 0;
    assert!(may_repeat || !repeats, "stopped at call {stop_at}, {crash:?}: a batch was written twice");
    Ok(reading.damaged)
}

fn calls_of_a_whole_run(plan: &Options) -> Vec<&'static str> {
    let signals = Signals::default();
    let system = world(&signals);
    let totals = session(&system, plan.clone(), &signals).expect("nothing stands in its way");
    let reading = reading(&system);
    exactly_once(&system, &reading).unwrap();
    assert!(totals.samples > 100, "a run worth stopping: {totals:?}");
    assert_eq!(reading.samples.len() as u64, totals.samples);
    std::mem::take(&mut system.0.borrow_mut().calls)
}

/// Stops a run with these options before every call, with every kind of crash that its form can survive.
fn stop_everywhere(plan: &Options, kinds: &[&str]) {
    let calls = calls_of_a_whole_run(plan);
    for kind in kinds {
        assert!(calls.contains(kind), "the run makes no `{kind}` call");
    }
    let stale = stale(plan);
    let crashes: &[Crash] = match plan.form {
        Form::Text => &Crash::ALL,
        // Holes in the binary form are another matter: a whole chunk may need names from a lost one.
        Form::Binary => &[Crash::KeepsAll, Crash::ForgetsUnsynced, Crash::KeepsSome],
    };
    let (mut runs, mut damaged) = (0, 0);
    for (stop_at, call) in calls.iter().enumerate() {
        for crash in crashes {
            for last_call in [LastCall::Nothing, LastCall::HalfWrite] {
                if last_call == LastCall::HalfWrite && *call != "write" {
                    continue;
                }
                let lines = crash_and_resume(plan, stop_at, *crash, last_call, false, &stale).unwrap();
                let has_holes = matches!(crash, Crash::Zeros | Crash::Stale);
                assert!(lines == 0 || has_holes, "stopped at call {stop_at}, {crash:?}: {lines} damaged lines");
                runs += 1;
                damaged += usize::from(lines > 0);
            }
        }
    }
    println!("{} system calls, {runs} crashes, {damaged} left a damaged piece between whole ones", calls.len());
    assert!(calls.len() > 300 && runs > crashes.len() * calls.len());
    assert_eq!(damaged > 0, crashes.contains(&Crash::Zeros), "holes were tried");
}

#[test]
fn stopped_before_any_call_nothing_is_lost_and_nothing_is_double() {
    stop_everywhere(&options(), &["open", "read", "write", "sync", "ctl", "truncate", "seek", "sync folder"]);
}

#[test]
fn the_same_while_files_are_rotated() {
    let plan = Options { max_bytes: Some(6000), keep_files: 1000, ..options() };
    stop_everywhere(&plan, &["rename", "write", "sync", "sync folder"]);
}

#[test]
fn the_same_in_the_binary_form() {
    stop_everywhere(&Options { form: Form::Binary, ..options() }, &["write", "sync", "truncate"]);
}

#[test]
fn a_daemon_that_acknowledges_before_it_has_synced_is_caught() {
    let plan = &options();
    let calls = calls_of_a_whole_run(plan);
    let failures: Vec<String> = (0..calls.len())
        .filter_map(|stop_at| {
            crash_and_resume(plan, stop_at, Crash::ForgetsUnsynced, LastCall::Nothing, true, &[]).err()
        })
        .collect();
    assert!(!failures.is_empty(), "the wrong order must show");
    assert!(failures.iter().any(|failure| failure.contains("samples are missing")), "{failures:?}");
    println!("{} of {} stops show the wrong order", failures.len(), calls.len());
}

#[test]
fn records_that_were_written_and_not_acknowledged_are_read_again_and_counted() {
    for form in [Form::Text, Form::Binary] {
        let plan = Options { form, ..options() };
        let calls = calls_of_a_whole_run(&plan);
        let acknowledgements = (1..calls.len()).filter(|call| calls[call - 1..=*call] == ["sync", "ctl"]);
        let mut count = 0;
        for stop_at in acknowledgements {
            let signals = Signals::default();
            let system = world(&signals);
            system.0.borrow_mut().stop_at = Some(stop_at);
            session(&system, plan.clone(), &signals).expect_err("the run ends at the stop");
            system.0.borrow_mut().stop_at = None;
            let unacknowledged: u64 = {
                let kernel = &system.0.borrow().kernel;
                kernel.rings.values().chain([&kernel.meta]).map(|ring| ring.in_ring() as u64).sum()
            };
            let before = reading(&system).samples.len();
            let totals = session(&system, plan.clone(), &signals).unwrap();
            let written = (system.0.borrow().kernel.ledger.len() - before) as u64;
            let place = format!("{form:?}, stopped at call {stop_at}");
            assert_eq!((totals.again, totals.samples), (unacknowledged, written), "{place}");
            count += 1;
        }
        assert!(count > 5, "{count} acknowledgements");
    }
}
