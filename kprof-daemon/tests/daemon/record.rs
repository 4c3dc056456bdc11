//! `kprof-record` runs real commands on the simulated kernel.
//!
//! In: commands that succeed, that fail, that are killed, and that do not exist. Out: their exit codes, the ctl
//! commands that the kernel received, the samples, the account.

use crate::support;

use kprof_daemon::drain_loop::Options;
use kprof_daemon::record::control::{Control, control};
use kprof_daemon::record::options::Record;
use kprof_daemon::record::record;
use kprof_daemon::signals::Signals;
use kprof_daemon::write::compose::Form;
use std::path::Path;
use std::time::Duration;
use support::kernel::Kernel;
use support::recording::{run, run_on, wanted, world};
use support::scenario::{self, OUTPUT, exactly_once, reading};
use support::system::{SCHEME, Simulated};

#[test]
fn it_ends_as_the_command_ended() {
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("sleep 0.1; exit 255", 255)] {
        let system = world();
        let (ended, talk) = run(&system, &["-o", OUTPUT, "--hz", "500", "--", "sh", "-c", script]);
        assert_eq!(ended.unwrap(), code, "{script}: {talk}");
        exactly_once(&system, &reading(&system)).unwrap();
        let commands = system.0.borrow().kernel.commands.clone();
        let commands: Vec<&str> = commands.iter().map(String::as_str).filter(|it| !it.starts_with("ack")).collect();
        assert_eq!(commands, ["protocol 1", "lease", "hz 500", "start", "stop"], "{script}");
        assert!(!system.0.borrow().kernel.running);
        assert!(talk.contains("samples in") && talk.contains(OUTPUT) && talk.contains("  cpu"), "{talk}");
        assert!(!talk.contains("does not balance"), "{talk}");
    }
}

#[test]
fn a_command_that_cannot_run_is_named_and_sampling_is_stopped() {
    for (program, code) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
        let system = world();
        let failed = run(&system, &["-o", OUTPUT, "--", program]).0.unwrap_err();
        assert_eq!(failed.exit_code(), code);
        assert!(failed.to_string().contains(program), "{failed}");
        assert!(!system.0.borrow().kernel.running, "sampling goes on");
    }
}

#[test]
fn a_failed_session_waits_for_the_command_and_stops_sampling() {
    let system = world();
    system.0.borrow_mut().disk.room = 1500;
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let script = format!("sleep 0.3; touch {}", done.display());
    let failed = run(&system, &["-o", OUTPUT, "--on-full", "stop", "--", "sh", "-c", &script]).0.unwrap_err();
    assert_eq!(failed.exit_code(), 125);
    assert!(failed.to_string().contains("the disk is full"), "{failed}");
    assert!(done.exists(), "the session has not waited for the command");
    assert!(!system.0.borrow().kernel.running, "sampling goes on");
}

#[test]
fn a_second_recorder_that_finds_the_lease_taken_changes_nothing() {
    let system = world();
    system.0.borrow_mut().kernel.control(u64::MAX, b"lease").unwrap();
    let failed = run(&system, &["-o", OUTPUT, "--hz", "500", "--", "true"]).0.unwrap_err();
    assert_eq!(failed.exit_code(), 125);
    assert!(failed.to_string().contains("in use by another"), "{failed}");
    assert_eq!(system.0.borrow().kernel.commands, ["lease", "protocol 1"]);
}

#[test]
fn lockups_from_before_a_recording_are_not_in_it() {
    let mut found_at = None;
    let on_pause = move |kernel: &mut Kernel, _| {
        std::thread::sleep(Duration::from_millis(1));
        if kernel.running {
            kernel.tick();
            if found_at.is_none() {
                found_at = Some(kernel.tsc);
                kernel.lockup();
            }
        }
    };
    let system = Simulated::new(Kernel::new(&[1], 1 << 14, 21), Box::new(on_pause));
    {
        let kernel = &mut system.0.borrow_mut().kernel;
        kernel.running = false;
        kernel.lockup();
    }
    let (ended, talk) = run(&system, &["-o", OUTPUT, "--", "sleep", "0.1"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    let file = String::from_utf8(system.file(OUTPUT)).unwrap();
    let begins = |start: &str| file.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!((begins("# lockup "), begins("# lockup-stack ")), (1, 1), "{file}");
}

#[test]
fn a_cpu_that_takes_no_ticks_is_named_and_all_that_was_recorded_is_in_the_file() {
    let system = world();
    system.0.borrow_mut().kernel.nasty.pending = 3;
    let failed = run(&system, &["-o", OUTPUT, "--", "sleep", "0.1"]).0.unwrap_err();
    assert_eq!(failed.exit_code(), 125);
    assert!(failed.to_string().contains("refused `stop`: line 1: cpu 1 has not taken 3 ticks"), "{failed}");
    exactly_once(&system, &reading(&system)).unwrap();
    let file = String::from_utf8(system.file(OUTPUT)).unwrap();
    let account = file.lines().find(|line| line.starts_with("# account cpu=1")).expect("an account");
    assert!(account.ends_with(" spurious=0 foreign=0 pending=3"), "{account}");
    assert!(!system.0.borrow().kernel.running, "sampling goes on");
}

#[test]
fn a_stream_that_somebody_else_is_at_is_read_in_a_later_round() {
    let system = world();
    system.0.borrow_mut().kernel.nasty.busy_reads = 40;
    let (ended, talk) = run(&system, &["-o", OUTPUT, "--", "sleep", "0.2"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    assert_eq!(system.0.borrow().kernel.nasty.busy_reads, 0);
    exactly_once(&system, &reading(&system)).unwrap();
}

#[test]
fn a_value_that_the_kernel_refuses_is_reported_in_its_words() {
    let system = world();
    let failed = run(&system, &["-o", OUTPUT, "--depth", "0", "--", "true"]).0.unwrap_err();
    assert_eq!(failed.exit_code(), 125);
    assert!(failed.to_string().contains("refused `depth 0`: `depth 0` is no command"), "{failed}");
}

#[test]
fn without_a_command_it_goes_on_until_its_time_is_over() {
    let system = world();
    let (ended, talk) = run(&system, &["-o", OUTPUT, "--duration", "5s"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    assert!(system.0.borrow().clock >= Duration::from_secs(5));
    // The end of a command is noticed soon.
    assert_eq!(system.0.borrow().kernel.waits.iter().max(), Some(&100));
    exactly_once(&system, &reading(&system)).unwrap();
}

#[test]
fn a_terminal_shows_samples_rate_and_losses_once_a_second_and_then_the_account() {
    let words = ["-o", OUTPUT, "--hz", "500", "--", "sleep", "2.5"];
    let (_, talk) = run_on(&world(), &words, true);
    // Each progress line overwrites the one before, and the last one is erased.
    let (shown, account) = talk.rsplit_once("\r\x1b[K").expect("lines that are taken back");
    assert!(account.contains("samples in") && !account.contains('\r'), "{account}");
    let lines: Vec<&str> = shown.split("\r\x1b[K").filter(|line| !line.is_empty()).collect();
    assert!((1..=3).contains(&lines.len()), "{lines:?}");
    let mut samples = 0;
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [seconds, "s", now, "samples", rate, lost, "lost"] = words[..] else { panic!("{line}") };
        let numbers = [seconds, now, rate.strip_suffix("/s").unwrap(), lost].map(|text| text.parse::<u64>().unwrap());
        assert!(numbers[0] >= 1 && numbers[1] > samples && numbers[2] > 0, "{line}");
        samples = numbers[1];
    }

    for (words, is_terminal) in [(&words[..], false), (&["-q", "-o", OUTPUT, "--", "sleep", "1.2"][..], true)] {
        assert!(!run_on(&world(), words, is_terminal).1.contains('\x1b'));
    }
}

#[test]
fn samples_from_before_are_counted_and_not_written() {
    let system = world();
    (0..84).for_each(|_| system.0.borrow_mut().kernel.tick());
    let older: Vec<String> = std::mem::take(&mut system.0.borrow_mut().kernel.ledger).into_values().collect();
    assert_eq!(older.len(), 168);
    let (ended, talk) = run(&system, &["-o", OUTPUT, "--", "sleep", "0.1"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    assert!(talk.contains("168 samples from before the recording are not in the file"), "{talk}");
    // The ledger has only what was recorded since.
    exactly_once(&system, &reading(&system)).unwrap();
    let world = system.0.borrow();
    assert!(world.kernel.rings.values().all(|ring| ring.tail == ring.head), "they were freed too");
}

#[test]
fn an_older_profile_is_kept_as_old_and_another_file_is_left_as_it_is() {
    let system = world();
    let words = ["-o", OUTPUT, "--", "sleep", "0.05"];
    run(&system, &words).0.unwrap();
    let first = system.file(OUTPUT);
    run(&system, &words).0.unwrap();
    assert_eq!(system.file(&format!("{OUTPUT}.old")), first);
    let second = String::from_utf8(system.file(OUTPUT)).unwrap();
    assert_eq!(second.matches("# kprof-profile").count(), 1, "only its own samples");

    let letter = b"Dear reader,\n";
    let file = system.0.borrow_mut().disk.open(Path::new("/root/letter.txt"));
    system.0.borrow_mut().disk.write(file, 0, letter);
    let failed = run(&system, &["-o", "/root/letter.txt", "--", "true"]).0.unwrap_err();
    assert!(failed.to_string().contains("not a file of this program"), "{failed}");
    assert_eq!(system.file("/root/letter.txt"), letter);
    assert!(!system.0.borrow().disk.names.contains_key(Path::new("/root/letter.txt.old")));
}

#[test]
fn a_point_that_was_never_hit_is_named() {
    let system = world();
    system.0.borrow_mut().disk.open(Path::new("/dev/null"));
    for words in [&["-e", "cycles", "-o", OUTPUT, "--", "true"][..], &["stat", "-e", "cycles", "--", "true"]] {
        system.0.borrow_mut().said.clear();
        run(&system, words).0.unwrap();
        let said = system.0.borrow().said.clone();
        assert!(said.len() == 1 && said[0].contains("no point `cycles` was hit since boot"), "{words:?}: {said:?}");
    }
}

/// Puts these bytes into a file.
fn put(system: &Simulated, path: &str, bytes: &[u8]) {
    let disk = &mut system.0.borrow_mut().disk;
    let file = disk.open(Path::new(path));
    disk.write(file, 0, bytes);
}

#[test]
fn neither_program_renames_or_continues_a_file_of_the_other() {
    for form in [Form::Text, Form::Binary] {
        let (system, signals) = (world(), Signals::default());
        signals.stop();
        let options = || Options { form, ..scenario::options() };
        let binary = if form == Form::Binary { &["--binary"][..] } else { &[] };
        scenario::session(&system, options(), &signals).unwrap();
        let before = system.file(OUTPUT);
        let words = [&["-o", OUTPUT], binary, &["--", "true"]].concat();
        let failed = run(&system, &words).0.unwrap_err();
        assert!(failed.to_string().contains("a profile that kprof-record has not made"), "{failed}");
        assert_eq!((failed.exit_code(), system.file(OUTPUT)), (125, before));
        assert!(!system.0.borrow().disk.names.contains_key(Path::new(&format!("{OUTPUT}.old"))));

        // A recording is renamed by the next one, so `profiled` adds nothing to it.
        system.0.borrow_mut().disk.names.remove(Path::new(OUTPUT));
        run(&system, &words).0.unwrap();
        let before = system.file(OUTPUT);
        let error = scenario::session(&system, options(), &signals).unwrap_err();
        assert!(error.to_string().contains("a recording of kprof-record"), "{error}");
        assert_eq!(system.file(OUTPUT), before);
        run(&system, &words).0.unwrap();
        assert_eq!(system.file(&format!("{OUTPUT}.old")), before);
    }
}

#[test]
fn no_file_of_another_program_is_replaced_by_an_older_recording() {
    let profile = b"# kprof-profile 1\n# boot now\n".to_vec();
    for (suffix, foreign) in [("old", b"my thesis\n".to_vec()), ("old", profile.clone()), ("new", profile)] {
        let system = world();
        let (name, words) = (format!("{OUTPUT}.{suffix}"), ["-o", OUTPUT, "--", "true"]);
        if suffix == "old" {
            run(&system, &words).0.unwrap();
        }
        let before = system.file(OUTPUT);
        put(&system, &name, &foreign);
        let failed = run(&system, &words).0.unwrap_err();
        assert!(failed.to_string().starts_with(&format!("{name}: ")), "{failed}");
        assert_eq!((system.file(&name), system.file(OUTPUT)), (foreign, before));
    }
}

#[test]
fn sampling_that_ran_before_goes_on_after_the_recording() {
    let system = world();
    system.0.borrow_mut().kernel.running = true;
    run(&system, &["-o", OUTPUT, "--", "sleep", "0.05"]).0.unwrap();
    assert!(system.0.borrow().kernel.running);
    assert!(!system.0.borrow().kernel.commands.iter().any(|command| command == "stop"));
}

#[test]
fn a_duration_ends_the_wait_for_records_too() {
    let system = world();
    run(&system, &["-o", OUTPUT, "--duration", "100ms"]).0.unwrap();
    let clock = system.0.borrow().clock;
    assert!((100..110).contains(&clock.as_millis()), "{clock:?}");
}

#[test]
fn status_start_and_stop_work_beside_a_reader_and_start_goes_on() {
    let system = world();
    system.0.borrow_mut().kernel.control(u64::MAX, b"protocol 1").unwrap();
    let verb = |verb| {
        let mut out = Vec::new();
        control(&mut system.clone(), Path::new(SCHEME), verb, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert!(verb(Control::Status).starts_with("stopped, trigger nmi, 1000 Hz, mode drop, include -; a reader has the"));
    assert_eq!(verb(Control::Start), "");
    assert!(system.0.borrow().kernel.running, "start is no lease");
    system.0.borrow_mut().kernel.tick();
    let status = verb(Control::Status);
    let rows: Vec<&str> = status.lines().skip(1).collect();
    assert!(status.starts_with("running") && rows.len() == 3, "{status}");
    let columns = |row: usize| rows[row].split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(columns(0), "cpu sent user irq-on irq-off interrupt idle coalesced pending lost other");
    assert_eq!(columns(1), "1 1 0 0 0 0 0 0 0 0 1", "this kernel does not say what the CPU was doing");
    verb(Control::Stop);
    assert!(!system.0.borrow().kernel.running);
}

#[test]
fn a_repeated_command_runs_as_often_and_the_means_and_the_last_exit_code_are_given() {
    let system = world();
    system.0.borrow_mut().disk.open(Path::new("/dev/null"));
    let folder = tempfile::tempdir().unwrap();
    let script = format!("cd {}; echo >> runs; exit $(wc -l < runs)", folder.path().display());
    let (ended, talk) = run(&system, &["stat", "-r", "3", "--", "sh", "-c", &script]);
    assert_eq!(ended.unwrap(), 3, "{talk}");
    assert!(talk.contains("(mean of 3 runs)") && talk.contains("ticks  ( +-"), "{talk}");
    let world = system.0.borrow();
    let count = |command: &str| world.kernel.commands.iter().filter(|it| *it == command).count();
    assert_eq!((count("start"), count("stop")), (3, 3), "{:?}", world.kernel.commands);
}

#[test]
fn a_signal_ends_the_repetition_and_the_run_that_it_cut_short_does_not_count() {
    let system = world();
    system.0.borrow_mut().disk.open(Path::new("/dev/null"));
    let signals = Signals::default();
    let (mut world, mut talk, stop) = (system.clone(), Vec::new(), signals.clone());
    let starts = |kernel: &Kernel| kernel.commands.iter().filter(|command| *command == "start").count();
    system.0.borrow_mut().on_pause = Box::new(move |kernel, _| {
        std::thread::sleep(Duration::from_millis(1));
        kernel.tick();
        if starts(kernel) >= 3 {
            stop.stop();
        }
    });
    let wanted = Record { scheme: SCHEME.into(), ..wanted(&["stat", "-r", "9", "sleep", "0.05"]) };
    assert_eq!(record(&mut world, &wanted, &signals, &mut talk, false).unwrap(), 0);
    let talk = String::from_utf8(talk).unwrap();
    // A busy machine may come to the pause in a later run.
    let starts = starts(&system.0.borrow().kernel);
    assert!((3..9).contains(&starts) && talk.contains(&format!("(mean of {} runs)", starts - 1)), "{talk}");
}

#[test]
fn counts_are_printed_in_intervals_with_the_time_and_add_up_to_all_ticks() {
    let system = world();
    system.0.borrow_mut().disk.open(Path::new("/dev/null"));
    let (ended, talk) = run(&system, &["stat", "-I", "50", "-x", ",", "--", "sh", "-c", "sleep 0.8; exit 4"]);
    assert_eq!(ended.unwrap(), 4, "{talk}");
    let rows: Vec<Vec<&str>> = talk.lines().map(|line| line.split(',').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == 8 && row[5] == "100.00"), "{talk}");
    let sent: Vec<&Vec<&str>> = rows.iter().filter(|row| row[3] == "sent").collect();
    let times: Vec<f64> = sent.iter().map(|row| row[0].parse().unwrap()).collect();
    // A busy machine makes the command and an interval longer, so there may be fewer.
    let max = times.last().map_or(0.0, |time| time / 0.05 + 1.0);
    assert!(sent.len() >= 2 && sent.len() as f64 <= max, "{talk}");
    assert!(times[0] >= 0.05 && times.is_sorted_by(|left, right| left < right), "{times:?}");
    let sum: u64 = sent.iter().map(|row| row[1].parse::<u64>().unwrap()).sum();
    let all: u64 = system.0.borrow().kernel.rings.values().map(|ring| ring.taken).sum();
    assert_eq!(sum, all, "{talk}");
}

#[test]
fn a_recorder_that_is_frozen_is_read_by_profiled_and_goes_on() {
    let system = world();
    system.0.borrow_mut().kernel.overwrites = true;
    system.0.borrow_mut().kernel.running = true;
    (0..50).for_each(|_| system.0.borrow_mut().kernel.tick());
    let command = |command: &[u8]| system.0.borrow_mut().kernel.control(u64::MAX, command).unwrap();
    command(b"freeze");
    let signals = Signals::default();
    signals.stop();
    let totals = scenario::session(&system, scenario::options(), &signals).unwrap();
    assert_eq!(totals.samples, 100);
    exactly_once(&system, &reading(&system)).unwrap();
    command(b"thaw");
    assert!(system.0.borrow().kernel.running);
}
