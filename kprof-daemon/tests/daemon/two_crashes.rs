//! Two crashes in a row, with or without a new boot between them.
//!
//! In: sessions on the simulated system that are stopped before a random call, restarted, stopped again and restarted.
//! Each crash loses what was not synced, or leaves holes. Out: each sample that was acknowledged, or is still in a
//! ring, counts once.

use crate::support;

use kprof_daemon::drain_loop::Options;
use kprof_daemon::signals::Signals;
use support::Random;
use support::disk::Crash;
use support::kernel::Kernel;
use support::scenario::{exactly_once, options, reading_damaged, session};
use support::system::world::LastCall;
use support::system::{KILLED, Simulated};

/// Lets a session run for some pauses with ticks, and stops it before call number `stop_at` of its own.
fn session_until(system: &Simulated, plan: &Options, stop_at: Option<usize>, last_call: LastCall) -> bool {
    let signals = Signals::default();
    let stopper = signals.clone();
    let mut pauses = 0;
    {
        let world = &mut *system.0.borrow_mut();
        world.stop_at = stop_at.map(|stop_at| world.calls.len() + stop_at);
        world.last_call = last_call;
        world.on_pause = Box::new(move |kernel: &mut Kernel, _| {
            pauses += 1;
            if pauses > 12 {
                return stopper.stop();
            }
            (0..kernel.random.below(4)).for_each(|_| kernel.tick());
        });
    }
    let ended = session(system, plan.clone(), &signals);
    system.0.borrow_mut().stop_at = None;
    match ended {
        Ok(_) => false,
        Err(error) => {
            assert!(error.to_string().contains(KILLED), "{error}");
            true
        }
    }
}

fn crash(system: &Simulated, random: &mut Random) -> Crash {
    let how = Crash::ALL[random.below(Crash::ALL.len() as u64) as usize];
    system.0.borrow_mut().disk.crash(how, random);
    how
}

/// The machine boots again: what was in its rings is gone, and what had been acknowledged must be in the file. Returns
/// the samples that may be there, because they were written but not acknowledged.
fn reboot(system: &Simulated, boot: u64) -> Kernel {
    let mut kernel = Kernel::new(&[1, 2, 3], 1 << 14, boot);
    kernel.boot = boot;
    kernel.tsc = boot * 1_000_000_000;
    kernel.tick();
    std::mem::replace(&mut system.0.borrow_mut().kernel, kernel)
}

/// Moves the samples of an earlier boot to the present ledger: those that were acknowledged, and those that are in the
/// file although they were not.
fn expect_samples_of(system: &Simulated, earlier: Kernel, found: &[(u32, u64)]) {
    let in_rings: Vec<(u32, u64)> =
        earlier.rings.iter().flat_map(|(cpu, ring)| ring.tscs().map(|tsc| (*cpu, tsc))).collect();
    let was_saved = |key: &(u32, u64)| !in_rings.contains(key) || found.contains(key);
    let saved = earlier.ledger.into_iter().filter(|(key, _)| was_saved(key));
    system.0.borrow_mut().kernel.ledger.extend(saved);
}

#[test]
fn two_crashes_in_a_row_lose_nothing_and_double_nothing() {
    let (mut second_crashes, mut reboots) = (0, 0);
    for seed in 1..1200 {
        let mut random = Random(seed);
        let rotates = random.once_in(3);
        let plan =
            Options { max_bytes: rotates.then_some(6000), keep_files: if rotates { 1000 } else { 0 }, ..options() };
        let system = Simulated::new(Kernel::new(&[1, 2, 3], 1 << 14, seed), Box::new(|_, _| {}));
        system.0.borrow_mut().kernel.tick();
        let mut earlier = Vec::new();
        let (mut story, mut has_holes) = (format!("seed {seed}"), false);
        for calls in [220, 120] {
            let stop_at = random.below(calls) as usize;
            let last_call = if random.once_in(2) { LastCall::HalfWrite } else { LastCall::Nothing };
            let is_stopped = session_until(&system, &plan, Some(stop_at), last_call);
            if is_stopped {
                let how = crash(&system, &mut random);
                has_holes |= matches!(how, Crash::Zeros | Crash::Stale);
                story.push_str(&format!(", stopped at call {stop_at}: {how:?}"));
                // Only a crash of the machine ends the boot.
                if how != Crash::KeepsAll && random.once_in(2) {
                    story.push_str(", booted again");
                    earlier.push(reboot(&system, 2 + earlier.len() as u64));
                    reboots += 1;
                }
                second_crashes += u32::from(calls == 120);
            }
        }
        assert!(!session_until(&system, &plan, None, LastCall::Nothing));
        let reading = reading_damaged(&system);
        let found: Vec<(u32, u64)> = reading.samples.iter().map(|(key, ..)| *key).collect();
        for kernel in earlier {
            expect_samples_of(&system, kernel, &found);
        }
        // After a rotation that was not acknowledged, or a hole, a batch may be written again. A reader then skips it.
        let repeats = reading.skipped_batches > 0;
        assert!(rotates || has_holes || !repeats, "{story}: a batch was written twice");
        exactly_once(&system, &reading).unwrap_or_else(|error| panic!("{story}: {error}"));
    }
    println!("{second_crashes} second crashes, {reboots} boots");
    assert!(second_crashes > 300 && reboots > 300, "{second_crashes} second crashes, {reboots} boots");
}
