//! Random registers, which an NMI reports instead of the interrupted ones.
//!
//! In: a closure that orders an NMI. Out: nothing. RIP is an instruction at which the unwinder looks for the innermost
//! caller, an instruction of an entry stub, any address of the kernel, or an address without code. RSP and RBP point
//! into a random stack (`dice.rs`), or have other values.

use core::arch::global_asm;
use core::hint::black_box;

use super::dice::{self, one_of};
use crate::cpu::alarm;
use crate::cpu::entry::{self, TrapFrame};
use crate::memory::{module, paging};
use crate::random;

global_asm!(
    r#"
.text
// The instructions at which the unwinder looks for the innermost caller, in all their forms, and calls of them. None of
// this code runs.
.balign 16
.type frameless_forms, @function
frameless_forms:
    push rbp
    .byte 0x48, 0x89, 0xe5      // mov rbp, rsp
    nop
    pop rbp
    .byte 0xeb, 0x00            // jmp
    push rbp
    .byte 0x48, 0x8b, 0xec      // mov rbp, rsp
    pop rbp
    .byte 0xe9, 0, 0, 0, 0      // jmp
    endbr64
    push rbp
    .byte 0x48, 0x8b, 0xec
    pop rbp
    jmp rax
    pop rbp
    jmp r8
    pop rbp
    call rax
    pop rbp
    call r8
    pop rbp
    hlt
    ret
    ret 8
    .byte 0xf3, 0xc3            // ret
    nop
    nop
frameless_moves:
    nop
    nop
    nop
    push rbp
    nop
    sub rsp, 8
    nop
    nop
    sub rsp, 4096
    .byte 0xf3, 0xc3
    nop
    add rsp, 8
    lea rsp, [rsp + 8]
    lea rsp, [rsp + 4096]
    nop
    .skip 300, 0x90
frameless_end:
    call frameless_forms
frameless_calls:
    call frameless_moves
    call frameless_moves + 1
    call frameless_moves + 5
    call frameless_moves + 9
    call frameless_moves + 18
    call frameless_moves + 30
    call frameless_forms + 10
    .byte 0xe8, 0, 0, 0, 0x10   // outside of the kernel
    .byte 0xe8
    .long 0x20000000            // in the module's part of the address space
    .size frameless_forms, . - frameless_forms
.section .rodata
.balign 8
frameless_places:
    .quad frameless_forms, frameless_moves, frameless_end, frameless_calls
.text
"#
);

unsafe extern "C" {
    static frameless_places: [u64; 4];
}

/// Addresses in an entry stub are chosen from this many bytes at its beginning.
const STUB_BYTES: u64 = 32;

/// A random address for RIP, and whether it is in an entry stub. If it is, RSP must be valid.
fn instruction() -> (u64, bool) {
    // SAFETY: constant data of the assembly above.
    let [forms, moves, end, _] = unsafe { frameless_places };
    let (start, text_end) = paging::text_range();
    match random::next() % 8 {
        0 => (start + random::next() % (text_end - start - 8), false),
        1 => (one_of(&[0, 7, text_end - 3, module::text().end - 3]), false),
        2..=3 => (entry::stub(one_of(&[random::next() as u8, 3, 8, 13, 14])) + random::next() % STUB_BYTES, true),
        4 => (entry::any_instruction(random::next()), true),
        5 => (moves + random::next() % 300, false),
        _ => (forms + random::next() % (end - forms), false),
    }
}

/// Number of call instructions in the assembly above.
const CALLS: u64 = 10;

/// The return address after one of these calls.
fn caller(call: u64) -> u64 {
    // SAFETY: constant data of the assembly above.
    let [.., calls] = unsafe { frameless_places };
    calls + 5 * (call % CALLS)
}

/// Makes a random stack and random registers. `armed` orders the NMI. Interrupts must be off.
#[inline(never)]
pub fn throw(armed: impl FnOnce()) {
    let (rip, is_stub) = instruction();
    let is_user = !is_stub && random::next().is_multiple_of(4);
    dice::with_stack(
        || caller(random::next()),
        |base| {
            let place = base + 8 * (1 + random::next() % 8);
            let wild = [place + 4, 0, 0x10, u64::MAX - 7, 0xdead_beef_0000_0000, 0x40_0000, 0x7fff_ffff_ffe8];
            let rsp = if is_stub { place } else { one_of(&[place, place, place, dice::other(), one_of(&wild)]) };
            let rbp = one_of(&[rsp, rsp, rsp + 16, rsp + 24, dice::word(base), one_of(&wild)]);
            let interrupted = TrapFrame {
                rip,
                cs: if is_user { 0x2b } else { 0x08 },
                rflags: one_of(&[0x202, 0x2]),
                rsp,
                rbp,
                rcx: one_of(&[0x40_0000, 0]),
                ..TrapFrame::default()
            };
            alarm::pretend(&interrupted, || dice::spin_here(armed));
        },
    );
}

/// How many cases [`frameless`] has.
pub fn frameless_cases() -> u64 {
    // SAFETY: constant data of the assembly above.
    let [forms, moves, ..] = unsafe { frameless_places };
    (moves + 64 - forms) * CALLS * 2
}

/// Case number `number`: an instruction at which the unwinder looks for the innermost caller, with one of the callers
/// in the lowest word of the stack or, after a frame pointer, in the second one.
#[inline(never)]
pub fn frameless(number: u64, armed: impl FnOnce()) {
    // SAFETY: constant data of the assembly above.
    let [forms, ..] = unsafe { frameless_places };
    let (is_pushed, caller, rip) = (number % 2 == 1, caller(number / 2), forms + number / 2 / CALLS);
    let mut stack = [0; 4];
    let rsp = black_box(&mut stack).as_ptr() as u64;
    let rbp = if is_pushed { rsp } else { rsp + 16 };
    stack[..2].copy_from_slice(&if is_pushed { [rbp, caller] } else { [caller, 0] });
    let interrupted =
        TrapFrame { rip, cs: 0x08, rsp: black_box(&mut stack).as_ptr() as u64, rbp, ..TrapFrame::default() };
    alarm::pretend(&interrupted, || dice::spin_here(armed));
    black_box(&mut stack);
}
