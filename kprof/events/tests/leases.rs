//! Settings in two layers: the end of a lease drops what its holder has set, and touches nothing that others have set.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::Config;
use kprof::format::settings::{Choices, Keys};

/// A machine that is set up.
fn fresh(config: Config) -> Machine {
    let (profiler, slots) = machine();
    set_up(profiler, slots, config);
    (profiler, slots)
}

/// The texts of the meta stream.
fn told(daemon: &Daemon) -> String {
    let mut buffer = vec![0; 64 * 1024];
    let bytes = daemon.meta.read(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..bytes]).into_owned()
}

#[test]
fn the_end_of_a_lease_touches_nothing_that_others_have_set() {
    // Each time somebody else sets what the lease has set: the same value, another one, or the same again.
    let cases = [
        ("start", "start", "state", "running"),
        ("start", "stop\nstart", "state", "running"),
        ("hz 5000", "hz 5000", "hz", "5000"),
        ("hz 5000", "hz 1000", "hz", "1000"),
        ("hz 5000\nhz 6000", "hz 5000", "hz", "5000"),
    ];
    for (mine, others, key, value) in cases {
        let (profiler, _) = fresh(Config::new());
        let recorder = profiler.open_control(1);
        recorder.write(format!("lease\n{mine}").as_bytes()).unwrap();
        profiler.open_control(2).write(others.as_bytes()).unwrap();
        drop(recorder);
        assert_eq!(control(profiler)[key], value, "{mine:?}, then {others:?}");
    }
}

/// What nobody can forget when a setting is added to the table.
#[test]
fn every_setting_of_the_table_is_shown_is_told_and_is_undone_with_its_lease() {
    let default = Choices::DEFAULT;
    let other = Choices::of_words(default.words().map(|word| if word == 0 { 1 } else { word - 1 }));
    for (before, after) in default.each(Keys::TABLE).zip(other.each(Keys::TABLE)) {
        let (profiler, _) = fresh(Config::new());
        let recorder = profiler.open_control(1);
        recorder.write(b"lease").unwrap();
        let shown = || control(profiler).get(before.fact().name()).cloned();
        let at_first = shown();
        recorder.write(after.to_string().as_bytes()).unwrap();
        assert_ne!(shown(), at_first, "{after} is not shown");
        let daemon = Daemon::claim(profiler, 3);
        assert!(told(&daemon).contains(&after.to_string()), "{after} is not repeated for a claim");
        drop(recorder);
        assert_eq!(shown(), at_first, "{after} is not undone");
        assert!(told(&daemon).contains(&before.to_string()), "{before} is not told");
    }
}

#[test]
fn what_is_set_before_the_line_lease_stays_and_the_lease_is_heard_again() {
    let (profiler, _) = fresh(Config::new());
    let recorder = profiler.open_control(1);
    recorder.write(b"hz 50\ncpus 0\nlease\nhz 60\ncpus 1").unwrap();
    assert_eq!(control(profiler)["hz"], "60");
    profiler.open_control(2).write(b"depth 9\nhz 70").unwrap();
    recorder.write(b"hz 80\nseed 5").unwrap();
    assert_eq!(control(profiler)["hz"], "80");
    drop(recorder);
    assert_eq!(["hz", "depth"].map(|key| control(profiler)[key].clone()), ["70", "9"]);
    let daemon = Daemon::claim(profiler, 3);
    assert!(told(&daemon).contains("cpus 0"));
}

#[test]
fn a_list_of_cpus_that_somebody_else_sets_stays_when_the_lease_ends() {
    let (profiler, _) = fresh(Config::new());
    let recorder = profiler.open_control(1);
    recorder.write(b"lease\ncpus 1").unwrap();
    profiler.open_control(2).write(b"cpus 0").unwrap();
    drop(recorder);
    let daemon = Daemon::claim(profiler, 3);
    assert!(told(&daemon).contains("cpus 0"));
}

#[test]
fn sampling_that_a_lease_has_stopped_goes_on_when_it_ends() {
    let (profiler, _) = fresh(Config { running: true, ..Config::new() });
    let recorder = profiler.open_control(1);
    recorder.write(b"lease\nmode overwrite\nfreeze").unwrap();
    assert_eq!(control(profiler)["state"], "frozen");
    drop(recorder);
    assert_eq!(["state", "mode"].map(|key| control(profiler)[key].clone()), ["running", "drop"]);
    // The kernel itself has no lease either.
    let recorder = profiler.open_control(1);
    recorder.write(b"lease\nstop").unwrap();
    profiler.stop().unwrap();
    drop(recorder);
    assert_eq!(control(profiler)["state"], "stopped");
}
