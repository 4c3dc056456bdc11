//! One CPU: nothing is sampled, nothing breaks, and the log says why.
#![cfg(target_arch = "x86_64")]

use redox_check::cpu_set::LogicalCpuId;
use redox_check::sync::CleanLockToken;
use redox_check::syscall::error::{Error, ENODEV};
use redox_check::syscall::usercopy::UserSliceRo;
use redox_check::{machine, profiling};

#[test]
fn one_cpu_is_told_why_nothing_happens() {
    machine::boot(1);
    profiling::ready_for_profiling();
    profiling::maybe_run_profiling_helper_forever(LogicalCpuId::new(0));
    assert!(!profiling::cpu_exists(LogicalCpuId::new(0)));
    // SAFETY: a token of the stand-in.
    let mut token = unsafe { CleanLockToken::new() };
    assert_eq!(
        profiling::control::write(1, UserSliceRo(b"1\n"), &mut token),
        Err(Error::new(ENODEV)),
        "a command that cannot have an effect does not succeed"
    );
    let log = machine::logged();
    assert!(
        log.iter()
            .any(|line| line.starts_with("warn: kprof: nothing is sampled")
                && line.contains("only one")),
        "{log:?}"
    );
}
