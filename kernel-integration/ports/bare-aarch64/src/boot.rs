//! From QEMU's entry at EL1 without MMU to `kmain(cpu)` in the upper half, on each CPU; and the exception vectors. RAM
//! and devices are mapped at their physical addresses and 0xffffff8000000000 above. Sources: Arm Architecture Reference
//! Manual, D1.3 (exceptions), D8.2 and D8.3 (translation); Power State Coordination Interface, 5.4 (CPU_ON).

use crate::machine;
use core::arch::{asm, global_asm};
use kprof::format::marker::Marker;

global_asm!(
    r#"
.section .boot, "awx", @progbits
.global start, stacks, vectors, vectors_end
start:  mrs x19, mpidr_el1;  and x19, x19, #0xff           // the CPU's number
    ldr x0, =0x04ff;  msr mair_el1, x0                     // attribute 0: ordinary memory, 1: devices
    ldr x0, =0x1b5193519;  msr tcr_el1, x0                 // 39 bits for each half, pages of 4 KiB
    adr x0, table;  msr ttbr0_el1, x0;  msr ttbr1_el1, x0
    mov x0, #0x300000;  msr cpacr_el1, x0                  // vector registers may be used
    isb;  tlbi vmalle1;  dsb sy;  isb
    mrs x0, sctlr_el1;  mov x1, #0x1005;  orr x0, x0, x1;  msr sctlr_el1, x0;  isb   // MMU and caches
    ldr x0, =stacks;  add x1, x19, #1;  mov x2, #{stack_bytes};  madd x0, x1, x2, x0;  mov sp, x0
    ldr x0, =vectors;  msr vbar_el1, x0;  isb
    mov x29, #0;  mov x30, #0;  mov x0, x19                // where the chain of frame pointers ends
    ldr x1, =kmain;  br x1
.ltorg
.align 12;  table: .quad 0x60000000000405, 0x40000701;  .skip 510 * 8           // blocks of 1 GiB: devices, RAM

// An entry stub: what kprof wants to know of the interrupted code (docs/porting.md), a frame record whose return
// address is a marker, then the registers that a Rust function may change.
.macro entry marker, function
    sub sp, sp, #48;  stp x29, x30, [sp];  str x30, [sp, #40]
    add x30, sp, #48;  str x30, [sp, #32]
    mrs x30, elr_el1;  str x30, [sp, #16];  mrs x30, spsr_el1;  str x30, [sp, #24]
    mov x30, #\marker;  str x30, [sp, #8]
    mov x29, sp
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18;  str x\n, [sp, #-16]!;  .endr
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15;  str q\n, [sp, #-16]!;  .endr
    .irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31;  str q\n, [sp, #-16]!;  .endr
    mov x0, x29;  bl \function
    .irp n, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16;  ldr q\n, [sp], #16;  .endr
    .irp n, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0;  ldr q\n, [sp], #16;  .endr
    .irp n, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0;  ldr x\n, [sp], #16;  .endr
    ldr x30, [sp, #16];  msr elr_el1, x30;  ldr x30, [sp, #24];  msr spsr_el1, x30
    ldr x29, [sp];  ldr x30, [sp, #40];  add sp, sp, #48
    eret
.endm
.section .text.entry, "ax", @progbits
.balign 2048
vectors:
    .rept 4;  .balign 128;  b on_fault;  .endr             // on the stack of EL0: not used
    .balign 128;  b on_fault                               // an exception of this kernel
    .balign 128;  b on_irq
    .balign 128;  b on_fiq
    .rept 9;  .balign 128;  b on_fault;  .endr             // SError; from EL0
on_irq:     entry {irq}, interrupted
on_fiq:     entry {fiq}, interrupted
on_fault:   entry {fault}, faulted
vectors_end:
.bss;  .balign 4096
stacks: .skip {stack_bytes} * {cpus}
"#,
    stack_bytes = const machine::STACK_BYTES, cpus = const machine::MAX_CPUS,
    irq = const Marker::Interrupt(0).encode() as i64, fiq = const Marker::Interrupt(1).encode() as i64,
    fault = const Marker::Exception(0).encode() as i64,
);

/// Starts all other CPUs at `start`, whose address the linker script sets. Returns the number of CPUs.
pub fn start_others() -> usize {
    (1..machine::MAX_CPUS).take_while(|cpu| psci(0xc400_0003, *cpu as u64, 0x4020_0000) == 0).count() + 1
}

/// Ends the machine.
pub fn power_off() -> ! {
    loop {
        psci(0x8400_0008, 0, 0);
    }
}

/// A call of QEMU's firmware. Returns 0, or an error.
fn psci(function: u64, first: u64, second: u64) -> i64 {
    let result;
    // SAFETY: the functions above either do not return, or start another CPU in `start`, which uses its own stack. A
    // call changes x0 to x17 at most (SMC Calling Convention, 2.6).
    unsafe {
        asm!("hvc #0", inlateout("x0") function => result, in("x1") first, in("x2") second, in("x3") 0,
            clobber_abi("C"));
    }
    result
}
