//! The port of kprof to this kernel: docs/porting.md explains it step by step. Code marked NMI can run between any two
//! instructions: no lock, allocation, print, page fault or unbounded loop.

use crate::memory::{self, MAX_CPUS, number};
use crate::{kmain, machine, tell, timer};
use core::{mem::MaybeUninit, ops::Range};
use kprof::{Config, CpuSet, CpuSlot, DEFAULT_RING_WORDS as WORDS, Interrupted, Kernel, NmiToken, Profiler};
use kprof::{Registers, Setup, Task, Trigger};
use spin::Once;

/// Ticks are NMIs: interrupts that this kernel never masks. With the feature `irq` they are ordinary interrupts, which
/// do not see code that masks interrupts; the header of the profile says so.
pub const IS_NMI: bool = !cfg!(feature = "irq");

pub static PROFILER: Profiler<Port> = Profiler::new(Port);
static READY: Once<()> = Once::new();
pub struct Port;

// SAFETY: CPUs by what only the kernel sets; stacks are statics, never unmapped, nor is the text; no user memory; no
// hook locks or faults.
unsafe impl Kernel for Port {
    fn cpu(&self) -> usize {
        machine::cpu() // NMI: never by a register that user code can set
    }

    fn signal(&self, cpus: &CpuSet<'_>) {
        cpus.iter().for_each(machine::signal); // sampler CPU, once per tick
    }

    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        Some(memory::stack(machine::cpu())).filter(|stack| stack.contains(&address)) // NMI; `None` truncates
    }

    const MARKED_ENTRIES: bool = true; // every entry stub leaves a marker word on the stack

    fn is_entry_code(&self, address: u64) -> bool {
        memory::is_stub(address) // NMI
    }

    fn task(&self) -> Task {
        Task { id: 1, idle: false } // NMI; an id is never used twice
    }

    fn sleep_ns(&self, ns: u64) {
        machine::sleep_ns(ns); // sampler CPU, between ticks; may return early
    }
}

/// What an entry stub has saved, lowest address first: frame pointer, marker, PC, status, SP, link register.
#[repr(transparent)]
pub struct Saved(pub [u64; 6]);

impl Interrupted for Saved {
    #[inline(always)]
    fn registers(&self) -> Registers {
        let [fp, _, pc, status, sp, link] = self.0;
        let (from_user, interrupts_on) = machine::mode(status);
        Registers { pc, sp, fp, link, from_user, interrupts_on }
    }
}

/// A tick has arrived. NMI.
pub fn tick(saved: &Saved) {
    // SAFETY: called by entry stubs only, with what they interrupted, above the interrupted code's part of the stack.
    PROFILER.on_nmi(&unsafe { NmiToken::new() }, saved);
}

/// On CPU 0: sets up the profiler. CPU 0 samples the others; if there are none, it samples itself.
fn init(cpus: usize) {
    static SLOTS: [CpuSlot; MAX_CPUS] = [const { CpuSlot::new() }; MAX_CPUS];
    static mut META: [MaybeUninit<u64>; 1024] = [MaybeUninit::uninit(); 1024];
    static ANCHOR: Once<[(&str, u64); 1]> = Once::new();
    let sent = if IS_NMI { Trigger::Nmi } else { Trigger::Ipi };
    let (trigger, sampler_cpu) = if cpus > 1 { (sent, Some(0)) } else { (Trigger::Timer, None) };
    let text = (&raw const memory::text_start as u64, &raw const memory::text_end as u64);
    let anchors = ANCHOR.call_once(|| [("kmain", kmain as *const () as u64)]);
    let (tsc_hz, running, cycle_counter) = (machine::hz(), true, number(b"cycles=") != Some(0));
    let config = Config { trigger, sampler_cpu, tsc_hz, text, anchors, running, cycle_counter, ..Config::new() };
    let [seed, hz] = [number(b"seed=").unwrap_or(config.seed), number(b"hz=").unwrap_or(config.hz.into())];
    let config = Config { seed, hz: hz as u32, event: timer::event(), ..config };
    // SAFETY: this function runs once, and no other code can access this static.
    let meta = unsafe { (&raw mut META).as_mut() }.unwrap();
    tell(PROFILER.init(|| Setup { slots: &SLOTS[..cpus], meta, config }));
    PROFILER.task_name(1, "kmain");
    READY.call_once(|| ());
}

/// On each CPU; `cpus` is set on CPU 0. From then on it is sampled, or it samples the others and does not return.
pub fn begin(cpu: usize, cpus: usize) {
    static mut RINGS: [[MaybeUninit<u64>; WORDS]; MAX_CPUS] = [[MaybeUninit::uninit(); WORDS]; MAX_CPUS];
    if cpu == 0 {
        init(cpus);
    }
    if cpu == 0 && cpus > 1 {
        tell(PROFILER.check());
        PROFILER.run_sampler(cpu);
    }
    READY.wait();
    // SAFETY: each CPU comes here once, and takes its own.
    tell(PROFILER.register(cpu, || unsafe { (&raw mut RINGS[cpu]).as_mut() }.unwrap()));
    tell(PROFILER.check());
    if cpu == 0 {
        timer::begin();
    }
}
