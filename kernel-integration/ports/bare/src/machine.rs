//! The hardware set-up that the kernel needs without kprof: stacks, descriptor tables, the local APIC, a clock. Of
//! kprof it uses only the type of the calibration. Source: Intel SDM volume 3A, chapters 6 and 11.

use core::arch::x86_64::_rdtsc;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use kprof::clock::Calibration;
use kprof_port::apic::LocalApic;
use kprof_port::calibrate::{Hpet, calibrate};
use spin::Once;
use x86_64::instructions::{port::Port, tables::load_tss};
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::{idt::InterruptDescriptorTable, tss::TaskStateSegment};

pub const MAX_CPUS: usize = 3;
pub const STACK_BYTES: usize = 64 * 1024;
// SAFETY: the first 4 GiB are mapped one to one for ever, the APIC's registers among them; QEMU starts it in xAPIC
// mode.
pub const APIC: LocalApic = unsafe { LocalApic::xapic(0xfee0_0000) };

unsafe extern "C" {
    static stacks: u8;
    pub static text_start: u8;
    pub static text_end: u8;
}

/// The range of a stack. The CPUs' stacks come first, then as many stacks for their NMIs.
pub fn stack(number: usize) -> Range<u64> {
    let start = &raw const stacks as u64 + (number * STACK_BYTES) as u64;
    start..start + STACK_BYTES as u64
}

/// The APIC id of each CPU. On many machines the ids have gaps, so they are no numbers.
pub static APIC_IDS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(u32::MAX) }; MAX_CPUS];

/// The number of this CPU; `MAX_CPUS` before `set_up`. The result is right at any instruction.
pub fn cpu() -> usize {
    let own = APIC.id();
    APIC_IDS.iter().position(|id| id.load(Relaxed) == own).unwrap_or(MAX_CPUS)
}

/// The frequencies of the TSC and the timer.
pub fn clock() -> Calibration {
    static CLOCK: Once<Calibration> = Once::new();
    // SAFETY: mapped as the APIC's registers are; every machine of QEMU's has an HPET there.
    *CLOCK.call_once(|| calibrate(&APIC, &unsafe { Hpet::new(0xfed0_0000) }).expect("the clocks run"))
}

/// Loads this CPU's tables (code and data have the selectors of `boot`'s table) and enables its APIC. Called once per
/// CPU.
pub fn set_up(cpu: usize) {
    APIC_IDS[cpu].store(APIC.id(), Relaxed);
    static IDT: Once<InterruptDescriptorTable> = Once::new();
    static TSS: [Once<TaskStateSegment>; MAX_CPUS] = [const { Once::new() }; MAX_CPUS];
    static GDT: [Once<GlobalDescriptorTable>; MAX_CPUS] = [const { Once::new() }; MAX_CPUS];
    let (tss, mut gdt) =
        (Descriptor::tss_segment(TSS[cpu].call_once(TaskStateSegment::new)), GlobalDescriptorTable::new());
    let parts = [Descriptor::kernel_code_segment(), Descriptor::kernel_data_segment(), tss];
    let [_, _, tss] = parts.map(|descriptor| gdt.append(descriptor));
    GDT[cpu].call_once(|| gdt).load();
    // SAFETY: the selector is of the table just loaded.
    unsafe { load_tss(tss) };
    IDT.call_once(InterruptDescriptorTable::new).load();
    // SAFETY: the data ports of the two 8259s, the old interrupt controllers: all masked.
    [0x21, 0xa1].into_iter().for_each(|port| unsafe { Port::<u8>::new(port).write(0xff) });
    APIC.turn_on(0xff);
}

/// Waits for this time.
pub fn wait_ns(ns: u64) {
    // SAFETY: reads a counter.
    let (now, tsc_hz) = (|| unsafe { _rdtsc() }, clock().tsc_hz);
    let start = now();
    while kprof::clock::ticks_to_ns(now() - start, tsc_hz) < ns {
        core::hint::spin_loop();
    }
}
