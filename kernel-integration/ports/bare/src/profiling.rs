//! The port of kprof to this kernel, and the template for other ports: copy this file, and put your kernel's functions
//! in the place of `machine`'s. docs/porting.md says, step by step, how to see that each answer is right;
//! `kprof::Kernel` documents the functions that are left out here (modules, user frames, halted CPUs, sleeping
//! readers).
//!
//! In: what the kernel calls (`init` and `register` at boot). Out: the answers that kprof asks for. What is marked NMI
//! is called between any two instructions: no lock, no allocation, no print, no page fault, no unbounded loop.

use crate::{Log, kmain, machine};
use core::fmt::Write;
use core::{mem::MaybeUninit, ops::Range};
use kprof::{Config, Context, CpuSet, CpuSlot, DEFAULT_RING_WORDS, Kernel, Profiler, Setup, Way};
use spin::Once;

/// The profiler of this kernel. Its NMI entry calls `PROFILER.on_nmi`, with the registers that it interrupted.
pub static PROFILER: Profiler<Port> = Profiler::new(Port);
static SAMPLES_OTHER: Once<bool> = Once::new();
/// What kprof asks this kernel.
pub struct Port;

// SAFETY: CPUs by APIC id; stacks are statics, mapped with the text for ever; no user memory; no hook locks or faults.
unsafe impl Kernel for Port {
    /// NMI, first of all calls. From the APIC id, the task register or the NMI's own stack; not from GS, which may be
    /// the user's. Two CPUs with one number would write to one ring.
    fn cpu(&self) -> usize {
        machine::cpu()
    }

    /// Sampler CPU, once per tick. A CPU that is left out has `pending` ticks for ever.
    fn signal(&self, cpus: &CpuSet<'_>) {
        cpus.iter().for_each(|cpu| machine::signal(cpu, 0x4400));
    }

    /// NMI, also in the middle of a switch. What it declares is read: a range that is too large faults in the NMI; a
    /// range that is too small, or `None`, truncates the stack there.
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        Some(machine::stack(machine::cpu())).filter(|stack| stack.contains(&address))
    }

    /// All entry stubs of this kernel leave a marker word. Without it, each return address is looked at, which costs
    /// time.
    const MARKED_ENTRIES: bool = true;

    /// NMI, once per sample. A wrong `false` gives a sample in an entry stub the wrong callers.
    fn is_entry_code(&self, address: u64) -> bool {
        machine::entry_code().contains(&address)
    }

    /// NMI, once per sample. An id is never used twice. Samples of the idle context are left out, and counted.
    fn context(&self) -> Context {
        Context { id: 1, idle: false }
    }

    /// Sampler CPU, between ticks. Sleeps in `hlt` by a one-shot timer; may return early. A sampler that spins slows
    /// the other CPUs of a virtual machine by a third; one that comes back late does not reach the rate.
    fn sleep_ns(&self, ns: u64) {
        machine::sleep_ns(ns);
    }
}

/// CPU 0, once, when memory and a calibrated clock are there. It samples the second CPU; where there is none, it
/// samples itself. A wrong `tsc_hz` makes rate and times wrong, a wrong `text` truncates every stack; without `anchors`
/// the symbols of another build go unnoticed.
pub fn init(has_second: bool) {
    static SLOTS: [CpuSlot; machine::MAX_CPUS] = [const { CpuSlot::new() }; machine::MAX_CPUS];
    static mut META: [MaybeUninit<u64>; 1024] = [MaybeUninit::uninit(); 1024];
    static ANCHOR: Once<[(&str, u64); 1]> = Once::new();
    let (way, sampler_cpu) = if has_second { (Way::Nmi, Some(0)) } else { (Way::Own, None) };
    let text = (&raw const machine::text_start as u64, &raw const machine::text_end as u64);
    let anchors = ANCHOR.call_once(|| [("kmain", kmain as *const () as u64)]);
    let tsc_hz = machine::CLOCK.wait().tsc_hz;
    let config = Config { way, sampler_cpu, tsc_hz, text, load: text.0, anchors, running: true, ..Config::new() };
    // SAFETY: this function runs once; nobody else names it.
    let meta = unsafe { (&raw mut META).as_mut_unchecked() };
    if let Err(error) = PROFILER.init(|| Setup { slots: &SLOTS[..1 + usize::from(has_second)], meta, config }) {
        let _ = writeln!(Log, "bare: nothing is sampled: {error}");
    }
    SAMPLES_OTHER.call_once(|| has_second);
}

/// The CPU that works gets its ring, after it has loaded an IDT with an NMI entry; from then on it is sampled. The
/// ring's memory is a power of two of words, mapped when this is called: a ring that is mapped lazily faults in the
/// NMI.
pub fn register(cpu: usize) {
    static mut RING: [MaybeUninit<u64>; DEFAULT_RING_WORDS] = [MaybeUninit::uninit(); DEFAULT_RING_WORDS];
    while cpu == 1 && !SAMPLES_OTHER.wait() {
        x86_64::instructions::hlt(); // It came so late that CPU 0 has not waited for it.
    }
    // SAFETY: one CPU works; nobody else names it.
    if let Err(error) = PROFILER.register(cpu, || unsafe { (&raw mut RING).as_mut_unchecked() }) {
        let _ = writeln!(Log, "bare: {error}");
    }
    PROFILER.context_name(1, "kmain");
}
