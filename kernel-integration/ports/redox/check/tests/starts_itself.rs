//! `KPROF_START=1` in the kernel's environment: sampling starts as soon as kprof is set up, and the log says so.
#![cfg(target_arch = "x86_64")]

use redox_check::cpu_set::LogicalCpuId;
use redox_check::startup::ENV;
use redox_check::{machine, profiling};

#[test]
fn sampling_starts_without_a_command_and_the_log_asks_for_none() {
    ENV.set("KPROF_START=1").unwrap();
    machine::power_on(2);
    // SAFETY: in the order of the kernel's start.
    unsafe { profiling::allocate(2) };
    // SAFETY: as above.
    (0..2).for_each(|cpu| machine::on(cpu, || unsafe { profiling::init() }));
    std::thread::spawn(|| {
        machine::on(1, || {
            profiling::maybe_run_profiling_helper_forever(LogicalCpuId::new(1))
        })
    });
    profiling::ready_for_profiling();
    let line = machine::wait_for("Hz, TSC ");
    assert!(line.ends_with("; sampling starts now"), "{line}");
    machine::until("ticks are sent", || machine::counter(0, "sent") > 0);
}
