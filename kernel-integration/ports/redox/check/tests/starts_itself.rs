//! `KPROF_START=1` in the kernel's environment: sampling starts as soon as kprof is set up, and the log says so.
#![cfg(target_arch = "x86_64")]

use redox_check::startup::ENV;
use redox_check::{machine, profiling};

#[test]
fn sampling_starts_without_a_command_and_the_log_asks_for_none() {
    ENV.set("KPROF_START=1").unwrap();
    machine::boot(2);
    machine::start_sampler(1);
    profiling::ready_for_profiling();
    let line = machine::wait_for("Hz, TSC ");
    assert!(line.ends_with("; sampling starts now"), "{line}");
    machine::until("ticks are sent", || machine::counter(0, "sent") > 0);
}
