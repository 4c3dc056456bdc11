//! From QEMU's entry at EL1 without MMU to `kmain(cpu)` in the upper half, on each CPU; and the exception vectors. RAM
//! and devices are mapped at their physical addresses and 0xffffff8000000000 above. Sources: Arm Architecture Reference
//! Manual, D1.3 (exceptions), D8.2 and D8.3 (translation); Power State Coordination Interface, 5.4 (CPU_ON).

use crate::memory;
use crate::profiling::Saved;
use core::arch::{asm, global_asm};
use kprof::format::marker::Marker;

global_asm!(
    r#"
.section .boot, "awx", @progbits
.global start, stacks, user_stacks, stubs, stubs_end, enter_user, leave_user
start:  mrs x19, mpidr_el1;  and x19, x19, #0xff           // the CPU's number
    ldr x0, =0x04ff;  msr mair_el1, x0                     // attribute 0: ordinary memory, 1: devices
    ldr x0, =0x1b5193519;  msr tcr_el1, x0                 // 39 bits for each half, pages of 4 KiB
    adr x0, table;  msr ttbr0_el1, x0;  msr ttbr1_el1, x0
    mov x0, #0x300000;  msr cpacr_el1, x0                  // vector registers may be used
    msr pmccfiltr_el0, xzr;  mov x0, #0x80000000;  msr pmcntenset_el0, x0;  mov x0, #0x41;  msr pmcr_el0, x0  // cycles
    isb;  tlbi vmalle1;  dsb sy;  isb
    mrs x0, sctlr_el1;  mov x1, #0x1005;  orr x0, x0, x1;  msr sctlr_el1, x0;  isb   // MMU and caches
    ldr x0, =stacks;  add x1, x19, #1;  mov x2, #{stack_bytes};  madd x0, x1, x2, x0;  mov sp, x0
    ldr x0, =stubs;  msr vbar_el1, x0;  isb
    mov x29, #0;  mov x30, #0;  mov x0, x19                // where the chain of frame pointers ends
    ldr x1, =kmain;  br x1
.ltorg
.align 12;  table: .quad 0x60000000000405, 0x40000701;  .skip 510 * 8           // blocks of 1 GiB: devices, RAM
user_table: .quad 0, 0x40000741;  .skip 510 * 8                                 // RAM for user mode

// An entry stub: what kprof wants to know of the interrupted code (docs/porting.md), a frame record whose return
// address is a marker, then the registers that a Rust function may change.
.macro entry marker, function, is_user
    sub sp, sp, #48;  stp x29, x30, [sp];  str x30, [sp, #40]
    .if \is_user;  mrs x30, sp_el0;  .else;  add x30, sp, #48;  .endif;  str x30, [sp, #32]
    mrs x30, elr_el1;  str x30, [sp, #16];  mrs x30, spsr_el1;  str x30, [sp, #24]
    mov x30, #\marker;  str x30, [sp, #8]
    mov x29, sp
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18;  str x\n, [sp, #-16]!;  .endr
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15;  str q\n, [sp, #-16]!;  .endr
    .irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31;  str q\n, [sp, #-16]!;  .endr
    mov x1, x0;  mov x0, x29;  .ifnc \marker, {fiq};  msr daifclr, #1;  .endif          // FIQs are the NMIs
    bl \function;  msr daifset, #1
    .irp n, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16;  ldr q\n, [sp], #16;  .endr
    .irp n, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0;  ldr q\n, [sp], #16;  .endr
    .irp n, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0;  ldr x\n, [sp], #16;  .endr
    ldr x30, [sp, #16];  msr elr_el1, x30;  ldr x30, [sp, #24];  msr spsr_el1, x30
    ldr x29, [sp];  ldr x30, [sp, #40];  add sp, sp, #48
    eret
.endm
.section .text.entry, "ax", @progbits
.balign 2048
stubs:
    .rept 4;  .balign 128;  b sync;  .endr                 // on the stack of EL0: not used
    .balign 128;  b sync;  .balign 128;  b irq;  .balign 128;  b fiq;  .balign 128;  b sync     // this kernel
    .balign 128;  b user_sync;  .balign 128;  b user_irq;  .balign 128;  b user_fiq             // EL0
    .rept 5;  .balign 128;  b sync;  .endr                 // SError of EL0; its 32-bit mode: not used
sync:       entry {exception}, on_exception, 0
irq:        entry {irq}, on_irq, 0
fiq:        entry {fiq}, on_fiq, 0
user_sync:  entry {call}, on_user_exception, 1
user_irq:   entry {irq}, on_irq, 1
user_fiq:   entry {fiq}, on_fiq, 1
.macro preserved instruction
    \instruction x19, x20, [sp];  \instruction x21, x22, [sp, #16];  \instruction x23, x24, [sp, #32]
    \instruction x25, x26, [sp, #48];  \instruction x27, x28, [sp, #64];  \instruction x29, x30, [sp, #80]
.endm
// To user code at x0 with the stack x1; `leave_user` returns from here.
enter_user:
    sub sp, sp, #96;  preserved stp;  msr daifset, #3;  ldr x2, =user_table;  msr ttbr0_el1, x2
    isb;  tlbi vmalle1;  dsb sy;  isb;  msr elr_el1, x0;  msr spsr_el1, xzr;  msr sp_el0, x1;  eret
leave_user:                                                // x0: what an entry from user mode has saved
    add sp, x0, #48;  preserved ldp;  add sp, sp, #96;  msr daifclr, #3;  ret
stubs_end:
.ltorg
.bss;  .balign 4096
stacks:      .skip {stack_bytes} * {cpus}
user_stacks: .skip {user_bytes} * {cpus}
"#,
    stack_bytes = const memory::STACK_BYTES, user_bytes = const memory::USER_STACK_BYTES,
    cpus = const memory::MAX_CPUS,
    irq = const Marker::Interrupt(1).encode() as i64, fiq = const Marker::Interrupt(2).encode() as i64,
    exception = const Marker::Exception(0).encode() as i64, call = const Marker::Syscall.encode() as i64,
);

/// The device tree: QEMU puts it at the beginning of RAM for a kernel that is an ELF file.
pub fn device_tree() -> *const u32 {
    0xffff_ff80_4000_0000 as *const u32
}

/// Starts all other CPUs at `start`, whose address the linker script sets. Returns the number of CPUs.
pub fn start_others() -> usize {
    (1..memory::MAX_CPUS).take_while(|cpu| psci(0xc400_0003, *cpu as u64, 0x4020_0000) == 0).count() + 1
}

unsafe extern "C" {
    /// Continues in user mode, until [`leave_user`] returns from here.
    pub fn enter_user(program: u64, stack: u64);
    /// Ends user mode, in an entry from there.
    pub fn leave_user(saved: &Saved) -> !;
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
