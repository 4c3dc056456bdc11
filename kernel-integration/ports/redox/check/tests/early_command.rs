//! A command that is written to ctl before the sampler CPU has calibrated its clocks, as by a program that the first
//! process starts: it waits for the set-up, and has its effect.
#![cfg(target_arch = "x86_64")]

use std::sync::atomic::Ordering;

use redox_check::context::SLEEPS;
use redox_check::machine;
use redox_check::profiling::{self, control};
use redox_check::sync::CleanLockToken;
use redox_check::syscall::usercopy::{UserSliceRo, UserSliceWo};

#[test]
fn a_start_before_the_set_up_starts_sampling() {
    machine::boot(2);
    machine::start_sampler(1);
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
