//! The port of kprof to this kernel. Each function is explained in kernel-integration/template/profiling.rs.

use crate::{Log, kmain, machine};
use core::fmt::Write;
use core::{mem::MaybeUninit, ops::Range};
use kprof::{Config, CpuSet, CpuSlot, DEFAULT_RING_WORDS, Kernel, Profiler, Setup, Task, Trigger};
use spin::Once;

pub static PROFILER: Profiler<Port> = Profiler::new(Port);
static SAMPLES_OTHER: Once<bool> = Once::new();
pub struct Port;

// SAFETY: CPUs by APIC id; stacks are statics, mapped with the text for ever; no user memory; no hook locks or faults.
unsafe impl Kernel for Port {
    fn cpu(&self) -> usize {
        machine::cpu()
    }

    fn signal(&self, cpus: &CpuSet<'_>) {
        cpus.iter().for_each(|cpu| machine::signal(cpu, 0x4400));
    }

    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        Some(machine::stack(machine::cpu())).filter(|stack| stack.contains(&address))
    }

    const MARKED_ENTRIES: bool = true;

    fn is_entry_code(&self, address: u64) -> bool {
        machine::entry_code().contains(&address)
    }

    fn task(&self) -> Task {
        Task { id: 1, idle: false }
    }

    fn sleep_ns(&self, ns: u64) {
        machine::sleep_ns(ns);
    }
}

/// CPU 0: sets the profiler up. It samples the second CPU; where there is none, it samples itself.
pub fn init(has_second: bool) {
    static SLOTS: [CpuSlot; machine::MAX_CPUS] = [const { CpuSlot::new() }; machine::MAX_CPUS];
    static mut META: [MaybeUninit<u64>; 1024] = [MaybeUninit::uninit(); 1024];
    static ANCHOR: Once<[(&str, u64); 1]> = Once::new();
    let (trigger, sampler_cpu) = if has_second { (Trigger::Nmi, Some(0)) } else { (Trigger::Timer, None) };
    let text = (&raw const machine::text_start as u64, &raw const machine::text_end as u64);
    let anchors = ANCHOR.call_once(|| [("kmain", kmain as *const () as u64)]);
    let tsc_hz = machine::CLOCK.wait().tsc_hz;
    let config = Config { trigger, sampler_cpu, tsc_hz, text, load: text.0, anchors, running: true, ..Config::new() };
    // SAFETY: this function runs once; nobody else names it.
    let meta = unsafe { (&raw mut META).as_mut_unchecked() };
    if let Err(error) = PROFILER.init(|| Setup { slots: &SLOTS[..1 + usize::from(has_second)], meta, config }) {
        let _ = writeln!(Log, "bare: nothing is sampled: {error}");
    }
    SAMPLES_OTHER.call_once(|| has_second);
}

/// The CPU that works gets its ring; from then on it is sampled.
pub fn register(cpu: usize) {
    static mut RING: [MaybeUninit<u64>; DEFAULT_RING_WORDS] = [MaybeUninit::uninit(); DEFAULT_RING_WORDS];
    while cpu == 1 && !SAMPLES_OTHER.wait() {
        x86_64::instructions::hlt(); // It came so late that CPU 0 has not waited for it.
    }
    // SAFETY: one CPU works; nobody else names it.
    if let Err(error) = PROFILER.register(cpu, || unsafe { (&raw mut RING).as_mut_unchecked() }) {
        let _ = writeln!(Log, "bare: {error}");
    }
    PROFILER.task_name(1, "kmain");
}
