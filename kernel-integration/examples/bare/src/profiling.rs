//! The port of kprof to this kernel: all that it has to write. docs/porting.md explains each part, step by step.

use crate::{Log, kmain, machine};
use core::fmt::Write;
use core::{mem::MaybeUninit, ops::Range};
use kprof::{Clock, Config, Context, CpuSet, CpuSlot, Kernel, NmiToken, Profiler, Setup, Way};
use kprof::{DEFAULT_RING_WORDS, Interrupted, format::marker::Marker};
use kprof_port::entry::{SavedFrame, is_stub};
use kprof_port::timer::{Sleep, Timer};
use kprof_port::{command::Command, counted::counts_instructions, entry_stub, gate, tss};
use machine::{APIC, MAX_CPUS};
use spin::Once;

const NMI_IST: u8 = 1;
/// The timer's vector: no one else's.
const TIMER_VECTOR: u8 = 0xe0;

pub static PROFILER: Profiler<Port> = Profiler::new(Port);
/// CPU 0's timer: it samples.
static TIMER: Once<Timer> = Once::new();
static CPUS: Once<usize> = Once::new();
pub struct Port;

// SAFETY: CPUs by APIC id; stacks are statics, mapped with the text for ever; no user memory; no hook locks or faults.
unsafe impl Kernel for Port {
    fn cpu(&self) -> usize {
        machine::cpu()
    }

    fn signal(&self, cpus: &CpuSet<'_>) {
        cpus.iter().for_each(|cpu| _ = APIC.send(cpu as u32, Command::Nmi));
    }

    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        let cpu = machine::cpu();
        [cpu, MAX_CPUS + cpu].map(machine::stack).into_iter().find(|stack| stack.contains(&address))
    }

    const MARKED_ENTRIES: bool = true;

    fn is_entry_code(&self, address: u64) -> bool {
        is_stub(nmi_entry, address) || is_stub(timer_entry, address)
    }

    fn context(&self) -> Context {
        Context { id: 1, idle: false }
    }

    fn sleep_ns(&self, ns: u64) {
        TIMER.wait().sleep_ns(ns);
    }
}

entry_stub!(nmi_entry, Marker::Exception(2), nmi);
entry_stub!(timer_entry, Marker::Interrupt(TIMER_VECTOR), timer);

extern "C" fn nmi(frame: &SavedFrame) {
    // SAFETY: called by the NMI's stub only, with what it interrupted, on the NMI's own stack.
    PROFILER.on_nmi(&unsafe { NmiToken::new() }, frame);
}

extern "C" fn timer(frame: &SavedFrame) {
    if *CPUS.wait() == 1 {
        // SAFETY: called by the timer's stub only, with what it interrupted, interrupts off.
        let own = PROFILER.on_timer(&unsafe { NmiToken::new() }, &frame.registers());
        TIMER.wait().start_ns(own.next_ns);
    }
    APIC.end_of_interrupt();
}

/// On each CPU, its tables loaded: the NMI's stack and gate, and the timer's gate, in these tables.
fn install(cpu: usize) {
    // SAFETY: a static stack, used for nothing else; the tables are statics of this kernel; nothing is sent yet.
    let done = unsafe { tss::set_stack(NMI_IST, machine::stack(MAX_CPUS + cpu).end) };
    done.expect("this CPU has a task state segment");
    for (vector, stub, ist) in [(2, nmi_entry as unsafe extern "C" fn(), NMI_IST), (TIMER_VECTOR, timer_entry, 0)] {
        // SAFETY: as above; the stubs were made for these vectors.
        unsafe { gate::set(vector, stub, ist) }.expect("the table has 256 gates");
    }
}

/// CPU 0: sets the profiler up. It samples the others; where there are none, it samples itself.
pub fn init(cpus: usize) {
    static SLOTS: [CpuSlot; MAX_CPUS] = [const { CpuSlot::new() }; MAX_CPUS];
    static mut META: [MaybeUninit<u64>; 1024] = [MaybeUninit::uninit(); 1024];
    static ANCHOR: Once<[(&str, u64); 1]> = Once::new();
    let (way, sampler_cpu) = if cpus > 1 { (Way::Nmi, Some(0)) } else { (Way::Own, None) };
    let text = (&raw const machine::text_start as u64, &raw const machine::text_end as u64);
    let anchors = ANCHOR.call_once(|| [("kmain", kmain as *const () as u64)]);
    let (clock, accel, sleep) = match counts_instructions() {
        true => (Clock::Instructions, "icount", Sleep::Sliced),
        false => (Clock::Tsc, "", Sleep::Whole),
    };
    let config = Config { way, sampler_cpu, tsc_hz: machine::clock().tsc_hz, clock, accel, text, ..Config::new() };
    let config = Config { load: text.0, anchors, running: true, ..config };
    // SAFETY: this function runs once; nobody else names it.
    let meta = unsafe { (&raw mut META).as_mut_unchecked() };
    if let Err(error) = PROFILER.init(|| Setup { slots: &SLOTS[..cpus], meta, config }) {
        let _ = writeln!(Log, "bare: nothing is sampled: {error}");
    }
    TIMER.call_once(|| Timer::take(APIC, TIMER_VECTOR, machine::clock().timer_hz, sleep));
    PROFILER.context_name(1, "kmain");
    CPUS.call_once(|| cpus);
}

/// Each CPU, its tables loaded. From here on it is sampled, or, on the sampler's, does nothing else.
pub fn begin(cpu: usize) {
    static mut RINGS: [[MaybeUninit<u64>; DEFAULT_RING_WORDS]; MAX_CPUS] =
        [[MaybeUninit::uninit(); DEFAULT_RING_WORDS]; MAX_CPUS];
    install(cpu);
    let cpus = *CPUS.wait();
    if cpu == 0 && cpus > 1 {
        PROFILER.run_sampler(cpu);
    }
    // SAFETY: each CPU comes here once, and takes its own.
    let ring = unsafe { (&raw mut RINGS[cpu]).as_mut_unchecked() };
    if let Err(error) = PROFILER.register(cpu, || ring) {
        let _ = writeln!(Log, "bare: CPU {cpu} is not sampled: {error}");
    }
    if cpus == 1 {
        TIMER.wait().start_ns(1);
    }
}
