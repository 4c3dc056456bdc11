//! The port of kprof: the facts that only this kernel knows, and the calls it makes.
//!
//! This is all a kernel has to write. The device files are in `device.rs`.

mod calls;
pub mod device;

pub use calls::*;

use core::mem::MaybeUninit;
use core::ops::Range;
use core::slice;
use core::sync::atomic::Ordering;

use kprof::{
    Clock, Config, Context, CpuSet, CpuSlot, DEFAULT_RING_WORDS, ENABLED, EntryFrame, Image, Kernel, Profiler,
    Registers, Setup, Way,
};

use crate::boot::pvh::BootInfo;
use crate::cpu::entry;
use crate::cpu::{self, CPUS, MAX_CPUS, apic, clock, turns};
use crate::memory::stacks::STACK_BYTES;
use crate::memory::{frames, paging, phys_to_virt};
use crate::random;

/// The profiler of this kernel.
pub static PROFILER: Profiler<Port> = Profiler::new(Port);
static SLOTS: [CpuSlot; MAX_CPUS] = [const { CpuSlot::new() }; MAX_CPUS];

/// What kprof asks this kernel.
pub struct Port;

impl Kernel for Port {
    fn cpu(&self) -> usize {
        cpu::id()
    }

    fn signal(&self, cpus: &CpuSet<'_>) {
        let by_interrupt = way() == Way::Ipi;
        for apic_id in cpus.iter().map(|cpu| CPUS[cpu].apic_id.load(Ordering::Relaxed)) {
            match by_interrupt {
                true => apic::send_ipi(apic_id, apic::SAMPLE),
                false => apic::send_nmi(apic_id),
            }
        }
    }

    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        self.foreign_stack_range(cpu::id(), address)
    }

    fn foreign_stack_range(&self, cpu: usize, address: u64) -> Option<Range<u64>> {
        // Stacks are aligned to their size: the base of the stack that holds an address is arithmetic.
        let base = address & !(STACK_BYTES - 1);
        let cpu = &CPUS[cpu];
        let in_use = base != 0
            && (cpu.stacks.iter().any(|stack| stack.load(Ordering::Relaxed) == base)
                || cpu.nmi_stack.load(Ordering::Relaxed) == base);
        in_use.then_some(base..base + STACK_BYTES)
    }

    fn read_foreign(&self, _cpu: usize, address: u64) -> Option<u64> {
        // SAFETY: `foreign_stack_range` vouched for the address, and kernel stacks stay mapped for ever.
        Some(unsafe { (address as *const u64).read_volatile() })
    }

    fn context(&self) -> Context {
        let cpu = cpu::this();
        Context { id: cpu.context.load(Ordering::Relaxed), idle: cpu.idle.load(Ordering::Relaxed) }
    }

    fn read_user(&self, address: u64) -> Option<u64> {
        paging::read_user_word(address)
    }

    fn entry_frame(&self, at: &Registers) -> Option<EntryFrame> {
        entry::frame_at(at)
    }

    fn sleep_ns(&self, ns: u64) {
        turns::sleep_ns(ns);
    }

    fn wake_reader(&self) {
        device::READERS.wake();
    }
}

fn memory(words: usize) -> &'static mut [MaybeUninit<u64>] {
    let start = frames::allocate_contiguous((words as u64 * 8).div_ceil(4096)).expect("no memory for the profiler");
    // SAFETY: frames that nobody else has, in the direct map, for ever.
    unsafe { slice::from_raw_parts_mut(phys_to_virt(start) as *mut MaybeUninit<u64>, words) }
}

/// How this kernel's CPUs are reached: `way=` on the command line.
pub fn way() -> Way {
    static WAY: spin::Once<Way> = spin::Once::new();
    *WAY.call_once(|| match crate::boot::info().option("way") {
        Some("ipi") => Way::Ipi,
        Some("published") => Way::Published,
        Some("self") => Way::Own,
        _ => Way::Nmi,
    })
}

/// Whether a CPU is to be set apart: not where each samples itself.
pub fn wants_sampler() -> bool {
    ENABLED && way() != Way::Own
}

/// Once, on the boot CPU, as soon as memory and clock are there.
pub fn init(info: &'static BootInfo) {
    PROFILER.init(|| Setup {
        slots: &SLOTS[..cpu::count()],
        meta: memory(DEFAULT_RING_WORDS / 4),
        config: Config {
            sampler_cpu: cpu::sampler(),
            way: way(),
            hz: info.number("hz", 1000) as u32,
            seed: info.number("seed", 42),
            boot: info.number("boot-id", random::next() | 1),
            can_wait: true,
            backoff_on_merged: info.option("accel") != Some("tcg"),
            tsc_hz: clock::tsc_hz(),
            clock: if info.option("accel") == Some("icount") { Clock::Instructions } else { Clock::Tsc },
            accel: info.option("accel").unwrap_or(""),
            load: paging::text_range().0,
            text: paging::text_range(),
            build_id: paging::build_id(),
            anchors: paging::anchors(),
            ..Config::new()
        },
    });
    let text = paging::text_range();
    PROFILER.image(&Image { name: "kernel", load: text.0, text, build_id: paging::build_id() });
}

/// On each CPU that is to be sampled, once it has loaded its tables.
pub fn register(cpu: usize) {
    PROFILER.register(cpu, || memory(crate::boot::info().number("ring-words", DEFAULT_RING_WORDS as u64) as usize));
    if ENABLED && way() == Way::Own {
        CPUS[cpu].own_tick_ns.store(0, Ordering::Relaxed);
    }
}

/// On the sampler's CPU; does not return there.
pub fn run_sampler(cpu: usize) {
    PROFILER.run_sampler(cpu);
}
