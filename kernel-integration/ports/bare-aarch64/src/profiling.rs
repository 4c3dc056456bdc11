//! The port of kprof to this kernel: docs/porting.md explains it step by step. Code marked NMI can run between any two
//! instructions: no lock, allocation, print, page fault or unbounded loop.

use crate::{Log, kmain, machine};
use core::fmt::{Display, Write};
use core::{mem::MaybeUninit, ops::Range};
use kprof::{Config, CpuSet, CpuSlot, DEFAULT_RING_WORDS as WORDS, Interrupted, Kernel, NmiToken, Profiler};
use kprof::{Registers, Setup, Task, Trigger};
use machine::MAX_CPUS;
use spin::Once;

/// How a tick reaches a CPU. FIQs stay unmasked while IRQs are masked, so they are this kernel's NMIs. With the feature
/// `irq` a tick is an IRQ, which does not see code that masks IRQs; the header of the profile says so.
pub const IS_FIQ: bool = !cfg!(feature = "irq");

pub static PROFILER: Profiler<Port> = Profiler::new(Port);
static READY: Once<()> = Once::new();
pub struct Port;

// SAFETY: CPUs by their affinity; stacks are statics, mapped with the text for ever; no user memory; no hook locks or
// faults.
unsafe impl Kernel for Port {
    fn cpu(&self) -> usize {
        machine::cpu() // NMI: by MPIDR_EL1; never by TPIDR_EL0, which user code can set
    }

    fn signal(&self, cpus: &CpuSet<'_>) {
        cpus.iter().for_each(|cpu| machine::signal(cpu, IS_FIQ)); // sampler CPU, once per tick
    }

    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        Some(machine::stack(machine::cpu())).filter(|stack| stack.contains(&address)) // NMI; `None` truncates
    }

    const MARKED_ENTRIES: bool = true; // every entry stub leaves a marker word on the stack

    fn is_entry_code(&self, address: u64) -> bool {
        machine::is_stub(address) // NMI; no tick arrives there, because an exception masks IRQs and FIQs
    }

    fn task(&self) -> Task {
        Task { id: 1, idle: false } // NMI; an id is never used twice
    }

    fn sleep_ns(&self, ns: u64) {
        machine::sleep_ns(ns); // sampler CPU, between ticks; may return early
    }
}

/// What an entry stub of `boot` has saved, lowest address first: x29, the marker, ELR_EL1, SPSR_EL1, SP, x30.
pub struct Saved([u64; 6]);

impl Interrupted for Saved {
    #[inline(always)]
    fn registers(&self) -> Registers {
        let [fp, _, pc, spsr, sp, link] = self.0;
        Registers { pc, sp, fp, link, from_user: spsr & 0xf == 0, interrupts_on: spsr & 1 << 7 == 0 }
    }
}

/// Called by the stubs of IRQs and FIQs.
#[unsafe(no_mangle)]
extern "C" fn interrupted(saved: &Saved) {
    if machine::take(IS_FIQ) {
        // SAFETY: called by the stub only, with what it interrupted, above the interrupted code's part of the stack.
        PROFILER.on_nmi(&unsafe { NmiToken::new() }, saved);
    }
}

/// On CPU 0, which samples the others: sets up the profiler.
fn init(cpus: usize) {
    static SLOTS: [CpuSlot; MAX_CPUS] = [const { CpuSlot::new() }; MAX_CPUS];
    static mut META: [MaybeUninit<u64>; 1024] = [MaybeUninit::uninit(); 1024];
    static ANCHOR: Once<[(&str, u64); 1]> = Once::new();
    let trigger = if IS_FIQ { Trigger::Nmi } else { Trigger::Ipi };
    let text = (&raw const machine::text_start as u64, &raw const machine::text_end as u64);
    let anchors = ANCHOR.call_once(|| [("kmain", kmain as *const () as u64)]);
    let (sampler_cpu, tsc_hz, load, running) = (Some(0), machine::hz(), text.0, true);
    let config = Config { trigger, sampler_cpu, tsc_hz, text, load, anchors, running, ..Config::new() };
    // SAFETY: this function runs once, and no other code can access this static.
    let meta = unsafe { (&raw mut META).as_mut_unchecked() };
    tell(PROFILER.init(|| Setup { slots: &SLOTS[..cpus], meta, config }));
    PROFILER.task_name(1, "kmain");
    READY.call_once(|| ());
}

/// On each CPU; `cpus` is set on CPU 0. From then on it is sampled or samples for ever.
pub fn begin(cpu: usize, cpus: usize) {
    static mut RINGS: [[MaybeUninit<u64>; WORDS]; MAX_CPUS] = [[MaybeUninit::uninit(); WORDS]; MAX_CPUS];
    if cpu == 0 {
        init(cpus);
        tell(PROFILER.check());
        PROFILER.run_sampler(cpu);
    }
    READY.wait();
    // SAFETY: each CPU comes here once, and takes its own.
    tell(PROFILER.register(cpu, || unsafe { (&raw mut RINGS[cpu]).as_mut_unchecked() }));
    tell(PROFILER.check());
}

/// Writes an error to the log.
pub fn tell(done: Result<(), impl Display>) {
    if let Err(error) = done {
        let _ = writeln!(Log, "bare: kprof: {error}");
    }
}
