//! Samples of the boot itself: ticks of the boot CPU from before there are frames, page tables or a local APIC.
//!
//! In: `boot-profile=1` and `cpus=` on the command line. Out: timer interrupts by the two oldest devices of the
//! machine, the 8259 and the 8254, which need ports only; a calibrated TSC; the profiler, running by the trigger
//! `self`. Runs in: the boot CPU, interrupts off, once. The sampler's first tick takes over: the records wait in the
//! ring for profiled.

use core::sync::atomic::{AtomicU64, Ordering};

use x86_64::instructions::interrupts;
use x86_64::instructions::port::Port;

use crate::cpu::{self, CPUS, clock, idt};
use crate::info::BootInfo;
use crate::memory::stacks;
use crate::{profiling, random};

/// The vector that the 8259 is told to give to the 8254's interrupts.
pub const VECTOR: u8 = 0xe0;
/// The 8254's clock, and what it is divided by: about a hundred thousand interrupts a second.
const CLOCK_HZ: u64 = 1_193_182;
const DIVISOR: u16 = 12;
/// Interrupts slept through to measure the TSC.
const MEASURED: u64 = 1000;

static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

/// Whether the boot is to be sampled.
pub fn wanted(info: &BootInfo) -> bool {
    kprof::ENABLED && profiling::wants_sampler() && info.option("boot-profile").is_some()
}

/// Starts the ticks. Interrupts are on afterwards.
pub fn start(info: &BootInfo) {
    idt::load();
    // SAFETY: the 8259s and the 8254 by their data sheets: initialise, vectors, one interrupt line open; channel 0
    // periodic. Nobody else uses these ports.
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
            interrupts::enable_and_hlt();
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
    profiling::register(0);
    profiling::name_boot(0);
    interrupts::enable();
}

/// The clock was calibrated, with interrupts off at its end, and the boot CPU has got its idle thread, but is not idle
/// yet.
pub fn go_on() {
    CPUS[0].idle.store(false, Ordering::Relaxed);
    interrupts::enable();
}

/// The end: no more interrupts of the old devices, and interrupts off as the rest of the start expects it.
pub fn stop() {
    interrupts::disable();
    // SAFETY: the data port of the first 8259, all lines masked; the 8254's channel 0, to count to one and then rest: a
    // timer that goes on, unheard, would still cut the turns of the CPUs where instructions are counted.
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
    // SAFETY: the end of the interrupt, said to the first 8259.
    unsafe { Port::<u8>::new(0x20).write(0x20) };
}
