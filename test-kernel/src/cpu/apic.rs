//! The local APIC. If the CPU has x2APIC mode, it is used through MSRs (QEMU's TCG has it from 9.0 on). Otherwise xAPIC
//! mode is used through registers in memory. The registers are the same, except for the interrupt command.
//!
//! The NMIs of the profiler are sent by `kprof-port`, as a port of another kernel sends them, so that both modes of
//! that package are run.
//!
//! Sends IPIs and NMIs, acknowledges interrupts, runs the one-shot timer. All calls act on the CPU on which they run.
//! Source: Intel SDM volume 3A, chapter 11.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(feature = "profiling")]
use kprof_port::{apic::LocalApic, command::Command};
use x86_64::registers::model_specific::Msr;

use super::turns;
use crate::memory::phys_to_virt;

/// Vector of the one-shot timer.
pub const TIMER: u8 = 32;
/// Vector by which one CPU asks another to look for work.
pub const RESCHEDULE: u8 = 33;
/// Vector with which the sampler interrupts a CPU if NMIs are not used (the trigger `ipi`).
pub const SAMPLE: u8 = 34;
/// First vector of device interrupts.
pub const FIRST_DEVICE: u8 = 48;
/// Vector of spurious interrupts.
pub const SPURIOUS: u8 = 255;

const ID: usize = 0x20;
const EOI: usize = 0xb0;
const SPURIOUS_VECTOR: usize = 0xf0;
const COMMAND_LOW: usize = 0x300;
const COMMAND_HIGH: usize = 0x310;
const TIMER_VECTOR: usize = 0x320;
const TIMER_INITIAL: usize = 0x380;
const TIMER_CURRENT: usize = 0x390;
const TIMER_DIVIDE: usize = 0x3e0;
const DELIVERY_PENDING: u32 = 1 << 12;
const PERIODIC: u32 = 1 << 17;
#[cfg(feature = "profiling")]
const DELIVER_NMI: u32 = 0x400;

/// The registers' physical address, from the MADT.
static BASE: AtomicU64 = AtomicU64::new(0xfee0_0000);

/// Sets the physical address of the registers, once, on the boot CPU.
pub fn set_base(physical: u64) {
    BASE.store(physical, Ordering::Relaxed);
}

/// Whether all APICs are in x2APIC mode; otherwise none is.
static X2APIC: AtomicBool = AtomicBool::new(false);
/// IA32_APIC_BASE: bit 10 turns x2APIC mode on, bit 11 the APIC.
const APIC_BASE_MSR: u32 = 0x1b;
/// The MSR of the register at offset 0. Each further MSR is for the register 16 bytes higher.
const FIRST_REGISTER_MSR: u32 = 0x800;

fn x2apic() -> bool {
    X2APIC.load(Ordering::Relaxed)
}

fn msr(offset: usize) -> Msr {
    Msr::new(FIRST_REGISTER_MSR + (offset >> 4) as u32)
}

fn register(offset: usize) -> *mut u32 {
    (phys_to_virt(BASE.load(Ordering::Relaxed)) + offset as u64) as *mut u32
}

fn read(offset: usize) -> u32 {
    if x2apic() {
        // SAFETY: the register exists in this mode; reading it has no effect.
        return unsafe { msr(offset).read() } as u32;
    }
    // SAFETY: the direct map covers the APIC's page; the offsets are those of its 32-bit registers.
    unsafe { ptr::read_volatile(register(offset)) }
}

fn write(offset: usize, value: u32) {
    if x2apic() {
        // SAFETY: as below.
        return unsafe { msr(offset).write(value.into()) };
    }
    // SAFETY: as in `read`. The callers describe the effect of each register.
    unsafe { ptr::write_volatile(register(offset), value) }
}

/// Enables the local APIC of this CPU. The timer is stopped, in one-shot mode, with a divisor of one.
pub fn enable() {
    if raw_cpuid::CpuId::new().get_feature_info().is_some_and(|features| features.has_x2apic()) {
        let mut base = Msr::new(APIC_BASE_MSR);
        // SAFETY: the CPU has the mode; every CPU is switched to it before its APIC is used.
        unsafe { base.write(base.read() | 3 << 10) };
        X2APIC.store(true, Ordering::Relaxed);
    }
    write(SPURIOUS_VECTOR, 0x100 | SPURIOUS as u32);
    write(TIMER_DIVIDE, 0b1011);
    write(TIMER_VECTOR, TIMER as u32);
    write(TIMER_INITIAL, 0);
}

/// The mode of the local APICs, for the log.
pub fn mode() -> &'static str {
    if x2apic() { "x2APIC" } else { "xAPIC" }
}

/// This CPU's local APIC id.
pub fn id() -> u32 {
    if x2apic() { read(ID) } else { read(ID) >> 24 }
}

/// Acknowledges the interrupt being served.
pub fn end_of_interrupt() {
    write(EOI, 0);
}

/// Sets the timer of this CPU to periodic mode.
pub fn make_periodic() {
    write(TIMER_VECTOR, PERIODIC | TIMER as u32);
}

/// Starts the timer: it fires after `count` of its ticks, repeatedly in periodic mode. 0 stops it.
pub fn start_timer(count: u32) {
    write(TIMER_INITIAL, count);
}

/// Sets whether the timer's interrupt is an NMI. QEMU follows the delivery mode bits of the timer's entry; on real
/// hardware that entry has no such bits (SDM volume 3A, figure 11-8).
#[cfg(feature = "profiling")]
pub fn set_timer_nmi(nmi: bool) {
    write(TIMER_VECTOR, if nmi { DELIVER_NMI } else { TIMER as u32 });
}

/// What is left of the timer's count.
pub fn timer_left() -> u32 {
    read(TIMER_CURRENT)
}

fn send(apic_id: u32, low: u32) {
    if x2apic() {
        // There is one register, and no need to wait. The fences make earlier writes visible to the interrupted CPU.
        // SAFETY: the command is one of those below.
        return unsafe {
            core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags));
            msr(COMMAND_LOW).write(u64::from(apic_id) << 32 | u64::from(low));
        };
    }
    x86_64::instructions::interrupts::without_interrupts(|| {
        while read(COMMAND_LOW) & DELIVERY_PENDING != 0 {
            core::hint::spin_loop();
        }
        write(COMMAND_HIGH, apic_id << 24);
        write(COMMAND_LOW, low);
    });
}

/// Sends interrupt `vector` to one CPU. Interrupts must be off, because two command registers are written one after the
/// other.
pub fn send_ipi(apic_id: u32, vector: u8) {
    send(apic_id, 0x4000 | vector as u32);
}

/// CPUs to which no NMI is sent, by the bits of their APIC ids. This simulates a CPU that does not answer.
#[cfg(feature = "profiling")]
pub static DEAF: AtomicU64 = AtomicU64::new(0);

/// Sends an NMI to one CPU. Interrupts must be off.
pub fn send_nmi(apic_id: u32) {
    #[cfg(feature = "profiling")]
    if DEAF.load(Ordering::Relaxed).checked_shr(apic_id).unwrap_or(0) & 1 == 1 {
        return;
    }
    turns::nmi_sent(apic_id);
    #[cfg(feature = "profiling")]
    by_port_package(apic_id, Command::Nmi);
    #[cfg(not(feature = "profiling"))]
    send(apic_id, 0x4400);
}

/// Sends a command through the package for ports.
#[cfg(feature = "profiling")]
fn by_port_package(apic_id: u32, command: Command) {
    let base = register(0) as usize;
    // SAFETY: the direct map covers the APIC's page, uncached and writable, on every CPU; and all CPUs are in the mode
    // that `enable` has chosen.
    let apic = unsafe { if x2apic() { LocalApic::in_present_mode(base) } else { LocalApic::xapic(base) } };
    // All ids come from this machine's own APICs, so they can be addressed.
    apic.send(apic_id, command);
}

/// Sends INIT to one CPU.
pub fn send_init(apic_id: u32) {
    send(apic_id, 0x4500);
}

/// Sends a start-up IPI: the CPU begins in real mode at `page * 4096`.
pub fn send_startup(apic_id: u32, page: u8) {
    send(apic_id, 0x4600 | page as u32);
}
