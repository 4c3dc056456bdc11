//! A command that is written to ctl before the sampler CPU has calibrated its clocks, as by a program that the first
//! process starts: it waits for the set-up, and has its effect.
#![cfg(target_arch = "x86_64")]

use std::sync::atomic::Ordering;

use redox_check::context::SLEEPS;
use redox_check::cpu_set::LogicalCpuId;
use redox_check::machine;
use redox_check::profiling::{self, control};
use redox_check::sync::CleanLockToken;
use redox_check::syscall::usercopy::{UserSliceRo, UserSliceWo};

#[test]
fn a_start_before_the_set_up_starts_sampling() {
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
    // The sampler waits for CPU 0, which is ready as soon as the writer sleeps.
    std::thread::spawn(|| {
        machine::until("the writer sleeps", || SLEEPS.load(Ordering::SeqCst) > 0);
        profiling::ready_for_profiling();
    });
    // SAFETY: a token of the stand-in.
    let mut token = unsafe { CleanLockToken::new() };
    assert_eq!(
        control::write(1, UserSliceRo(b"start\n"), &mut token),
        Ok(6)
    );
    assert!(
        SLEEPS.load(Ordering::SeqCst) > 0,
        "the write waits for the set-up"
    );
    let mut text = [0; 4096];
    let bytes = control::read(1, UserSliceWo::of(&mut text), 0, &mut token).unwrap();
    let state = String::from_utf8_lossy(&text[..bytes]);
    assert!(state.contains("\nstate running\n"), "{state}");
}
