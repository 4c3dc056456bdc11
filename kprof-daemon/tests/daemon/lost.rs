//! Samples that are lost because a ring is full: on a busy machine, where the daemon or its disk is slow, or while no
//! daemon runs.
//!
//! In: more ticks than the rings have room for. Out: each tick is a sample in the file or counted as lost there, in
//! every form, and `kprof-record` says how many were lost. No sample may be missing without being counted.

use crate::support;

use kprof_daemon::drain_loop::Options;
use kprof_daemon::signals::Signals;
use kprof_daemon::write::compose::Form;
use support::kernel::Kernel;
use support::reader::{Reading, text_of_binary};
use support::recording::{self, run};
use support::scenario::{OUTPUT, options, reading, session, simulated};
use support::system::Simulated;

/// More ticks than a ring has room for. Nothing is named meanwhile.
const FLOOD: u64 = 2000;

fn kernel() -> Kernel {
    Kernel::new(&[1, 2], 1 << 13, 8)
}

/// Checks that of each CPU every tick is in the file: as a sample, or in the account as lost. Returns what was lost.
fn all_is_told(system: &Simulated, what: &str) -> (Reading, u64) {
    let (reading, ticks) = (reading(system), system.0.borrow().kernel.tick);
    let mut samples: Vec<(u32, u64)> = reading.samples.iter().map(|(key, ..)| *key).collect();
    samples.sort_unstable();
    assert!(samples.iter().eq(system.0.borrow().kernel.ledger.keys()), "{what}: not every sample is there once");
    assert_eq!((reading.accounts.len(), reading.corrupt_lines), (2, 0), "{what}");
    let mut all = 0;
    for (cpu, account) in &reading.accounts {
        let samples = reading.samples.iter().filter(|((of, _), ..)| of == cpu).count() as u64;
        let lost = account["lost-full"];
        assert!(samples > 100 && lost > 100, "{what}, cpu {cpu}: {samples} samples, {lost} lost");
        assert_eq!(samples + lost, ticks, "{what}, cpu {cpu}: {samples} samples, {lost} lost");
        all += lost;
    }
    (reading, all)
}

#[test]
fn what_is_lost_while_the_disk_is_slow_is_counted_in_the_account_and_in_the_batch_after_it() {
    for form in [Form::Text, Form::Binary] {
        let signals = Signals::default();
        let system = simulated(kernel(), 6, &signals, |kernel, pause| {
            kernel.tick();
            kernel.running = pause < 6;
        });
        // The task has its name before the flood.
        system.0.borrow_mut().kernel.tick();
        system.0.borrow_mut().ticks_in_sync = FLOOD;
        session(&system, Options { form, ..options() }, &signals).unwrap();
        let (reading, _) = all_is_told(&system, &format!("{form:?}"));
        // So the losses are in the file too if the daemon is killed and writes no account.
        let file = system.file(OUTPUT);
        let text = String::from_utf8(if form == Form::Binary { text_of_binary(&file) } else { file }).unwrap();
        for (cpu, account) in &reading.accounts {
            let begins = format!("# batch cpu={cpu} ");
            let last = text.lines().rfind(|line| line.starts_with(&begins)).unwrap();
            let lost = format!("lost-full={}", account["lost-full"]);
            assert!(last.split(' ').any(|field| field == lost), "{form:?}: {lost} is not in {last}");
        }
    }
}

#[test]
fn what_is_lost_while_no_daemon_runs_is_counted_in_the_file_that_goes_on() {
    let system = simulated(kernel(), 0, &Signals::default(), |_, _| {});
    for _ in 0..2 {
        system.0.borrow_mut().kernel.tick();
        (0..FLOOD).for_each(|_| system.0.borrow_mut().kernel.tick_without_names());
        let signals = Signals::default();
        signals.stop();
        session(&system, options(), &signals).unwrap();
        all_is_told(&system, "after a flood");
    }
}

#[test]
fn a_recording_says_how_many_samples_were_lost_in_its_time() {
    let system = recording::world();
    {
        let world = &mut *system.0.borrow_mut();
        // What was lost before is not of this recording.
        world.kernel.tick();
        (0..2 * FLOOD).for_each(|_| world.kernel.tick_without_names());
        assert!(world.kernel.rings.values().all(|ring| ring.lost_full > 0));
    }
    let before: u64 = system.0.borrow().kernel.rings.values().map(|ring| ring.lost_full).sum();
    system.0.borrow_mut().on_pause = Box::new(|kernel, _| {
        let ticks = if kernel.running { FLOOD } else { 0 };
        (0..ticks).for_each(|_| kernel.tick_without_names());
    });
    // A command could end before the first pause, but a duration is measured by the simulated clock.
    let (ended, talk) = run(&system, &["-o", OUTPUT, "--duration", "1s"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    let all: u64 = system.0.borrow().kernel.rings.values().map(|ring| ring.lost_full).sum();
    assert!(talk.contains(&format!(" bytes, {} lost\n", all - before)) && all > before, "{talk}");
    assert!(!talk.contains("does not balance"), "{talk}");
}
