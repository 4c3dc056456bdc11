//! `kprof-record probe` on the simulated kernel.
//!
//! In: places, patterns, and commands that succeed, fail and do not exist. Out: the commands that the kernel received,
//! the table, and that no probe is left.

use crate::support;

use kprof_daemon::record::options::Record;
use kprof_daemon::record::probe::list;
use kprof_daemon::record::record;
use kprof_daemon::signals::Signals;
use std::path::Path;
use support::recording::{run, wanted, world};
use support::system::{SCHEME, Simulated};

/// The simulated kernel runs at ffffffff80200000.
const PLACES: &str = "# kprof-probes 1\n# build-id 1234abcd\n# load ffffffff80000000\n\
    ffffffff80000010 f,2a kernel::fs::read\nffffffff80000100 - kernel::fs::serve\nffffffff80000200 7 kernel::mm::map\n\
    # refused: kernel::trap::enter: does not begin with `push rbp`\n";
const READ: u64 = 0xffff_ffff_8020_0010;
const SERVE: u64 = 0xffff_ffff_8020_0100;

/// A kernel, and a file of places in the folder.
fn setup(places: &str) -> (Simulated, tempfile::TempDir, String) {
    let system = world();
    system.0.borrow_mut().disk.open(Path::new("/dev/null"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("places.txt");
    std::fs::write(&file, places).unwrap();
    let file = file.to_str().unwrap().to_owned();
    (system, folder, file)
}

/// The commands that the kernel received, without those that every session gives.
fn commands(system: &Simulated) -> Vec<String> {
    let commands = system.0.borrow().kernel.commands.clone();
    commands.into_iter().filter(|it| !["ack", "protocol", "copy"].iter().any(|word| it.starts_with(word))).collect()
}

#[test]
fn probes_are_put_on_the_functions_that_are_meant_and_removed_before_the_counts_are_read() {
    for gives_copies in [false, true] {
        let (system, _folder, file) = setup(PLACES);
        if gives_copies {
            system.0.borrow_mut().kernel.control(7, b"protocol 1").unwrap();
        }
        let (ended, talk) =
            run(&system, &["probe", "--places", &file, "kernel::fs::*", "--", "sh", "-c", "sleep 0.05; exit 3"]);
        assert_eq!(ended.unwrap(), 3, "{talk}");
        let probes = ["probe ffffffff80200010 f 2a", "probe ffffffff80200100"];
        let expected = ["flush", "lease", probes[0], probes[1], "unprobe lease", "flush"];
        assert_eq!(commands(&system), expected, "{talk}");
        let kernel = &system.0.borrow().kernel;
        assert!(kernel.probes.planted.is_empty() && !kernel.running);
        let row = |name: &str| {
            let line = talk.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{talk}"));
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let calls = kernel.probes.all_calls[&READ];
        assert!(calls > 1, "{talk}");
        let [calls, total] = [calls, 100 * calls].map(|number| number.to_string());
        assert_eq!(row("fs::read"), [&calls[..], &total, "100.0", "127", "127", "127", "kernel::fs::read"]);
        assert_eq!(row("fs::serve")[..3], [&kernel.probes.all_calls[&SERVE].to_string()[..], "-", "-"]);
        assert!(talk.starts_with("probes on 2 functions, "), "{talk}");
    }
}

#[test]
fn a_recording_asks_for_records_before_the_probes_and_keeps_an_older_file() {
    let (system, _folder, file) = setup(PLACES);
    let output = "/root/calls.txt";
    assert_eq!(run(&system, &["-o", output, "--", "true"]).0.unwrap(), 0);
    let (first, before) = (system.file(output), commands(&system).len());
    let words = ["probe", "--places", &file, "-o", output, "--args", "u64", "--if", "arg1>1", "fs::read", "--", "true"];
    let (ended, talk) = run(&system, &words);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    let probe = "probe ffffffff80200010 f 2a args u64 if arg1 > 1";
    assert_eq!(
        commands(&system)[before + 1..before + 5],
        ["lease", "event probe.* record", probe, "unprobe lease"],
        "{talk}"
    );
    assert!(talk.contains(&format!("0 recorded hits of points to {output}, ")), "{talk}");
    assert_eq!(system.file(&format!("{output}.old")), first);
}

#[test]
fn what_is_asked_of_a_function_that_has_a_probe_already_is_refused() {
    let (system, _folder, file) = setup(PLACES);
    system.0.borrow_mut().kernel.control(9, format!("probe {READ:x} f").as_bytes()).unwrap();
    let words = ["probe", "--places", &file, "--if", "arg1 > 1", "fs::read", "--", "true"];
    let failed = run(&system, &words).0.unwrap_err();
    assert!(failed.to_string().contains("kernel::fs::read has a probe already"), "{failed}");
}

#[test]
fn the_meta_stream_is_read_while_many_probes_are_put() {
    let exits: Vec<String> = (1..=60).map(|exit| format!("{exit:x}")).collect();
    let address = |number: u64| 0xffff_ffff_8000_0000 + 0x100 * number;
    let functions: String =
        (0..600).map(|number| format!("{:x} {} f{number}\n", address(number), exits.join(","))).collect();
    let head = PLACES.lines().take(3).map(|line| format!("{line}\n")).collect::<String>();
    let (system, _folder, file) = setup(&(head + &functions));
    // Each command is a record of more than 30 words, and the stream has room for 16384 words.
    let (ended, talk) = run(&system, &["probe", "--places", &file, "--", "sleep", "0.05"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    assert!(talk.starts_with("probes on 600 functions, ") && !talk.contains("without a call"), "{talk}");
}

#[test]
fn calls_that_were_counted_before_are_not_counted_again() {
    let (system, _folder, file) = setup(PLACES);
    {
        let kernel = &mut system.0.borrow_mut().kernel;
        kernel.control(9, format!("probe {READ:x} f").as_bytes()).unwrap();
        kernel.probes.call();
        kernel.control(9, b"unprobe all").unwrap();
    }
    let (ended, talk) = run(&system, &["probe", "--places", &file, "fs::read", "--", "sleep", "0.05"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    let calls = system.0.borrow().kernel.probes.all_calls[&READ] - 1;
    assert!(talk.contains(&format!("probes on 1 function, {calls} calls in")), "{talk}");
}

#[test]
fn probes_of_others_are_not_put_again_and_stay_at_every_end() {
    let by_hand = |system: &Simulated| {
        let line = format!("probe {SERVE:x} 7");
        system.0.borrow_mut().kernel.control(9, line.as_bytes()).unwrap();
        // One that the work does not ask for.
        system.0.borrow_mut().kernel.control(9, b"probe ffffffff80200333").unwrap();
    };
    let planted = |system: &Simulated| system.0.borrow().kernel.probes.planted.clone();
    let (system, _folder, file) = setup(PLACES);
    by_hand(&system);
    let before = planted(&system);
    let (ended, talk) = run(&system, &["probe", "--places", &file, "kernel::fs::*", "--", "sleep", "0.05"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    assert_eq!(planted(&system), before, "with its own exits");
    let expected = ["flush", "lease", "probe ffffffff80200010 f 2a", "unprobe lease", "flush"];
    assert_eq!(commands(&system)[2..], expected, "{talk}");
    assert!(talk.starts_with("probes on 2 functions, ") && talk.contains("  kernel::fs::serve\n"), "{talk}");
    let said = "1 function had a probe before, which is not of this command: it stays (kernel::fs::serve)\n";
    assert!(talk.ends_with(said), "{talk}");
    // A refused probe.
    system.0.borrow_mut().kernel.probes.refused = Some(0xffff_ffff_8020_0200);
    assert!(run(&system, &["probe", "--places", &file, "--", "true"]).0.is_err());
    assert_eq!(planted(&system), before);
}

#[test]
fn a_probe_that_somebody_else_puts_meanwhile_stays() {
    let (system, _folder, file) = setup(PLACES);
    let mut is_put = false;
    system.0.borrow_mut().on_pause = Box::new(move |kernel, _| {
        if kernel.probes.planted.len() == 1 && !std::mem::replace(&mut is_put, true) {
            kernel.control(9, format!("probe {READ:x} f 2a\nprobe {SERVE:x}").as_bytes()).unwrap();
        }
    });
    let (ended, talk) = run(&system, &["probe", "--places", &file, "fs::read", "--", "sleep", "0.05"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    assert_eq!(system.0.borrow().kernel.probes.addresses(), [READ, SERVE].into());
    assert!(talk.starts_with("probes on 1 function, ") && !talk.contains("before"), "{talk}");
}

#[test]
fn a_command_that_cannot_run_leaves_only_the_probes_of_others() {
    let (system, _folder, file) = setup(PLACES);
    system.0.borrow_mut().kernel.control(9, format!("probe {SERVE:x} 7").as_bytes()).unwrap();
    let before = system.0.borrow().kernel.probes.planted.clone();
    let failed = run(&system, &["probe", "--places", &file, "--", "/no/such/program"]).0.unwrap_err();
    assert_eq!(failed.exit_code(), 127, "{failed}");
    assert!(commands(&system).contains(&"unprobe lease".to_owned()));
    assert_eq!(system.0.borrow().kernel.probes.planted, before, "those of others stay");
}

#[test]
fn a_refused_probe_leaves_none() {
    let (system, _folder, file) = setup(PLACES);
    system.0.borrow_mut().kernel.probes.refused = Some(SERVE);
    let failed = run(&system, &["probe", "--places", &file, "--", "true"]).0.unwrap_err();
    assert_eq!(failed.exit_code(), 125);
    let said = failed.to_string();
    assert!(said.contains("refused `probe ffffffff80200100`: line 1: an exit is neither"), "{said}");
    let kernel = &system.0.borrow().kernel;
    assert!(kernel.commands.iter().any(|command| command.starts_with("probe ffffffff80200010")));
    assert!(kernel.probes.planted.is_empty(), "the lease has ended, and the probes with it");
}

#[test]
fn a_signal_and_a_failed_session_remove_the_probes() {
    let (system, _folder, file) = setup(PLACES);
    let signals = Signals::default();
    let (mut world, mut talk, stop) = (system.clone(), Vec::new(), signals.clone());
    system.0.borrow_mut().on_pause = Box::new(move |kernel, _| {
        if kernel.probes.planted.len() == 3 {
            stop.stop();
        }
    });
    let wanted = Record { scheme: SCHEME.into(), ..wanted(&["probe", "--places", &file]) };
    assert_eq!(record(&mut world, &wanted, &signals, &mut talk, false).unwrap(), 0);
    assert_eq!(commands(&system)[5..], ["unprobe lease", "flush"]);
    assert!(String::from_utf8(talk).unwrap().starts_with("probes on 3 functions"));

    let (system, _folder, file) = setup(PLACES);
    system.0.borrow_mut().on_pause = Box::new(|kernel, _| kernel.is_gone = !kernel.probes.planted.is_empty());
    let failed = run(&system, &["probe", "--places", &file, "--", "sleep", "0.1"]).0.unwrap_err();
    assert!(failed.to_string().contains("the device is gone"), "{failed}");
    assert!(commands(&system).contains(&"unprobe lease".to_owned()));
}

#[test]
fn places_of_another_kernel_are_refused_before_anything_is_changed() {
    for (places, more, said) in [
        (PLACES.replace("1234abcd", "5678"), &["--force"][..], "is of build 5678, and the kernel is 1234abcd"),
        (PLACES.replace("1234abcd", "-"), &[], "the file has no build id"),
        (PLACES.replace("7 kernel", "7,7 kernel"), &[], "line 6: expected exits"),
        (PLACES.to_owned(), &["fs::raed"], "has no such function"),
        (PLACES.to_owned(), &["trap::enter"], "does not begin with `push rbp`"),
    ] {
        let (system, _folder, file) = setup(&places);
        let words = [&["probe", "--places", &file], more, &["--", "true"]].concat();
        let failed = run(&system, &words).0.unwrap_err();
        assert!(failed.to_string().contains(said), "{failed}");
        assert!(system.0.borrow().kernel.commands.is_empty(), "{:?}", commands(&system));
    }
    let (system, _folder, file) = setup(&PLACES.replace("1234abcd", "-"));
    let (ended, talk) = run(&system, &["probe", "--force", "--places", &file, "mm::map", "--", "true"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
}

#[test]
fn a_second_recorder_is_told_that_the_first_one_has_the_lease() {
    let (system, _folder, file) = setup(PLACES);
    system.0.borrow_mut().kernel.control(u64::MAX, b"lease").unwrap();
    let failed = run(&system, &["probe", "--places", &file, "--", "true"]).0.unwrap_err();
    assert!(failed.to_string().contains("in use by another"), "{failed}");
    assert!(!commands(&system).iter().any(|command| command.starts_with("probe")));
}

#[test]
fn the_probes_are_listed_with_their_names() {
    let (mut system, _folder, file) = setup(PLACES);
    let listed = |system: &mut Simulated, places: Option<&Path>| {
        let mut out = Vec::new();
        list(system, Path::new(SCHEME), places, false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(listed(&mut system, None), "no function has a probe\n");
    system.0.borrow_mut().kernel.control(9, format!("probe {READ:x} f\nprobe ffffffff80200123").as_bytes()).unwrap();
    let head = "functions with probes:\nstate         address           function\n";
    let named = format!("{head}count         {READ:016x}  kernel::fs::read\ncount         ffffffff80200123  -\n");
    assert_eq!(listed(&mut system, Some(Path::new(&file))), named);
    assert_eq!(listed(&mut system, None), named.replace("kernel::fs::read", "-"));
    system.0.borrow_mut().kernel.control(9, b"unprobe all").unwrap();
    assert_eq!(listed(&mut system, None), "no function has a probe\n");
}
