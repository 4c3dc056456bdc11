//! Tests of what a write to ctl leaves behind.
//!
//! In: commands through a control file of a profiler that was set up. Out: the shared state. Runs on a host.

use super::*;
use crate::arch::timestamp;
use crate::config::Config;
use crate::quiet;

fn set_up(config: Config) -> &'static Shared {
    &quiet::instance(config).shared
}

#[test]
fn a_wait_ends_after_its_milliseconds_by_the_clock_of_the_kernel() {
    const HZ: u64 = 1_000_000;
    let shared = set_up(Config { tsc_hz: HZ, can_wait: true, ..Config::new() });
    let file = OpenControl::open(shared, 1);
    let before = timestamp::read();
    file.write(b"wait 2000").unwrap();
    let (until, after) = (shared.waited_until.load(Ordering::Relaxed), timestamp::read());
    assert!((before + 2 * HZ..=after + 2 * HZ).contains(&until), "{before} {until} {after}");
    file.write(b"wait 1").unwrap();
    assert_eq!(shared.waited_until.load(Ordering::Relaxed), until, "who waits longer is not forgotten");
}

#[test]
fn without_an_extension_its_commands_are_refused_and_settings_are_not() {
    let file = OpenControl::open(set_up(Config { tsc_hz: 1_000_000_000, ..Config::new() }), 1);
    for command in ["event * count", "flush", "lockup 10", "probe 1000 4", "unprobe 1000"] {
        let refused = file.write(format!("hz 5\n{command}").as_bytes()).unwrap_err();
        assert_eq!(refused.line, 2, "{command}");
        assert!(refused.to_string().contains("no extension"), "{refused}");
    }
    let mut status = String::new();
    file.read(&mut status).unwrap();
    assert!(status.contains("\nhz 1000\n"), "{status}");
    assert_eq!(file.write(b"hz 5\nlockup off").map(|done| done.wants_times), Ok(false));
}

#[test]
fn the_first_command_that_is_refused_is_named_whoever_refuses_it() {
    let file = OpenControl::open(set_up(Config { tsc_hz: 1_000_000_000, ..Config::new() }), 1);
    let line = |write: &str| file.write(write.as_bytes()).unwrap_err().line;
    assert_eq!([line("hz 5\nflush\nfreeze"), line("hz 5\n\nfreeze\nflush")], [2, 3]);
}
