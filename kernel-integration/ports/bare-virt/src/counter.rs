//! riscv64: ticks by an event that is not time. A counter of the processor counts loads that miss the data TLB, and
//! interrupts when it overflows (Sscofpmf). In: the interrupt. Out: samples, and after how many misses the next
//! interrupt comes. Code that masks interrupts has no samples. Runs in: the interrupt, with interrupts masked.
//!
//! Only machine mode can set a counter. Here it does so for a supervisor's `ecall`; firmware offers the same by its PMU
//! extension (RISC-V SBI specification, chapter 11: start a counter with an initial value). Sources: the RISC-V
//! Instruction Set Manual, volume II, 3.1.10 (counters); Sscofpmf; for the number of the event chapter 11 of SBI, too.

use crate::profiling::{PROFILER, Saved};
use core::arch::{asm, global_asm};
use kprof::{Interrupted, NmiToken};

/// What `mhpmevent3` gets: data TLB, read, miss; not in machine mode (bit 62). The overflow bit (63) is 0.
const EVENT: u64 = 1 << 62 | 0x1_0019;
/// The interrupt's number.
pub const INTERRUPT: i64 = 13;

global_asm!(
    r#"
.section .boot.counter, "awx", @progbits
.global set_counter
// Machine mode, after the supervisor's `ecall` with the counter's value in a0. 96(sp) has the supervisor's t0. 0xb03 is
// mhpmcounter3, 0x323 mhpmevent3.
set_counter:
    li t0, 1 << {interrupt};  csrc mip, t0;  csrs mie, t0;  csrw 0xb03, a0
    li t0, {event};  csrw 0x323, t0
    csrr t0, mepc;  addi t0, t0, 4;  csrw mepc, t0;  ld t0, 96(sp);  csrrw sp, mscratch, sp;  mret
"#,
    event = const EVENT, interrupt = const INTERRUPT,
);

/// The counter's interrupt.
pub fn overflow(saved: &Saved) {
    // SAFETY: called by entry stubs only, with what they interrupted, interrupts masked.
    let tick = PROFILER.on_overflow(&unsafe { NmiToken::new() }, &saved.registers());
    start(tick.next_events);
}

/// Whether the counter can interrupt this CPU. In QEMU 10.0 it cannot: the counter overflows, but the bit that enables
/// its interrupt stays 0.
pub fn can_interrupt() -> bool {
    let enabled: u64;
    // SAFETY: reads a register of the supervisor.
    unsafe { asm!("csrr {}, sie", out(reg) enabled, options(nomem, nostack)) };
    enabled & 1 << INTERRUPT != 0
}

/// Makes the counter interrupt this CPU after this many misses, and takes back an interrupt that has been due.
pub fn start(misses: u64) {
    // SAFETY: `set_counter` handles it, and changes no register.
    unsafe { asm!("ecall", in("a0") misses.wrapping_neg()) };
}
