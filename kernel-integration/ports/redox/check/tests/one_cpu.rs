//! One CPU: nothing is sampled, nothing breaks, and the log says why.
#![cfg(target_arch = "x86_64")]

use redox_check::cpu_set::LogicalCpuId;
use redox_check::{machine, profiling};

#[test]
fn one_cpu_is_told_why_nothing_happens() {
    machine::power_on(1);
    // SAFETY: in the order of the kernel's start.
    unsafe { profiling::allocate(1) };
    // SAFETY: as above.
    unsafe { profiling::init() };
    profiling::ready_for_profiling();
    profiling::maybe_run_profiling_helper_forever(LogicalCpuId::new(0));
    assert!(!profiling::cpu_exists(LogicalCpuId::new(0)));
    let log = machine::logged();
    assert!(
        log.iter()
            .any(|line| line.starts_with("warn: kprof: nothing is sampled")
                && line.contains("only one")),
        "{log:?}"
    );
}
