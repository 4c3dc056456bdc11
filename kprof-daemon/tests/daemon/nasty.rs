//! Difficult conditions from kernel and system, under which the file must still have every sample exactly once.
//!
//! In: short reads, split records, interrupted calls, empty and late CPUs, floods, flipped bytes, a full disk, errors.
//! Out: every sample once and a balanced account. If the session cannot continue it ends with a clear error, and what
//! was written before stays valid.

use crate::support;

use kprof_daemon::drain_loop::{Options, Totals};
use kprof_daemon::error::Error;
use kprof_daemon::signals::Signals;
use kprof_daemon::source::Stream;
use kprof_daemon::write::append::OnFull;
use kprof_format::record::{Kind, SampleHeader};
use std::io;
use support::kernel::Kernel;
use support::reader::Reading;
use support::ring::Ring;
use support::scenario::{OUTPUT, exactly_once, options, reading, session, simulated, ticking, world as some_ticks};
use support::system::Simulated;

/// Runs to the end and asserts that nothing is missing, double or wrong.
fn run(system: &Simulated, signals: &Signals) -> (Totals, Reading) {
    let totals = session(system, options(), signals).unwrap();
    let reading = reading(system);
    exactly_once(system, &reading).unwrap();
    let world = system.0.borrow();
    for (cpu, ring) in &world.kernel.rings {
        let account = &reading.accounts[cpu];
        assert_eq!(account["taken"], account["recorded"] + account["lost-full"], "cpu {cpu}");
        assert_eq!(account["delivered"], account["recorded"], "cpu {cpu}: all that was recorded is delivered");
        assert_eq!(ring.recorded, ring.delivered, "cpu {cpu}");
    }
    (totals, reading)
}

#[test]
fn a_mode_that_changes_between_reading_and_acknowledging_ends_nothing() {
    for seed in 1..30 {
        let signals = Signals::default();
        let system = simulated(Kernel::new(&[1, 2], 1 << 13, seed), 60, &signals, |kernel, _| {
            for _ in 0..kernel.random.below(12) {
                kernel.tick();
            }
        });
        system.0.borrow_mut().kernel.nasty.overwrites_before_ack = 3;
        run(&system, &signals);
    }
}

#[test]
fn short_reads_split_records_and_interrupted_calls_lose_nothing() {
    for seed in 1..30 {
        let signals = Signals::default();
        let system = simulated(Kernel::new(&[1, 2], 1 << 13, seed), 60, &signals, |kernel, _| {
            for _ in 0..kernel.random.below(12) {
                kernel.tick();
            }
        });
        {
            let mut world = system.0.borrow_mut();
            world.kernel.nasty.splits = seed % 2 == 0;
            world.kernel.nasty.max_records = (seed % 4) as usize;
            world.kernel.nasty.cannot_wait = seed % 3 == 0;
            world.interrupts = 1 + seed % 5;
            world.interrupts *= u64::from(world.interrupts > 1);
        }
        let (totals, _) = run(&system, &signals);
        assert_eq!((totals.corrupt, totals.unknown, totals.again), (0, 0, 0), "seed {seed}");
    }
}

#[test]
fn empty_cpus_and_cpus_that_come_later_are_drained() {
    let signals = Signals::default();
    let system = simulated(Kernel::new(&[1], 1 << 13, 5), 30, &signals, |kernel, pause| {
        if pause == 10 {
            kernel.rings.insert(2, Ring::new(1 << 13));
        }
        if pause == 12 {
            // This CPU is registered but never sampled.
            kernel.rings.insert(9, Ring::new(1 << 13));
        }
        if pause < 12 {
            kernel.tick();
        }
    });
    let (_, reading) = run(&system, &signals);
    assert!(reading.samples.iter().any(|((cpu, _), ..)| *cpu == 2));
    assert_eq!(reading.accounts[&9]["taken"], 0);
}

#[test]
fn a_flood_is_drained_as_far_as_the_rings_hold_and_the_rest_is_counted() {
    let signals = Signals::default();
    // 10 kHz on three CPUs: 2500 samples each in a quarter of a second, into rings of 256 KiB.
    let system = simulated(Kernel::new(&[1, 2, 3], 32 * 1024, 5), 8, &signals, |kernel, pause| {
        for _ in 0..if pause == 4 { 6000 } else { 2500 } {
            if kernel.names.len() < 5 {
                kernel.name(kernel.names.len() as u64 + 1, b"task flood #%".to_vec());
            }
            kernel.tick_without_names();
        }
    });
    let (totals, reading) = run(&system, &signals);
    let lost: u64 = reading.accounts.values().map(|account| account["lost-full"]).sum();
    let taken: u64 = reading.accounts.values().map(|account| account["taken"]).sum();
    assert_eq!(totals.samples + lost, taken);
    assert!(lost > 0 && totals.samples > 50_000, "{lost} lost, {totals:?}");
}

#[test]
fn every_flipped_byte_of_a_record_costs_at_most_that_record() {
    // A first run finds out where the records of one read are.
    let lengths = |flip: Option<(usize, u8)>| {
        let signals = Signals::default();
        let system = simulated(Kernel::new(&[1], 1 << 13, 11), 3, &signals, |kernel, pause| {
            let ticks = if pause == 1 { 6 } else { 3 };
            (0..ticks).for_each(|_| kernel.tick());
        });
        let mut reads = 0;
        let flipped = std::rc::Rc::new(std::cell::Cell::new(0));
        let seen = std::rc::Rc::clone(&flipped);
        system.0.borrow_mut().on_read = Box::new(move |stream, bytes| {
            reads += usize::from(stream == Stream::Cpu(1) && !bytes.is_empty());
            if reads == 1 && stream == Stream::Cpu(1) && !bytes.is_empty() {
                seen.set(bytes.len());
                if let Some((at, mask)) = flip {
                    bytes[at] ^= mask;
                }
                reads += 1;
            }
        });
        let ended = session(&system, options(), &signals);
        (ended, system, flipped.get())
    };
    let (clean, system, first_read) = lengths(None);
    assert_eq!(clean.unwrap().corrupt, 0);
    let all = system.0.borrow().kernel.ledger.len();
    assert!(first_read > 300, "a first read of several records: {first_read} bytes");
    let mut damaged = 0;
    for at in 0..first_read {
        for mask in [0xff, 0x01, 0x80, 0x10] {
            let (ended, system, _) = lengths(Some((at, mask)));
            let totals = ended.unwrap_or_else(|error| panic!("byte {at}, mask {mask:x}: {error}"));
            let ledger = system.0.borrow().kernel.ledger.clone();
            let reading = reading(&system);
            let good = reading.samples.iter().filter(|(key, line, _)| ledger.get(key) == Some(line)).count();
            assert!(good >= all - 1, "byte {at}, mask {mask:x}: {good} of {all} samples are whole, {totals:?}");
            assert!(reading.samples.len() <= all, "byte {at}, mask {mask:x}: more samples than there were");
            assert!(totals.corrupt + totals.unknown <= 1, "byte {at}, mask {mask:x}: {totals:?}");
            assert_eq!(
                reading.corrupt_lines as u64,
                totals.corrupt + totals.unknown,
                "what is skipped is written down"
            );
            damaged += totals.corrupt + totals.unknown;
            let ring = &system.0.borrow().kernel.rings[&1];
            assert_eq!(ring.tail, ring.head, "byte {at}, mask {mask:x}: what was skipped is given up too");
        }
    }
    assert!(damaged > 0);
}

#[test]
fn a_newer_kernel_is_named_and_keeps_its_records() {
    let signals = Signals::default();
    let mut kernel = Kernel::new(&[1], 1 << 13, 3);
    kernel.version = Some(2);
    let system = simulated(kernel, 3, &signals, |kernel, _| kernel.tick());
    let error = session(&system, options(), &signals).unwrap_err();
    assert!(matches!(error, Error::Newer { version: 2, .. }), "{error}");
    assert_eq!(error.exit_code(), 7);
    assert!(error.to_string().contains("stream 1, position 0"), "{error}");
    assert_eq!(system.0.borrow().kernel.rings[&1].tail, 0, "nothing was acknowledged");
}

#[test]
fn a_second_instance_is_refused_and_the_first_one_goes_on() {
    let signals = Signals::default();
    let system = Simulated::new(Kernel::new(&[1], 1 << 13, 3), Box::new(|_, _| {}));
    let (second, stopper, mut pauses) = (system.clone(), signals.clone(), 0);
    let refused = std::rc::Rc::new(std::cell::Cell::new(0));
    let seen = std::rc::Rc::clone(&refused);
    system.0.borrow_mut().kernel.tick();
    // Another handle takes the claim while the first session waits.
    system.0.borrow_mut().on_pause = Box::new(move |kernel, _| {
        kernel.tick();
        if kernel.control(77, b"protocol 1\n").is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy) {
            seen.set(seen.get() + 1);
        }
        pauses += 1;
        if pauses == 5 {
            stopper.stop();
        }
    });
    run(&system, &signals);
    assert_eq!(refused.get(), 5);
    // A daemon that is started second gets this error.
    second.0.borrow_mut().kernel.control(77, b"protocol 1\n").unwrap();
    let error = session(&second, options(), &Signals::default()).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }) && error.exit_code() == 4, "{error}");
    // It gets this error also if the kernel's error does not say why the claim is refused.
    second.0.borrow_mut().kernel.nasty.busy_is_invalid = true;
    let error = session(&second, options(), &Signals::default()).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }) && error.exit_code() == 4, "{error}");
}

#[test]
fn a_ctl_file_that_does_not_say_protocol_1_is_not_read() {
    for is_claimed in [false, true] {
        let system = Simulated::new(Kernel::new(&[1], 1 << 13, 3), Box::new(|_, _| {}));
        {
            let kernel = &mut system.0.borrow_mut().kernel;
            if is_claimed {
                kernel.control(77, b"protocol 1\n").unwrap();
            }
            (kernel.nasty.is_unframed, kernel.nasty.busy_is_invalid) = (true, true);
        }
        let error = session(&system, options(), &Signals::default()).unwrap_err();
        // A refused claim says nothing of another reader then.
        match is_claimed {
            true => assert!(matches!(error, Error::Refused { .. }), "{error}"),
            false => assert!(error.to_string().contains("its state does not say `protocol 1`"), "{error}"),
        }
    }
}

#[test]
fn streams_that_are_busy_at_the_end_are_read_nevertheless() {
    let signals = Signals::default();
    let stopper = signals.clone();
    let system = simulated(Kernel::new(&[1, 2], 1 << 13, 8), 40, &signals, move |kernel, pause| {
        kernel.tick();
        if pause == 10 {
            // The session ends now, and the next reads find another reader.
            kernel.nasty.busy_reads = 20;
            stopper.stop();
        }
    });
    run(&system, &signals);
}

#[test]
fn a_state_without_an_end_is_refused() {
    let system = ticking(Kernel::new(&[1], 1 << 13, 8), 5, &Signals::default());
    system.0.borrow_mut().endless_state = true;
    let error = session(&system, options(), &Signals::default()).unwrap_err();
    assert_eq!(error.exit_code(), 7);
    assert!(error.to_string().contains("longer than 16777216 bytes"), "{error}");
}

#[test]
fn a_full_disk_holds_the_acknowledgements_until_there_is_room() {
    let signals = Signals::default();
    let system = ticking(Kernel::new(&[1, 2], 1 << 13, 8), 40, &signals);
    system.0.borrow_mut().disk.room = 5000;
    // The disk gets free space while the daemon sleeps before its next attempt.
    let room = system.clone();
    let clock = std::rc::Rc::new(std::cell::Cell::new(0));
    let ticks = std::rc::Rc::clone(&clock);
    room.0.borrow_mut().on_sleep = Box::new(move |disk| {
        ticks.set(ticks.get() + 1);
        if ticks.get() == 35 {
            disk.room = usize::MAX;
        }
    });
    run(&system, &signals);
    assert_eq!(clock.get(), 40, "it tries again once a second, and checks ten times a second whether it is to end");
    let said = &system.0.borrow().said;
    assert!(
        said.len() == 2 && said[0].contains("the disk is full at byte ") && said[1].contains("room again"),
        "{said:?}"
    );
}

#[test]
fn a_full_disk_ends_the_session_where_that_is_wanted_and_the_file_is_whole() {
    let signals = Signals::default();
    let system = ticking(Kernel::new(&[1, 2], 1 << 13, 8), 40, &signals);
    system.0.borrow_mut().disk.room = 5000;
    let stop = Options { on_full: OnFull::Stop, ..options() };
    let error = session(&system, stop, &signals).unwrap_err();
    assert_eq!(error.exit_code(), 9);
    let length = system.file(OUTPUT).len();
    assert!(error.to_string().contains(&format!("byte {length}")), "{error}: {length}");
    assert_eq!(reading(&system).void_batches, 0);
    // With free space the next session completes the file.
    system.0.borrow_mut().disk.room = usize::MAX;
    let again = Signals::default();
    let stopper = again.clone();
    system.0.borrow_mut().on_pause = Box::new(move |_, _| stopper.stop());
    run(&system, &again);
}

#[test]
fn a_write_error_is_named_with_file_and_place_and_what_was_safe_stays() {
    let signals = Signals::default();
    let system = ticking(Kernel::new(&[1], 1 << 13, 8), 20, &signals);
    let broken = system.clone();
    let before = std::rc::Rc::new(std::cell::Cell::new(0));
    let noted = std::rc::Rc::clone(&before);
    system.0.borrow_mut().on_call = Box::new(move |calls, write_error| {
        if calls == 200 {
            noted.set(1);
            *write_error = Some(io::ErrorKind::Other);
        }
    });
    let error = session(&system, options(), &signals).unwrap_err();
    assert_eq!(before.get(), 1);
    assert_eq!(error.exit_code(), 8);
    let said = error.to_string();
    let length = broken.file(OUTPUT).len();
    assert!(said.contains(OUTPUT) && said.contains(&format!("byte {length}")), "{said}: {length}");
    broken.0.borrow_mut().write_error = None;
    broken.0.borrow_mut().on_call = Box::new(|_, _| {});
    let again = Signals::default();
    let stopper = again.clone();
    broken.0.borrow_mut().on_pause = Box::new(move |_, _| stopper.stop());
    run(&broken, &again);
}

#[test]
fn a_source_that_goes_away_is_named_and_the_file_is_whole() {
    let signals = Signals::default();
    let system = simulated(Kernel::new(&[1], 1 << 13, 8), 20, &signals, |kernel, pause| {
        kernel.tick();
        kernel.is_gone = pause == 10;
    });
    let error = session(&system, options(), &signals).unwrap_err();
    assert_eq!(error.exit_code(), 5);
    assert!(error.to_string().contains("/scheme/debug/profiling-"), "{error}");
    let reading = reading(&system);
    assert!(reading.void_batches == 0 && !reading.samples.is_empty());
    let error = session(&system, options(), &signals).unwrap_err();
    assert_eq!(error.exit_code(), 3, "not there at all: {error}");
}

#[test]
fn a_deleted_file_is_noticed() {
    let signals = Signals::default();
    let system = ticking(Kernel::new(&[1], 1 << 13, 8), 20, &signals);
    let deleting = system.clone();
    let mut before = std::mem::replace(&mut deleting.0.borrow_mut().on_pause, Box::new(|_, _| {}));
    let gone = std::rc::Rc::new(std::cell::Cell::new(false));
    let flag = std::rc::Rc::clone(&gone);
    deleting.0.borrow_mut().on_pause = Box::new(move |kernel, pause| {
        before(kernel, pause);
        flag.set(pause >= 6);
    });
    deleting.0.borrow_mut().delete_when = Some(gone);
    let error = session(&system, options(), &signals).unwrap_err();
    assert!(matches!(error, Error::FileGone { .. }) && error.exit_code() == 8, "{error}");
}

#[test]
fn a_new_boot_gets_a_header_of_its_own_and_its_positions_count_anew() {
    let signals = Signals::default();
    let system = ticking(Kernel::new(&[1], 1 << 13, 8), 5, &signals);
    run(&system, &signals);
    let mut rebooted = Kernel::new(&[1], 1 << 13, 9);
    rebooted.boot = 0x5f0d;
    rebooted.tsc = 1_000_000;
    let first = std::mem::replace(&mut system.0.borrow_mut().kernel, rebooted);
    let again = Signals::default();
    let stopper = again.clone();
    system.0.borrow_mut().on_pause = Box::new(move |kernel, pause| {
        kernel.tick();
        if pause > 12 {
            stopper.stop();
        }
    });
    session(&system, options(), &again).unwrap();
    system.0.borrow_mut().kernel.ledger.extend(first.ledger);
    let reading = reading(&system);
    exactly_once(&system, &reading).unwrap();
    assert_eq!(reading.headers, 2);
}

#[test]
fn a_session_that_ends_by_an_error_stops_the_sampling_that_it_has_started_and_no_other() {
    for ran_before in [false, true] {
        let signals = Signals::default();
        let system = some_ticks(1000, &signals);
        system.0.borrow_mut().kernel.running = ran_before;
        system.0.borrow_mut().disk.room = 1500;
        let start = vec!["start".to_owned()];
        let failing = Options { commands: start, on_full: OnFull::Stop, ..options() };
        let error = session(&system, failing, &signals).unwrap_err();
        assert!(matches!(error, Error::Full { .. }), "{error}");
        assert_eq!(system.0.borrow().kernel.running, ran_before);
    }
}

#[test]
fn a_device_that_repeats_a_record_does_not_keep_a_session_from_its_end() {
    let signals = Signals::default();
    signals.stop();
    let system = some_ticks(1000, &signals);
    {
        let kernel = &mut system.0.borrow_mut().kernel;
        (0..500).for_each(|_| kernel.tick());
        let header = SampleHeader { tsc: 5, task: 7, address: 1, ..SampleHeader::default() };
        kernel.nasty.same_record = Some(header.record(Kind::Sample, &[2]).flat_map(u64::to_le_bytes).collect());
        assert!(kernel.rings.values().all(|ring| ring.head > 3000));
    }
    session(&system, options(), &signals).unwrap();
    let syncs = system.0.borrow().calls.iter().filter(|call| **call == "sync").count();
    assert!(syncs < 200, "{syncs}");
}
