//! The keyboard starts and stops nothing, unless the kernel's environment asks for it.
#![cfg(target_arch = "x86_64")]

use std::sync::atomic::Ordering;

use redox_check::profiling::{sampler::IS_PROFILING, serio_command};
use redox_check::startup::ENV;

#[test]
fn keys_toggle_only_if_asked_for() {
    serio_command(0, 30);
    assert!(!IS_PROFILING.load(Ordering::SeqCst), "an `a` is an `a`");
    ENV.set("OTHER=1\nKPROF_KEYS=1\n").unwrap();
    serio_command(1, 30);
    serio_command(0, 31);
    assert!(
        !IS_PROFILING.load(Ordering::SeqCst),
        "another key, the mouse"
    );
    serio_command(0, 30);
    assert!(IS_PROFILING.load(Ordering::SeqCst));
    serio_command(0, 48);
    assert!(!IS_PROFILING.load(Ordering::SeqCst));
}
