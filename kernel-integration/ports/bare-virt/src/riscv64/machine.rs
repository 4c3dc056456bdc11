//! The hardware of QEMU's machine `virt`: stacks, interrupts, timer, serial port. Sources: the RISC-V Instruction Set
//! Manual, volume II (4.1, and Sstc); SiFive CLINT: MSIP registers; 16550A.

use crate::profiling::{self, IS_NMI, Saved};
use crate::{counter, memory, work};
use core::arch::asm;
use kprof::Interrupted;

/// A tick uses a stack of its own, so that it can arrive at any instruction.
pub const NMI_STACK_BYTES: usize = 16 * 1024;
/// User mode has RAM this much below the kernel.
pub const OFFSET: u64 = 0xffff_ffc0_0000_0000;
/// How far the frame record is below the frame pointer.
pub const BELOW: u64 = 16;
const SERIAL: u64 = 0xffff_ffc0_1000_0000;
/// MSIP: a word for each CPU. Setting it is a machine-mode software interrupt there.
const SOFTWARE_INTERRUPTS: u64 = 0xffff_ffc0_0200_0000;

unsafe extern "C" {
    static nmi_stacks: u8;
}

/// The frequency of the time CSR in `virt`.
pub fn hz() -> u64 {
    10_000_000
}

/// The number of this CPU: by its stack, because supervisor mode cannot read mhartid. Right in all Rust code.
pub fn cpu() -> usize {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mv {}, sp", out(reg) sp, options(nomem, nostack)) };
    let (ordinary, nmi) = (memory::stack(0).start, &raw const nmi_stacks as u64);
    if sp > nmi { (sp - nmi) as usize / NMI_STACK_BYTES } else { (sp - ordinary) as usize / memory::STACK_BYTES }
}

/// Whether user code was interrupted, and whether interrupts were on, by sstatus (SPP, SPIE).
pub fn mode(status: u64) -> (bool, bool) {
    (status & 1 << 8 == 0, status & 1 << 5 != 0)
}

/// Writes a device's register.
pub fn set(register: u64, value: u32) {
    // SAFETY: only called for the registers of devices that every `virt` has, and always mapped.
    unsafe { (register as *mut u32).write_volatile(value) };
}

/// Lets the timer wake this CPU, and software interrupts through when interrupts are on. (Machine mode takes its own.)
pub fn set_up(_cpu: usize) {
    // SAFETY: interrupts are off, and `boot` handles software interrupts.
    unsafe { asm!("csrw stimecmp, {}", "csrw sie, {}", in(reg) u64::MAX, in(reg) 1 << 5 | 1 << 1, options(nostack)) };
}

/// Sends a tick to a CPU.
pub fn signal(cpu: usize) {
    set(SOFTWARE_INTERRUPTS + 4 * cpu as u64, 1);
}

/// Called by the stub of every entry but NMIs.
#[unsafe(no_mangle)]
extern "C" fn entered(saved: &mut Saved, cause: i64, first: u64) {
    match cause {
        ..0 if cause & 63 == counter::INTERRUPT => counter::overflow(saved),
        ..0 => {
            // SAFETY: clears the software interrupt (1); that of the timer (5) only goes when it is started again.
            unsafe { asm!("csrc sip, {}", in(reg) 1_u64 << (cause & 63)) };
            work::interrupt(saved, !IS_NMI && cause & 63 == 1, cause & 63 == 5);
        }
        3 => work::exception(saved), // a breakpoint
        8 => {
            saved.0[2] += 4; // after it
            work::system_call(saved, first);
        }
        other => panic!("exception {other} at {:x}", saved.registers().pc),
    }
}

/// Called by the stub of NMIs.
#[unsafe(no_mangle)]
extern "C" fn on_nmi_stack(saved: &Saved) {
    profiling::tick(saved);
}

/// Makes an exception, after which the kernel goes on.
pub fn break_here() {
    // SAFETY: `entered` handles it.
    unsafe { asm!(".option push", ".option norvc", "ebreak", ".option pop") };
}

/// Interrupts this CPU.
pub fn interrupt_here() {
    // SAFETY: `entered` handles it.
    unsafe { asm!("csrsi sip, 2") };
}

/// In user mode: a system call.
pub fn call_kernel(number: u64) {
    // SAFETY: the kernel changes no register.
    unsafe { asm!("ecall", in("a0") number) };
}

/// Masks or unmasks interrupts of supervisor mode.
pub fn mask_interrupts(is_masked: bool) {
    // SAFETY: `boot` handles what can arrive.
    unsafe { if is_masked { asm!("csrci sstatus, 2") } else { asm!("csrsi sstatus, 2") } }
}

/// Sleeps by the timer, with interrupts off: a pending one wakes the CPU from WFI all the same.
pub fn sleep_ns(ns: u64) {
    let ticks = u128::from(ns) * u128::from(hz()) / 1_000_000_000;
    let now = || {
        let now: u64;
        // SAFETY: reads a register.
        unsafe { asm!("rdtime {}", out(reg) now, options(nomem, nostack)) };
        now
    };
    let end = now() + ticks.clamp(1, 0x7fff_ffff) as u64;
    // SAFETY: the timer's interrupt is enabled, and interrupts are off, so it only wakes.
    unsafe { asm!("csrw stimecmp, {}", in(reg) end, options(nostack)) };
    while now() < end {
        // SAFETY: waits.
        unsafe { asm!("wfi", options(nostack)) };
    }
    // SAFETY: as above; nothing is pending any more.
    unsafe { asm!("csrw stimecmp, {}", in(reg) u64::MAX, options(nostack)) };
}

/// Writes a byte to the serial port, when its queue is not full.
pub fn put(byte: u8) {
    // SAFETY: the 16550's registers: the line status, and the byte to send.
    unsafe {
        while ((SERIAL + 5) as *const u8).read_volatile() & 1 << 5 == 0 {}
        (SERIAL as *mut u8).write_volatile(byte);
    }
}
