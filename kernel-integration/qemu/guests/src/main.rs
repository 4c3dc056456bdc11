//! A kernel whose shares are known, for QEMU's machines `virt` of aarch64 and riscv64. It is sampled from outside.
//!
//! In: nothing. Out: dots on the serial port, then it powers off. In each round [`half`], [`third`] and [`fifth`] take
//! 50, 30 and 20 of 100 instructions, and [`handler`] a few, in an exception. Of what they take, [`turn`] has most: it
//! has no frame, so its callers are found only by its code. [`third`] calls itself. Never panics: no function of `core`
//! is called, because it may be compiled without frame pointers.
#![no_std]
#![no_main]

use core::arch::global_asm;
use core::hint::black_box;

#[cfg(target_arch = "aarch64")]
global_asm!(include_str!("aarch64.s"));
#[cfg(target_arch = "riscv64")]
global_asm!(include_str!("riscv64.s"), options(raw));

/// The serial port.
#[cfg(target_arch = "aarch64")]
const SERIAL: *mut u8 = 0xffff_ff80_0900_0000 as *mut u8;
#[cfg(target_arch = "riscv64")]
const SERIAL: *mut u8 = 0xffff_ffc0_1000_0000 as *mut u8;

const ROUNDS: u64 = 400;
const PERCENT: u64 = 800;

unsafe extern "C" {
    safe fn turn(times: u64);
    safe fn trap();
    safe fn power_off() -> !;
}

/// The assembly comes here, on the kernel's stack.
#[unsafe(no_mangle)]
extern "C" fn kmain() -> ! {
    for round in 0..ROUNDS {
        half();
        third(3);
        fifth();
        trap();
        if round % 16 == 0 {
            // SAFETY: the address is that of the machine's serial port, which takes a byte at any time.
            unsafe { SERIAL.write_volatile(b'.') };
        }
    }
    power_off()
}

#[inline(never)]
fn half() {
    turn(50 * PERCENT);
    black_box(());
}

#[inline(never)]
fn third(times: u64) {
    if black_box(times) > 0 {
        turn(10 * PERCENT);
        third(times - 1);
        black_box(());
    }
}

#[inline(never)]
fn fifth() {
    turn(20 * PERCENT);
    // If the call were the last thing here, the compiler would make a jump of it.
    black_box(());
}

/// What the stub of exceptions calls.
#[unsafe(no_mangle)]
extern "C" fn handler() {
    turn(PERCENT);
    black_box(());
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    power_off()
}
