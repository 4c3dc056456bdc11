//! The hardware of QEMU's machine `virt`: stacks, interrupt controller, timer, serial port. Sources: Arm GICv3
//! architecture specification, 12.8 to 12.11; Arm Architecture Reference Manual, D11 (generic timer); PL011.

use core::arch::asm;
use core::ops::Range;

pub const MAX_CPUS: usize = 4;
pub const STACK_BYTES: usize = 64 * 1024;

const SERIAL: u64 = 0xffff_ff80_0900_0000;
const DISTRIBUTOR: u64 = 0xffff_ff80_0800_0000;
const REDISTRIBUTORS: u64 = 0xffff_ff80_080a_0000;
/// The profiler's software generated interrupt.
const SGI: u64 = 0;

unsafe extern "C" {
    static stacks: u8;
    static vectors: u8;
    static vectors_end: u8;
    pub static text_start: u8;
    pub static text_end: u8;
}

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

/// The stack of a CPU.
pub fn stack(cpu: usize) -> Range<u64> {
    let start = &raw const stacks as u64 + (cpu * STACK_BYTES) as u64;
    start..start + STACK_BYTES as u64
}

/// The frequency of the virtual count.
pub fn hz() -> u64 {
    read!("cntfrq_el0")
}

/// The number of this CPU. The result is right at any instruction.
pub fn cpu() -> usize {
    read!("mpidr_el1") as usize & 0xff
}

/// Whether an address is in an entry stub.
pub fn is_stub(address: u64) -> bool {
    (&raw const vectors as u64..&raw const vectors_end as u64).contains(&address)
}

/// Writes a device's register.
fn set(register: u64, value: u32) {
    // SAFETY: only called for the registers of devices that every `virt` has, and mapped for ever.
    unsafe { (register as *mut u32).write_volatile(value) };
}

/// Makes this CPU take the profiler's interrupt, as a FIQ (group 0) or as an IRQ (group 1), and lets the timer wake it.
/// Nothing is unmasked yet.
pub fn set_up(cpu: usize, is_fiq: bool) {
    let redistributor = REDISTRIBUTORS + 0x2_0000 * cpu as u64;
    set(DISTRIBUTOR, 0x13); // GICD_CTLR: both groups, affinity routing
    set(redistributor + 0x14, 0); // GICR_WAKER: awake
    set(redistributor + 0x1_0080, if is_fiq { !(1 << SGI) } else { !0 }); // GICR_IGROUPR0
    set(redistributor + 0x1_0100, 1 << SGI | 1 << 27); // GICR_ISENABLER0: 27 is the virtual timer
    write!("s3_0_c12_c12_5", 1); // ICC_SRE_EL1: system registers
    write!("s3_0_c4_c6_0", 0xff); // ICC_PMR_EL1: every priority
    write!("s3_0_c12_c12_6", 1); // ICC_IGRPEN0_EL1
    write!("s3_0_c12_c12_7", 1); // ICC_IGRPEN1_EL1
}

/// Sends the profiler's interrupt to a CPU, by ICC_SGI0R_EL1 or ICC_SGI1R_EL1.
pub fn signal(cpu: usize, is_fiq: bool) {
    let target = SGI << 24 | 1 << cpu;
    if is_fiq { write!("s3_0_c12_c11_7", target) } else { write!("s3_0_c12_c11_5", target) }
}

/// Takes the pending interrupt, by ICC_IAR and ICC_EOIR of its group. Returns whether it is the profiler's.
pub fn take(is_fiq: bool) -> bool {
    let number = if is_fiq { read!("s3_0_c12_c8_0") } else { read!("s3_0_c12_c12_0") };
    if is_fiq {
        write!("s3_0_c12_c8_1", number)
    } else {
        write!("s3_0_c12_c12_1", number)
    }
    number == SGI
}

/// Unmasks FIQs, and masks or unmasks IRQs.
pub fn mask_irqs(is_masked: bool) {
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
