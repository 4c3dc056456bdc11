//! The hardware of QEMU's machine `virt`: stacks, interrupt controller, timer, serial port. Sources: Arm GICv3
//! architecture specification, 12.8 to 12.11; Arm Architecture Reference Manual, D11 (generic timer); PL011.

use crate::profiling::{self, IS_NMI, Saved};
use crate::work;
use core::arch::asm;
use kprof::Interrupted;

/// User mode has RAM this much below the kernel.
pub const OFFSET: u64 = 0xffff_ff80_0000_0000;
/// How far the frame record is below the frame pointer.
pub const BELOW: u64 = 0;
const SERIAL: u64 = 0xffff_ff80_0900_0000;
const DISTRIBUTOR: u64 = 0xffff_ff80_0800_0000;
const REDISTRIBUTORS: u64 = 0xffff_ff80_080a_0000;
/// The profiler's software generated interrupt.
const SGI: u64 = 0;
/// One that a CPU sends to itself.
const OWN_SGI: u64 = 1;
const TIMER: u64 = 27; // the virtual timer's

macro_rules! read {
    ($register:literal) => {{
        let value: u64;
        // SAFETY: this register exists, and reading it has no effect on memory.
        unsafe { asm!(concat!("mrs {}, ", $register), out(reg) value, options(nostack)) };
        value
    }};
}

macro_rules! write {
    ($register:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: this register exists; writing it affects interrupts only, which this kernel handles.
        unsafe { asm!(concat!("msr ", $register, ", {}"), "isb", in(reg) value, options(nostack)) }
    }};
}

/// The frequency of the virtual count.
pub fn hz() -> u64 {
    read!("cntfrq_el0")
}

/// The number of this CPU. The result is right at any instruction.
pub fn cpu() -> usize {
    read!("mpidr_el1") as usize & 0xff
}

/// Whether user code was interrupted, and whether IRQs were unmasked, by SPSR_EL1.
pub fn mode(status: u64) -> (bool, bool) {
    (status & 0xf == 0, status & 1 << 7 == 0)
}

/// Writes a device's register.
fn set(register: u64, value: u32) {
    // SAFETY: only called for the registers of devices that every `virt` has, and always mapped.
    unsafe { (register as *mut u32).write_volatile(value) };
}

/// Makes this CPU take the profiler's interrupt, as a FIQ (group 0) or as an IRQ (group 1), and its own as an IRQ; lets
/// the timer wake it. Nothing is unmasked yet.
pub fn set_up(cpu: usize) {
    let redistributor = REDISTRIBUTORS + 0x2_0000 * cpu as u64;
    set(DISTRIBUTOR, 0x13); // GICD_CTLR: both groups, affinity routing
    set(redistributor + 0x14, 0); // GICR_WAKER: awake
    set(redistributor + 0x1_0080, if IS_NMI { !(1 << SGI) } else { !0 }); // GICR_IGROUPR0
    // GICR_IPRIORITYR0 and 6: a tick comes first, also while another interrupt has been taken but not ended.
    set(redistributor + 0x1_0400, 0xa0a0_a000);
    set(redistributor + 0x1_0418, 0xa0a0_a0a0);
    set(redistributor + 0x1_0100, 1 << SGI | 1 << OWN_SGI | 1 << TIMER); // GICR_ISENABLER0
    write!("s3_0_c12_c12_5", 1); // ICC_SRE_EL1: system registers
    write!("s3_0_c4_c6_0", 0xff); // ICC_PMR_EL1: every priority
    write!("s3_0_c12_c12_6", 1); // ICC_IGRPEN0_EL1
    write!("s3_0_c12_c12_7", 1); // ICC_IGRPEN1_EL1
}

/// Sends the profiler's interrupt to a CPU, by ICC_SGI0R_EL1 or ICC_SGI1R_EL1.
pub fn signal(cpu: usize) {
    let target = SGI << 24 | 1 << cpu;
    if IS_NMI { write!("s3_0_c12_c11_7", target) } else { write!("s3_0_c12_c11_5", target) }
}

/// Called by the stub of FIQs: takes what is pending by ICC_IAR0 and ICC_EOIR0.
#[unsafe(no_mangle)]
extern "C" fn on_fiq(saved: &Saved) {
    let number = read!("s3_0_c12_c8_0");
    write!("s3_0_c12_c8_1", number);
    if number == SGI {
        profiling::tick(saved);
    }
}

/// Called by the stub of IRQs: takes what is pending by ICC_IAR1 and ICC_EOIR1.
#[unsafe(no_mangle)]
extern "C" fn on_irq(saved: &Saved) {
    let number = read!("s3_0_c12_c12_0");
    write!("s3_0_c12_c12_1", number);
    work::interrupt(saved, number == SGI, number == TIMER);
}

/// Called by the stub of exceptions of this kernel.
#[unsafe(no_mangle)]
extern "C" fn on_exception(saved: &mut Saved) {
    match read!("esr_el1") >> 26 {
        0x3c => work::exception(saved), // a breakpoint
        other => panic!("exception {other:x} at {:x}", saved.registers().pc),
    }
}

/// Called by the stub of exceptions of user code, with its x0.
#[unsafe(no_mangle)]
extern "C" fn on_user_exception(saved: &Saved, first: u64) {
    match read!("esr_el1") >> 26 {
        0x15 => work::system_call(saved, first),
        other => panic!("exception {other:x} of user code at {:x}", saved.registers().pc),
    }
}

/// Makes an exception, after which the kernel goes on.
pub fn break_here() {
    // SAFETY: `on_exception` handles it.
    unsafe { asm!("brk #0") };
}

/// Interrupts this CPU, by ICC_SGI1R_EL1.
pub fn interrupt_here() {
    write!("s3_0_c12_c11_5", OWN_SGI << 24 | 1 << cpu());
}

/// In user mode: a system call.
pub fn call_kernel(number: u64) {
    // SAFETY: the kernel changes no register.
    unsafe { asm!("svc #0", in("x0") number) };
}

/// Unmasks FIQs, and masks or unmasks IRQs.
pub fn mask_interrupts(is_masked: bool) {
    // SAFETY: the vectors handle both. Bits 6 and 7 of DAIF are those of FIQs and IRQs.
    write!("daif", u64::from(is_masked) << 7);
}

/// Sleeps by the virtual timer. Its interrupt stays masked: a pending one wakes the CPU from WFI all the same.
pub fn sleep_ns(ns: u64) {
    let ticks = u128::from(ns) * u128::from(read!("cntfrq_el0")) / 1_000_000_000;
    write!("cntv_tval_el0", ticks.clamp(1, 0x7fff_ffff) as u64);
    write!("cntv_ctl_el0", 1);
    while read!("cntv_ctl_el0") & 4 == 0 {
        // SAFETY: waits.
        unsafe { asm!("wfi", options(nostack)) };
    }
    write!("cntv_ctl_el0", 0);
}

/// Writes a byte to the serial port, when its queue is not full.
pub fn put(byte: u8) {
    // SAFETY: the flags of the PL011.
    while unsafe { ((SERIAL + 0x18) as *const u32).read_volatile() } & 1 << 5 != 0 {}
    set(SERIAL, byte.into());
}
