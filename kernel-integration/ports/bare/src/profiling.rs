//! The port of kprof to this kernel, and the template for other ports: docs/porting.md explains it step by step. Code
//! marked NMI can run between any two instructions: no lock, allocation, print, page fault or unbounded loop.

use crate::{kmain, machine, more, tell};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use core::{mem::MaybeUninit, ops::Range};
use kprof::clock::Calibration;
use kprof::{Config, CpuSet, CpuSlot, Kernel, NmiToken, Profiler, Setup, Task, Trigger};
use kprof::{DEFAULT_RING_WORDS, Interrupted, format::marker::Marker};
use kprof_port::entry::{SavedFrame, is_stub};
use kprof_port::{command::Command, counted, entry_stub, gate, timer::Timer, tss};
use machine::{APIC, APIC_IDS, MAX_CPUS};
use spin::Once;

const NMI_IST: u8 = 1;
const TIMER_VECTOR: u8 = 0xe0; // used by nothing else

pub static PROFILER: Profiler<Port> = Profiler::new(Port);
/// The timer of CPU 0, the sampler CPU.
static TIMER: Once<Timer> = Once::new();
static CPUS: Once<usize> = Once::new();
/// NMIs that the APIC did not send. Their ticks are "not taken" in the profile; this is why.
pub static UNSENT: AtomicUsize = AtomicUsize::new(0);
type Ring = [MaybeUninit<u64>; DEFAULT_RING_WORDS];
pub struct Port;

// SAFETY: CPUs by APIC id; stacks are statics, mapped with the text for ever; no user memory; no hook locks or faults.
unsafe impl Kernel for Port {
    fn cpu(&self) -> usize {
        machine::cpu() // NMI: by a table of APIC ids or the task register; never by GS, which may be the user's
    }

    fn signal(&self, cpus: &CpuSet<'_>) {
        let failed = cpus.iter().filter(|cpu| !APIC.send(APIC_IDS[*cpu].load(Relaxed), Command::Nmi));
        UNSENT.fetch_add(failed.count(), Relaxed); // sampler CPU, once per tick
    }

    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        let cpu = machine::cpu(); // NMI, also amid a switch; a range that is too large faults, `None` truncates
        [cpu, MAX_CPUS + cpu].map(machine::stack).into_iter().find(|stack| stack.contains(&address))
    }

    const MARKED_ENTRIES: bool = true; // every entry stub leaves a marker word on the stack

    fn is_entry_code(&self, address: u64) -> bool {
        // NMI; a wrong `false` gives wrong callers
        is_stub(nmi_entry, address) || is_stub(timer_entry, address) || more::is_entry_code(address)
    }

    fn task(&self) -> Task {
        Task { id: 1, idle: false } // NMI; an id is never used twice
    }

    fn sleep_ns(&self, ns: u64) {
        TIMER.wait().sleep_ns(ns); // sampler CPU, between ticks; may return early
    }

    more::hooks!();
}

entry_stub!(nmi_entry, Marker::Exception(2), nmi);
entry_stub!(timer_entry, Marker::Interrupt(TIMER_VECTOR), timer);

extern "C" fn nmi(frame: &SavedFrame) {
    // SAFETY: called by the NMI's stub only, with what it interrupted, on the NMI's own stack.
    PROFILER.on_nmi(&unsafe { NmiToken::new() }, frame);
}

extern "C" fn timer(frame: &SavedFrame) {
    // SAFETY: called by the timer's stub only, with what it interrupted, interrupts off.
    let tick = PROFILER.on_timer(&unsafe { NmiToken::new() }, &frame.registers());
    if *CPUS.wait() == 1 {
        TIMER.wait().start_ns(tick.next_ns);
    }
    APIC.end_of_interrupt();
}

/// On CPU 0: sets up the profiler. CPU 0 samples the others; if there are none, it samples itself.
fn init(cpus: usize) {
    static SLOTS: [CpuSlot; MAX_CPUS] = [const { CpuSlot::new() }; MAX_CPUS];
    static mut META: [MaybeUninit<u64>; 1024] = [MaybeUninit::uninit(); 1024];
    static ANCHOR: Once<[(&str, u64); 1]> = Once::new();
    let (trigger, sampler_cpu) = if cpus > 1 { (Trigger::Nmi, Some(0)) } else { (Trigger::Timer, None) };
    let text = (&raw const machine::text_start as u64, &raw const machine::text_end as u64);
    let anchors = ANCHOR.call_once(|| [("kmain", kmain as *const () as u64)]);
    let Calibration { tsc_hz, timer_hz } = machine::clock();
    let (clock, running) = (counted::clock(), true);
    let config = Config { trigger, sampler_cpu, tsc_hz, clock, text, anchors, running, ..Config::new() };
    // SAFETY: this function runs once, and no other code can access this static.
    let meta = unsafe { (&raw mut META).as_mut() }.unwrap();
    tell(more::init(|| Setup { slots: &SLOTS[..cpus], meta, config }));
    TIMER.call_once(|| Timer::take(APIC, TIMER_VECTOR, timer_hz, clock.into()));
    PROFILER.task_name(1, "kmain");
    CPUS.call_once(|| cpus);
}

/// On each CPU, after its tables are loaded; `cpus` is set on CPU 0. From then on it is sampled or samples for ever.
pub fn begin(cpu: usize, cpus: usize) {
    static mut RINGS: [Ring; MAX_CPUS] = [[MaybeUninit::uninit(); DEFAULT_RING_WORDS]; MAX_CPUS];
    // SAFETY: a static stack, used for nothing else; the tables are this kernel's own statics; nothing comes yet.
    unsafe {
        tss::set_stack(NMI_IST, machine::stack(MAX_CPUS + cpu).end).expect("this CPU has a task state segment");
        gate::set(2, nmi_entry, NMI_IST).expect("256 gates");
        gate::set(TIMER_VECTOR, timer_entry, 0).expect("256 gates");
    }
    if cpu == 0 {
        init(cpus);
    }
    let cpus = *CPUS.wait();
    if cpu == 0 && cpus > 1 {
        tell(PROFILER.check());
        PROFILER.run_sampler(cpu);
    }
    // SAFETY: each CPU comes here once, and takes its own.
    tell(PROFILER.register(cpu, || unsafe { (&raw mut RINGS[cpu]).as_mut() }.unwrap()));
    tell(PROFILER.check());
    if cpus == 1 {
        TIMER.wait().start_ns(1);
    }
}
