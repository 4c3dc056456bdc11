//! `kprof-record` beside another reader, on the simulated kernel: it takes copies.
//!
//! In: recordings while another process has claimed the streams. Out: the samples in their files, their accounts, what
//! the other reader got, and the kernel's state after them.

use crate::support;

use kprof_daemon::source::kprof_device::KprofDevice;
use kprof_daemon::source::{Source, Stream};
use kprof_daemon::write::sample_file::SampleFile;
use kprof_format::account::IDENTITIES;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use support::kernel::Kernel;
use support::reader::Reading;
use support::recording::{run, world};
use support::scenario::{OUTPUT, exactly_once, reading};
use support::system::{SCHEME, Simulated};

/// The control file of the other reader.
const PROFILED: u64 = u64::MAX;

/// A kernel that samples at 1000 Hz for `profiled`, which acknowledges all records at each `period`th tick. Returns
/// also how many records `profiled` has got from each CPU.
fn beside(period: u64, ticks_a_pause: u64) -> (Simulated, Rc<RefCell<BTreeMap<u32, u64>>>) {
    let (system, got) = (world(), Rc::<RefCell<BTreeMap<u32, u64>>>::default());
    let (mut ticks, count) = (0, got.clone());
    let mut world = system.0.borrow_mut();
    world.kernel.control(PROFILED, b"protocol 1\nstart").unwrap();
    world.on_pause = Box::new(move |kernel: &mut Kernel, _| {
        std::thread::sleep(Duration::from_millis(1));
        for _ in 0..ticks_a_pause {
            kernel.tick();
            ticks += 1;
            if ticks % period == 0 {
                *count.borrow_mut() = kernel.take_all();
            }
        }
    });
    // Samples and names from before the recording, which only the other reader gets.
    (0..50).for_each(|_| world.kernel.tick());
    world.kernel.take_all();
    world.kernel.ledger.clear();
    drop(world);
    (system, got)
}

#[track_caller]
fn assert_balanced(reading: &Reading) {
    assert_eq!(reading.accounts.len(), 2);
    for (cpu, account) in &reading.accounts {
        let counters = || account.iter().map(|(name, value)| (name.as_str(), *value));
        let faults: Vec<_> = IDENTITIES.iter().filter_map(|identity| identity.fault(counters())).collect();
        assert_eq!(faults, [], "cpu {cpu}: {account:?}");
        let in_file = reading.samples.iter().filter(|((of, _), ..)| of == cpu).count() as u64;
        assert_eq!(account["delivered"], in_file, "cpu {cpu}: {account:?}");
    }
}

#[test]
fn it_records_every_sample_beside_another_reader_which_loses_none() {
    let (system, _) = beside(7, 1);
    let (ended, talk) = run(&system, &["-o", OUTPUT, "--hz", "5000", "--", "sleep", "0.3"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    let said = system.0.borrow().said.clone();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("process 77 reads the samples too"), "{said:?}");
    assert!(!talk.contains("balance"), "{talk}");
    let mut reading = reading(&system);
    assert_balanced(&reading);
    assert_eq!((reading.corrupt_lines, reading.damaged), (0, 0));
    {
        // Sampling goes on, so the last ticks came after the last round.
        let mut world = system.0.borrow_mut();
        let last = reading.samples.iter().map(|((_, tsc), ..)| *tsc).max().unwrap();
        world.kernel.ledger.retain(|(_, tsc), _| *tsc <= last);
        assert!(!world.kernel.ledger.is_empty());
    }
    // No tick comes between `copy 1` and the last reading of the counters, so no sample is from before the recording.
    let older =
        talk.lines().find_map(|line| line.strip_suffix(" samples from before the recording are not in the file"));
    assert_eq!(older, None, "{talk}");
    exactly_once(&system, &reading).unwrap();
    reading.samples.clear();
    let world = system.0.borrow();
    assert!(world.kernel.rings.values().all(|ring| ring.lost_full == 0));
    let commands: Vec<&str> = world.kernel.commands.iter().map(String::as_str).skip(2).collect();
    assert_eq!(
        commands,
        ["copy 1", "lease", "flush", "lease", "hz 5000", "start", "flush"],
        "nothing is acknowledged or stopped"
    );
    assert!(world.kernel.running && world.kernel.claim == Some(PROFILED));
    assert_eq!(world.kernel.copier, None);
    drop(world);
    assert!(system.0.borrow_mut().kernel.text(0).contains("\nhz 1000\n"), "the lease was undone");
}

#[test]
fn without_an_output_it_records_beside_another_reader_and_a_file_that_is_being_written_is_said() {
    let (system, _) = beside(7, 1);
    run(&system, &["--", "sleep", "0.1"]).0.unwrap();
    assert!(!support::reader::read(&[system.file("kprof-record.txt")]).samples.is_empty());
    let mut own = system.clone();
    let _writing = SampleFile::open(&mut own, Path::new("kprof-record.txt"), false).unwrap();
    let failed = run(&system, &["--", "true"]).0.unwrap_err();
    assert!(failed.to_string().contains("is being written by another process"), "{failed}");
    assert!(failed.to_string().contains("use another -o"), "{failed}");
}

/// What is copied is freed by the other reader alone.
#[test]
fn a_reader_of_copies_acknowledges_nothing() {
    let (system, _) = beside(u64::MAX, 1);
    let mut own = system.clone();
    let mut device = KprofDevice::open_copies(&mut own, Path::new(SCHEME)).unwrap();
    system.0.borrow_mut().kernel.nasty.refuses_acks = true;
    device.acknowledge(&mut own, &[(Stream::Cpu(1), 8), (Stream::Meta, 8)]).unwrap();
    assert_eq!(system.0.borrow().kernel.nasty.refused_acks, 0);
}

#[test]
fn what_is_overwritten_before_it_is_copied_is_lost_in_the_account_and_nothing_else_is() {
    // Between two rounds up to three rings full of records come.
    let (system, got) = beside(100, 4000);
    let (ended, talk) = run(&system, &["-o", OUTPUT, "--", "sleep", "0.1"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    let reading = reading(&system);
    assert_balanced(&reading);
    assert_eq!((reading.corrupt_lines, reading.damaged, reading.void_batches), (0, 0, 0));
    let lost: u64 = reading.accounts.values().map(|account| account["lost-overtaken"]).sum();
    assert!(lost > 1000, "{lost}");
    assert!(talk.contains(&format!(" {lost} lost")), "{talk}");
    let names = reading.samples.iter().all(|(.., name)| name.starts_with("task%20"));
    assert!(names && !reading.samples.is_empty());
    let world = system.0.borrow();
    assert!(world.kernel.rings.values().all(|ring| ring.lost_full == 0), "the other reader lost none");
    assert!(got.borrow().values().all(|got| *got > 3000));
}

#[test]
fn it_can_copy_a_flight_recorder_that_runs() {
    let (system, _) = beside(u64::MAX, 1);
    system.0.borrow_mut().kernel.overwrites = true;
    let (ended, talk) = run(&system, &["-o", OUTPUT, "--", "sleep", "0.2"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    let reading = reading(&system);
    assert_balanced(&reading);
    assert!(!reading.samples.is_empty());
    assert!(system.0.borrow().kernel.running && !system.0.borrow().kernel.frozen);
}

#[test]
fn a_second_recording_and_a_kernel_without_copies_are_refused_and_no_file_is_touched() {
    let (system, _) = beside(7, 1);
    run(&system, &["-o", OUTPUT, "--", "sleep", "0.05"]).0.unwrap();
    let before = system.file(OUTPUT);
    let refused = |what: &str| {
        let failed = run(&system, &["-o", OUTPUT, "--", "true"]).0.unwrap_err();
        assert!(failed.to_string().contains("in use by another"), "{what}: {failed}");
        assert_eq!((failed.exit_code(), system.file(OUTPUT)), (125, before.clone()), "{what}");
        assert!(!system.0.borrow().disk.names.contains_key(std::path::Path::new(&format!("{OUTPUT}.old"))), "{what}");
    };
    system.0.borrow_mut().kernel.control(PROFILED, b"lease").unwrap();
    refused("the other reader has the lease: it is a recording");
    system.0.borrow_mut().kernel.close(PROFILED);
    system.0.borrow_mut().kernel.control(PROFILED, b"protocol 1\nstart").unwrap();
    system.0.borrow_mut().kernel.control(PROFILED - 1, b"copy 1").unwrap();
    refused("a third process reads copies");
    system.0.borrow_mut().kernel.close(PROFILED - 1);
    system.0.borrow_mut().kernel.gives_copies = false;
    refused("an older kernel");
}

#[test]
fn if_the_other_reader_ends_the_recording_goes_on() {
    let (system, _) = beside(7, 1);
    let mut ticks = 0;
    system.0.borrow_mut().on_pause = Box::new(move |kernel: &mut Kernel, _| {
        std::thread::sleep(Duration::from_millis(1));
        kernel.tick();
        ticks += 1;
        if ticks == 3 {
            kernel.close(PROFILED);
        }
    });
    let (ended, talk) = run(&system, &["-o", OUTPUT, "--", "sleep", "0.3"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    let reading = reading(&system);
    assert_balanced(&reading);
    assert!(reading.samples.len() > 10, "more than the other reader saw: {}", reading.samples.len());
}
