//! The kernel's environment: with `KPROF_START=1` sampling starts as soon as kprof is set up, and the log says so. A
//! `KPROF_HZ` that cannot be used is reported.
#![cfg(target_arch = "x86_64")]

use redox_check::startup::ENV;
use redox_check::{machine, profiling};

#[test]
fn sampling_starts_without_a_command_and_a_rate_that_cannot_be_used_is_reported() {
    ENV.set("KPROF_HZ=30000\nKPROF_START=1").unwrap();
    machine::boot(2);
    machine::start_sampler(1);
    profiling::ready_for_profiling();
    let line = machine::wait_for("Hz, TSC ");
    assert!(line.ends_with("; sampling starts now"), "{line}");
    assert!(line.contains("kprof: 1000 Hz, "), "{line}");
    let refused = "error: kprof: KPROF_HZ=30000: it must be a number from 1 to 20000; 1000 is used";
    assert!(
        machine::logged().iter().any(|line| line == refused),
        "{:#?}",
        machine::logged()
    );
    machine::until("ticks are sent", || machine::counter(0, "sent") > 0);
}
