//! Samples of the boot itself: ticks on the boot CPU before there are page frames, page tables or a local APIC.
//!
//! In: `boot-profile=1` and `cpus=` on the command line. Out: timer interrupts from the 8259 and the 8254, which need
//! only I/O ports; a calibrated TSC; the profiler, running with the trigger `timer`. Runs in: the boot CPU, interrupts
//! off, once. When the boot is done the sampler takes over. The records stay in the ring until profiled reads them.

use core::sync::atomic::{AtomicU64, Ordering};

use x86_64::instructions::interrupts;
use x86_64::instructions::port::Port;

use crate::cpu::{self, CPUS, clock, idt, turns};
use crate::info::BootInfo;
use crate::memory::stacks;
use crate::{profiling, random};

/// The vector that the 8259 uses for the 8254's interrupts.
pub const VECTOR: u8 = 0xe0;
/// The 8254's clock, and its divisor: about a hundred thousand interrupts per second.
const CLOCK_HZ: u64 = 1_193_182;
const DIVISOR: u16 = 12;
/// Number of interrupts for which the TSC is measured.
const MEASURED: u64 = 1000;

static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

/// Starts the ticks. Interrupts are on afterwards.
pub fn start(info: &BootInfo) {
    idt::load();
    // SAFETY: these writes initialise the 8259s with their vectors and one open interrupt line, and set channel 0 of
    // the 8254 to periodic, as in their data sheets. No other code uses these ports.
    unsafe {
        let (mut command, mut data) = (Port::<u8>::new(0x20), Port::<u8>::new(0x21));
        command.write(0x11);
        data.write(VECTOR);
        data.write(4);
        data.write(1);
        data.write(0xfe);
        Port::<u8>::new(0x43).write(0x34);
        let mut divisor = Port::<u8>::new(0x40);
        divisor.write(DIVISOR as u8);
        divisor.write((DIVISOR >> 8) as u8);
    }
    let boot = &CPUS[0];
    boot.stacks[0].store(stacks::boot_stack(), Ordering::Relaxed);
    boot.idle.store(false, Ordering::Relaxed);
    let sleep = |interrupts: u64| {
        let end = INTERRUPTS.load(Ordering::Relaxed) + interrupts;
        while INTERRUPTS.load(Ordering::Relaxed) < end {
            interrupts::disable();
            turns::wait_for_interrupt();
        }
        clock::tsc()
    };
    let first = sleep(2);
    let ticks = sleep(MEASURED) - first;
    clock::set_tsc_hz((u128::from(ticks) * u128::from(CLOCK_HZ) / u128::from(MEASURED * u64::from(DIVISOR))) as u64);
    random::init(info.option("random-seed").and_then(|text| text.parse().ok()));
    cpu::set_count(info.number("cpus", cpu::MAX_CPUS as u64) as usize);
    cpu::set_sampler(true);
    profiling::init();
    profiling::register_heap();
    profiling::register(0);
    profiling::name_boot(0);
    interrupts::enable();
}

/// Continues after the calibration of the clock, which leaves interrupts off. The boot CPU has its idle thread now, but
/// is not idle yet.
pub fn go_on() {
    CPUS[0].idle.store(false, Ordering::Relaxed);
    interrupts::enable();
}

/// Ends the ticks: masks the old devices and leaves interrupts off, as the rest of the start expects.
pub fn stop() {
    interrupts::disable();
    // SAFETY: this masks all lines of the first 8259, and makes channel 0 of the 8254 count to one and stop. A timer
    // that continues would still end the turns of the CPUs under `-icount`, even if its interrupt is masked.
    unsafe {
        Port::<u8>::new(0x21).write(0xff);
        Port::<u8>::new(0x43).write(0x30);
        let mut count = Port::<u8>::new(0x40);
        count.write(1);
        count.write(0);
    }
    CPUS[0].idle.store(true, Ordering::Relaxed);
}

/// An interrupt of the 8254.
pub fn on_interrupt() {
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: this acknowledges the interrupt at the first 8259.
    unsafe { Port::<u8>::new(0x20).write(0x20) };
}
