//! A module of the test kernel: code in a separate image, which is loaded from the initrd at the first write to
//! `/kernel/module`. It has no writable data, and calls no function of the kernel.
#![no_std]
#![no_main]

use core::hint::black_box;

/// The entry that the kernel calls. Does `rounds` rounds of work and returns their result.
#[unsafe(no_mangle)]
extern "C" fn module_main(rounds: u64) -> u64 {
    (0..rounds).fold(0, |sum, round| sum ^ module_mix(black_box(round)))
}

/// Half of the work is done here.
#[inline(never)]
fn module_mix(round: u64) -> u64 {
    let mut state = round;
    for step in 0..2000 {
        state = black_box(state.rotate_left(7) ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    module_stir(state)
}

/// The other half.
#[inline(never)]
fn module_stir(mut state: u64) -> u64 {
    for step in 0..2000 {
        state = black_box(state ^ (state >> 31)).wrapping_add(step);
    }
    state
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
