//! What the plugin takes for a reset of the machine.

use crate::plugin::reset::{BOOT, MAX_CPUS};

#[test]
fn a_reset_is_seen_once_and_a_loop_or_another_vcpu_is_none() {
    assert!(BOOT.is_first(0xffff_fff0) && !BOOT.is_first(0x1000) && BOOT.is_first(0xffff_fff0));
    let translate = || {
        (0..64).for_each(|block| {
            BOOT.is_first(block);
        })
    };
    assert!(!BOOT.executes_first(0) && !BOOT.executes_first(0), "a loop");
    translate();
    assert!(!BOOT.executes_first(1), "the second vCPU begins");
    assert!(BOOT.executes_first(0) && !BOOT.executes_first(1) && !BOOT.executes_first(0));
    translate();
    assert!(BOOT.executes_first(1) && !BOOT.executes_first(0));
    assert!(!BOOT.executes_first(MAX_CPUS));
}
