//! From QEMU's entry in machine mode to `kmain(cpu)` in supervisor mode and the upper half, on each CPU; what stays in
//! machine mode, which makes NMIs; and the entry stubs. RAM and devices are mapped at their physical addresses and
//! 0xffffffc000000000 above. Sources: the RISC-V Instruction Set Manual, volume II: 3.1 (machine mode), 4.1 (supervisor
//! mode), 4.4 (Sv39); RISC-V ELF psABI. No register of floating point is ever used: mstatus.FS stays off.
//!
//! A tick is a machine-mode software interrupt. Supervisor mode cannot mask it, so it arrives with interrupts off too.
//! Machine mode saves what was interrupted at the top of the CPU's NMI stack and continues in supervisor mode at
//! `on_nmi`, with interrupts of both modes off. `ecall` ends that and gives every register back.

use crate::profiling::Saved;
use crate::{machine, memory};
use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kprof::format::marker::Marker;

/// The physical address of the device tree.
#[unsafe(no_mangle)]
static DEVICE_TREE: AtomicU64 = AtomicU64::new(0);

global_asm!(
    r#"
.section .boot, "awx", @progbits
.global start, stacks, nmi_stacks, user_stacks, stubs, stubs_end, enter_user, leave_user
start:  li t0, -1;  csrw pmpaddr0, t0;  li t0, 0x1f;  csrw pmpcfg0, t0          // lower modes may access all memory
    li t0, ~(1 << 9);  csrw medeleg, t0;  li t0, 0x2222;  csrw mideleg, t0      // `ecall` of the supervisor comes here
    li t0, 7;  csrw mcounteren, t0;  csrwi mcountinhibit, 0                     // the cycle counter, and time
    li t0, 1 << 63;  csrw 0x30a, t0                                             // menvcfg: the timer stimecmp
    lla t0, vectors;  ori t0, t0, 1;  csrw mtvec, t0
    ld t0, frames;  addi t1, a0, 1;  slli t1, t1, {nmi_shift};  add t0, t0, t1;  csrw mscratch, t0
    lla t0, table;  srli t0, t0, 12;  li t1, 8 << 60;  or t0, t0, t1;  csrw satp, t0;  sfence.vma
    ld t0, upper;  csrw mepc, t0;  li t0, 1 << 11;  csrw mstatus, t0;  csrwi mie, 8;  mret
.balign 8;  frames: .quad nmi_stacks - 0xffffffc000000000 - 112
upper:  .quad supervisor
nmi:    .quad on_nmi
.balign 4096
table:  .quad 0, 0, 0x200000df;  .skip 253 * 8;  .quad 0xcf, 0, 0x200000cf;  .skip 253 * 8 // RAM for user mode; all

// Machine mode. mscratch is the physical address of the CPU's frame, whose first words are those of an entry stub.
.option push;  .option norvc;  .balign 256
vectors: j back;  nop;  nop;  j interrupt                                       // an exception; interrupt 3
.option pop
interrupt:
    csrrw sp, mscratch, sp;  sd t0, 48(sp);  sd t1, 56(sp)
    csrr t0, mhartid;  slli t0, t0, 2;  li t1, 0x2000000;  add t0, t0, t1;  sw zero, (t0)  // taken
.if {is_nmi}
    sd s0, 0(sp);  li t0, {nmi};  sd t0, 8(sp);  csrr t0, mepc;  sd t0, 16(sp);  sd ra, 40(sp)
    csrr t0, mscratch;  sd t0, 32(sp);  csrr t0, mstatus;  sd t0, 64(sp)
    srli t1, t0, 3;  andi t1, t1, 0x100;  andi t0, t0, 2;  slli t0, t0, 4;  or t0, t0, t1;  sd t0, 24(sp) // as sstatus
    csrr t0, sepc;  sd t0, 72(sp);  csrr t0, scause;  sd t0, 80(sp);  csrr t0, stval;  sd t0, 88(sp)
    ld t0, nmi;  csrw mepc, t0;  csrci mie, 8;  csrci mstatus, 2;  li t0, 1 << 12;  csrc mstatus, t0
    li t0, 1 << 11;  csrs mstatus, t0                                           // supervisor mode, interrupts off
    csrw mscratch, sp;  li t0, 0xffffffc000000000;  add sp, sp, t0;  addi s0, sp, 16;  mret
.else
    csrsi mip, 2;  ld t0, 48(sp);  ld t1, 56(sp);  csrrw sp, mscratch, sp;  mret // the supervisor's, if it allows it
.endif
back: // ends an NMI; without one it is for `counter.rs`
    csrrw sp, mscratch, sp;  sd t0, 96(sp);  csrr t0, mie;  andi t0, t0, 8;  bnez t0, set_counter
    ld t0, 16(sp);  csrw mepc, t0;  ld t0, 64(sp);  csrw mstatus, t0;  ld t0, 72(sp);  csrw sepc, t0
    ld t0, 80(sp);  csrw scause, t0;  ld t0, 88(sp);  csrw stval, t0;  csrsi mie, 8;  ld s0, 0(sp)
    ld ra, 40(sp);  ld t0, 48(sp);  ld t1, 56(sp);  csrw mscratch, sp;  ld sp, 32(sp);  mret

.section .text.entry, "ax", @progbits
supervisor:
    lla t0, stubs;  csrw stvec, t0;  la t0, DEVICE_TREE;  sd a1, (t0)
    la sp, stacks;  addi t0, a0, 1;  slli t0, t0, {stack_shift};  add sp, sp, t0
    li s0, 0;  li ra, 0;  tail kmain                       // where the chain of frame pointers ends

// What a Rust function may change, besides ra.
.macro registers instruction
    \instruction a0, 0(sp);  \instruction a1, 8(sp);  \instruction a2, 16(sp);  \instruction a3, 24(sp)
    \instruction a4, 32(sp);  \instruction a5, 40(sp);  \instruction a6, 48(sp);  \instruction a7, 56(sp)
    \instruction t1, 64(sp);  \instruction t2, 72(sp);  \instruction t3, 80(sp);  \instruction t4, 88(sp)
    \instruction t5, 96(sp);  \instruction t6, 104(sp)
.endm
// The stub of every entry: what kprof wants to know of the interrupted code (docs/porting.md), below a frame record
// whose return address is a marker. sscratch is 0 in the kernel, and the kernel's stack in user mode.
.balign 4
stubs:
    csrrw sp, sscratch, sp;  bnez sp, 1f;  csrr sp, sscratch
1:  addi sp, sp, -64;  sd s0, 0(sp);  sd ra, 40(sp);  sd t0, 48(sp);  csrrw s0, sscratch, zero;  sd s0, 32(sp)
    csrr t0, sepc;  sd t0, 16(sp);  csrr t0, sstatus;  sd t0, 24(sp);  addi s0, sp, 16
    addi sp, sp, -112;  registers sd;  csrr a1, scause
    li t0, {irq};  bltz a1, 2f;  li t0, {call};  addi t1, a1, -8;  beqz t1, 2f;  li t0, {fault};  add t0, t0, a1
2:  sd t0, -8(s0);  mv a2, a0;  addi a0, sp, 112;  call entered
    registers ld;  addi sp, sp, 112;  ld t0, 16(sp);  csrw sepc, t0;  ld t0, 24(sp);  csrw sstatus, t0
    andi t0, t0, 0x100;  bnez t0, 3f;  addi t0, sp, 64;  csrw sscratch, t0
3:  ld s0, 0(sp);  ld ra, 40(sp);  ld t0, 48(sp);  ld sp, 32(sp);  sret
// On the NMI stack; machine mode has saved the rest.
on_nmi:
    addi sp, sp, -112;  registers sd;  addi a0, sp, 112;  call on_nmi_stack;  registers ld;  ecall
.macro preserved instruction
    \instruction ra, 0(sp);  \instruction s0, 8(sp);  \instruction s1, 16(sp);  \instruction s2, 24(sp)
    \instruction s3, 32(sp);  \instruction s4, 40(sp);  \instruction s5, 48(sp);  \instruction s6, 56(sp)
    \instruction s7, 64(sp);  \instruction s8, 72(sp);  \instruction s9, 80(sp);  \instruction s10, 88(sp)
    \instruction s11, 96(sp)
.endm
// To user code at a0 with the stack a1; `leave_user` returns from here.
enter_user:
    addi sp, sp, -112;  preserved sd;  csrci sstatus, 2;  csrw sscratch, sp;  csrw sepc, a0
    li t0, 1 << 8;  csrc sstatus, t0;  li t0, 1 << 5;  csrs sstatus, t0;  mv sp, a1;  sret
leave_user:                                                // a0: what an entry from user mode has saved
    addi sp, a0, 64;  preserved ld;  addi sp, sp, 112;  csrsi sstatus, 2;  ret
stubs_end:
.bss;  .balign 4096
stacks:     .skip {cpus} << {stack_shift}
nmi_stacks: .skip {cpus} << {nmi_shift}
user_stacks: .skip {cpus} << {user_shift}
"#,
    stack_shift = const memory::STACK_BYTES.ilog2(), nmi_shift = const machine::NMI_STACK_BYTES.ilog2(),
    user_shift = const memory::USER_STACK_BYTES.ilog2(),
    cpus = const memory::MAX_CPUS, is_nmi = const crate::profiling::IS_NMI as u64,
    nmi = const Marker::Interrupt(3).encode() as i64, irq = const Marker::Interrupt(1).encode() as i64,
    call = const Marker::Syscall.encode() as i64, fault = const Marker::Exception(0).encode() as i64,
);

/// The device tree. (QEMU passes its address to each CPU.)
pub fn device_tree() -> *const u32 {
    (DEVICE_TREE.load(Relaxed) + 0xffff_ffc0_0000_0000) as *const u32
}

/// The number of CPUs, all of which QEMU has started: the nodes `cpu@` of the device tree (Devicetree Specification,
/// 5.4.1: a node begins with the word 1 and its name).
pub fn start_others() -> usize {
    let nodes = memory::device_tree().windows(8).filter(|at| *at == b"\0\0\0\x01cpu@");
    nodes.count().min(memory::MAX_CPUS)
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
        machine::set(0xffff_ffc0_0010_0000, 0x5555);
    }
}
