//! No MADT (or no feature `multi_core`): `allocate` is never called. The kernel boots, and the log says why nothing is
//! sampled.
#![cfg(target_arch = "x86_64")]

use redox_check::arch::interrupt::InterruptStack;
use redox_check::cpu_set::LogicalCpuId;
use redox_check::{machine, profiling};

#[test]
fn without_a_madt_nothing_panics() {
    machine::power_on(1);
    // SAFETY: in the order of the kernel's start.
    unsafe { profiling::init() };
    profiling::ready_for_profiling();
    profiling::maybe_run_profiling_helper_forever(LogicalCpuId::new(0));
    // An NMI from a watchdog or a button.
    // SAFETY: plays the NMI entry.
    unsafe { profiling::nmi_handler(&InterruptStack::default()) };
    let log = machine::logged();
    assert!(log.iter().any(|line| line.contains("no MADT")), "{log:?}");
}
