//! Broken chains of frame pointers, as a kernel has them where it is wrong, where a stack is overwritten, or where code
//! uses the frame pointer for something else. In: nothing. Out: time in `spin`, below a function for each kind. A
//! sample there must have `spin` and that function, and then the reason why the stack ends.

use crate::machine::BELOW;
use crate::work;
use core::arch::global_asm;
use core::hint::black_box;

// Turns of a loop with any value in the frame pointer. The unwind table says that the caller is in the link register.
#[cfg(target_arch = "riscv64")]
global_asm!(
    ".section .text.spin, \"ax\"; .global spin; .type spin, @function; spin: .cfi_startproc; mv t0, s0; mv s0, a0",
    "1: addi a1, a1, -1; bnez a1, 1b; mv s0, t0; ret; .cfi_endproc; .size spin, . - spin"
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".section .text.spin, \"ax\"; .global spin; .type spin, @function; spin: .cfi_startproc; mov x2, x29; mov x29, x0",
    "1: subs x1, x1, #1; b.ne 1b; mov x29, x2; ret; .cfi_endproc; .size spin, . - spin"
);

unsafe extern "C" {
    fn spin(frame_pointer: u64, turns: u64);
}

/// A frame record: the caller's frame pointer, a return address.
#[repr(align(16))]
struct Record([u64; 2]);

impl Record {
    /// The frame pointer of a function that has this record.
    fn frame_pointer(&self) -> u64 {
        self.0.as_ptr() as u64 + BELOW
    }

    /// Runs with this record.
    fn spin(&mut self, caller: u64, return_address: u64) {
        self.0 = [caller, return_address];
        black_box(&mut self.0);
        turn(self.frame_pointer());
    }
}

fn turn(frame_pointer: u64) {
    // SAFETY: only the profiler looks at the frame pointer, and `spin` restores it.
    unsafe { spin(frame_pointer, 20_000) };
}

/// An address of kernel code after a call.
fn code() -> u64 {
    work::round as *const () as u64 + 4
}

/// All kinds once, and the work, so that entries nest and chains cross them.
pub fn round() {
    looping();
    misaligned();
    unmapped();
    of_user_code();
    not_text();
    deep(100);
    work::interrupted_round();
}

#[inline(never)]
fn looping() {
    let mut record = Record([0; 2]);
    let itself = record.frame_pointer();
    record.spin(itself, code());
}

#[inline(never)]
fn misaligned() {
    let record = Record([0; 2]);
    turn(black_box(record.frame_pointer() + 1));
}

#[inline(never)]
fn unmapped() {
    turn(black_box(0xffff_fff0_0000_1230));
}

#[inline(never)]
fn of_user_code() {
    turn(black_box(0x8000_1000));
}

#[inline(never)]
fn not_text() {
    let mut record = Record([0; 2]);
    let above = record.frame_pointer() + 64;
    record.spin(above, 0xffff_ffff_1234_5678);
}

#[inline(never)]
fn deep(depth: u64) {
    if depth > 0 {
        deep(depth - 1);
        black_box(depth);
    } else {
        work::short();
    }
}
