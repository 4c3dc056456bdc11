//! The port of kprof to this kernel: the functions that kprof calls, and the calls that this kernel makes at boot.
//!
//! In: calls from the boot, from each CPU, from the NMI entry. Out: facts about CPUs, stacks, text, tasks and time.
//! This port uses all features of kprof, to test them; a new port starts from `kernel-integration/ports/bare/`. A
//! function marked NMI may be called between any two instructions: no lock, no allocation, no print, no page fault, no
//! unbounded loop.

use core::fmt::Write as _;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use kprof::{
    Clock, Config, CpuSet, CpuSlot, DEFAULT_RING_WORDS, EntryFrame, ForeignStacks, Image, Kernel, NmiToken, Precision,
    Profiler, Registers, Setup, Task, Trigger,
};
use kprof_events::{EventKernel, EventSlot, Events, Lockup};

// The kernel's own names.
use super::trigger;
use crate::cpu::{self, CPUS, MAX_CPUS, apic, clock, entry, turns};
use crate::info::info;
use crate::log;
use crate::memory::{self, paging, stacks::STACK_BYTES};
use crate::random;
use crate::wait::{Reason, WaitQueue};

/// The threads that wait for records.
pub static READERS: WaitQueue = WaitQueue::new(Reason::Records);

/// The profiler of this kernel.
pub static PROFILER: Profiler<Port> = Profiler::new(Port);
static SLOTS: [CpuSlot; MAX_CPUS] = [const { CpuSlot::new() }; MAX_CPUS];

/// What this kernel counts and records beside samples.
pub static EVENTS: Events<Port> = Events::new(&PROFILER);
static EVENT_SLOTS: [EventSlot; MAX_CPUS] = [const { EventSlot::new() }; MAX_CPUS];

/// Where the caller is at each instruction of this build, because it has no frame pointers.
#[cfg(feature = "tables")]
static TABLE: spin::Once<kprof::UnwindTable> = spin::Once::new();

/// Checks the table that was written into this kernel's file after linking.
#[cfg(feature = "tables")]
fn load_table() {
    let bytes = kprof_port::unwind_room!(32 * 1024);
    TABLE.call_once(|| match kprof::UnwindTable::new(bytes, paging::build_id(), 0) {
        Ok(table) => table,
        Err(error) => panic!("kprof: {error}"),
    });
}

/// This kernel's implementation of [`Kernel`].
pub struct Port;

// SAFETY: `cpu` comes from the task register, which is different on each CPU. Stacks, kernel text and a loaded module
// stay mapped for ever. `read_user` walks the page tables. No function that is called in an NMI takes a lock or faults.
unsafe impl Kernel for Port {
    /// Called in an NMI, first in each. The number can come from the task register, from the NMI's own stack or from
    /// the APIC id, but never from GS, which may have the user's value. With a wrong number two CPUs use the same
    /// account and ring, and records are torn.
    #[inline]
    fn cpu(&self) -> usize {
        cpu::id_in_handler()
    }

    /// Called on the sampler CPU, once per tick. It may wait for the APIC, but not for the CPUs that it signals. If a
    /// CPU is not signalled its ticks stay `pending`. A CPU that is signalled without a tick counts a `foreign` NMI.
    fn signal(&self, cpus: &CpuSet<'_>) {
        cpus.iter().map(|cpu| CPUS[cpu].apic_id.load(Relaxed)).for_each(|apic_id| match trigger() {
            Trigger::Ipi => apic::send_ipi(apic_id, apic::SAMPLE),
            _ => apic::send_nmi(apic_id),
        });
    }

    /// Called on the sampler CPU, at each tick: whether `cpu` waits in `hlt` and no interrupt has begun. If so, the
    /// tick counts as idle and the CPU is not woken.
    fn is_halted(&self, cpu: usize) -> bool {
        CPUS[cpu].halted.load(Relaxed)
    }

    /// Called in an NMI, at the start of a walk and when the walk changes stacks; also in the middle of a switch. The
    /// declared range will be read. If it is too large, the NMI faults; if it is too small (or `None`), the stack is
    /// truncated there.
    #[inline(always)]
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        stack_range(cpu::id_in_handler(), address)
    }

    /// Only needed for the trigger `published`.
    #[inline(always)]
    fn foreign_stacks(&self) -> Option<&impl ForeignStacks> {
        Some(self)
    }

    /// Called in an NMI, for words that are not in `Config::text`: whether they are code of a module, which must stay
    /// mapped. Without this function stacks are truncated there.
    #[inline(always)]
    fn is_text(&self, address: u64) -> bool {
        memory::module::is_text(address)
    }

    /// Called in an NMI, once per sample. Ids are never used twice. Samples of a task that is wrongly called idle are
    /// filtered, and only the counter `idle` shows them. If the idle task is not called idle, the picture is full of
    /// `hlt`.
    fn task(&self) -> Task {
        let cpu = cpu::this_in_handler();
        Task { id: cpu.task.load(Relaxed), idle: cpu.idle.load(Relaxed) }
    }

    /// Called in an NMI, for user frames (`include user`), with any address. It walks the page tables in software.
    /// Without this function there are no user frames.
    fn read_user(&self, address: u64) -> Option<u64> {
        paging::read_user_word(address)
    }

    /// All stubs of this kernel leave a marker word. Without this constant every return address is checked, which takes
    /// time.
    const MARKED_ENTRIES: bool = true;

    /// Called in an NMI, once per sample: whether this is code of an entry stub. If the answer is wrongly no, samples
    /// in a stub have wrong callers.
    #[inline(always)]
    fn is_entry_code(&self, address: u64) -> bool {
        entry::is_stub(address)
    }

    /// Called in an NMI, once or twice. Without this function stacks are walked by frame pointers.
    #[cfg(feature = "tables")]
    #[inline(always)]
    fn unwind_table(&self) -> Option<&kprof::UnwindTable> {
        TABLE.get()
    }

    /// Called in an NMI, for samples in a stub whose frame is not built yet, or is already removed. Without this
    /// function such a sample is truncated.
    fn entry_frame(&self, at: &Registers) -> Option<EntryFrame> {
        entry::frame_at(at)
    }

    /// Called on the sampler CPU, between ticks. It sleeps in `hlt` with a timer, and may return early. If it spins
    /// instead, the other CPUs of a virtual machine lose a third of their speed. If it returns late, the rate is not
    /// reached.
    fn sleep_ns(&self, ns: u64) {
        turns::sleep_ns(ns);
    }

    /// Called on the sampler CPU: a reader that waits in `wait MS` has something to read. Without this function the
    /// daemon polls.
    fn wake_reader(&self) {
        READERS.wake();
    }
}

// SAFETY: kernel stacks stay mapped for ever, so a word of one can be read at any time.
unsafe impl ForeignStacks for Port {
    #[inline(always)]
    fn foreign_stack_range(&self, cpu: usize, address: u64) -> Option<Range<u64>> {
        stack_range(cpu, address)
    }

    unsafe fn read_foreign(&self, _cpu: usize, address: u64) -> Option<u64> {
        // SAFETY: the caller promises that `foreign_stack_range` has declared this word.
        Some(unsafe { (address as *const u64).read_volatile() })
    }
}

/// The stack of this CPU that contains `address`.
#[inline(always)]
fn stack_range(cpu: usize, address: u64) -> Option<Range<u64>> {
    let base = address & !(STACK_BYTES - 1);
    CPUS[cpu].has_stack(base).then_some(base..base + STACK_BYTES)
}

impl EventKernel for Port {
    const WAIT_REASONS: &'static [&'static str] = Reason::NAMES;

    /// Called on the sampler CPU when it has found a lockup. It must not wait for a lock that the CPU may hold. Without
    /// this function the report is only in the profile.
    fn locked_up(&self, lockup: &Lockup<'_>) {
        let end_ns = clock::now_ns() + 1_000_000;
        let mut out = log::Urgent::new(|| clock::now_ns() < end_ns);
        // If a write to the log fails, there is no other place to report it.
        let _ = writeln!(out, "kprof: {lockup}").and_then(|()| lockup.export(&mut out));
    }

    /// Called for a dynamic probe, in ordinary code. All memory is mapped a second time, writable and not executable.
    /// Without this function there are no probes.
    unsafe fn patch(&self, address: u64, byte: u8) -> bool {
        // SAFETY: the caller's promise.
        unsafe { paging::write_code(address, byte) }
    }
}

/// Called once, on the boot CPU, as soon as there is memory and a calibrated clock. A wrong `tsc_hz` makes rate and
/// times wrong. A wrong `text` truncates every stack. Without `anchors`, symbols of another build are not detected.
pub fn init() {
    #[cfg(feature = "tables")]
    load_table();
    let text = paging::text_range();
    let setup = || Setup {
        slots: &SLOTS[..cpu::count()],
        meta: memory::allocate_words(DEFAULT_RING_WORDS / 4),
        config: Config {
            sampler_cpu: cpu::sampler(),
            trigger: trigger(),
            hz: info().number("hz", 1000) as u32,
            seed: info().number("seed", 42),
            boot: info().number("boot-id", random::next() | 1),
            running: info().option("boot-profile").is_some(),
            can_wait: true,
            lockup_ms: info().number("lockup", 0) as u32,
            tsc_hz: clock::tsc_hz(),
            clock: if info().option("accel") == Some("icount") { Clock::Instructions } else { Clock::Tsc },
            precision: precision(),
            machine: info().option("machine").unwrap_or(""),
            load: text.0,
            text,
            build_id: paging::build_id(),
            anchors: anchors(),
            ..Config::new()
        },
    };
    if let Err(error) = EVENTS.init(|| &EVENT_SLOTS, setup) {
        log!("kprof: nothing is sampled: {error}");
    }
    super::probes::register();
    PROFILER.image(&Image { name: "kernel", load: text.0, text, build_id: paging::build_id() });
}

/// Where ticks are taken, by what runs the machine: QEMU takes interrupts between blocks if each CPU has a thread.
fn precision() -> Precision {
    match info().option("accel") {
        Some("icount" | "kvm") => Precision::Instruction,
        Some("tcg") => Precision::Block,
        _ => Precision::Unknown,
    }
}

/// Symbols with which kprof-fold detects a wrong symbol file.
fn anchors() -> &'static [(&'static str, u64)] {
    static ANCHORS: spin::Once<[(&str, u64); 2]> = spin::Once::new();
    ANCHORS.call_once(|| [("kmain", paging::kmain_address()), ("trap_stub_0", entry::stub(0))])
}

/// Called on each CPU except the sampler CPU, after it has loaded an IDT with an NMI entry. If it is called too early,
/// the first tick is a triple fault. If it is never called, `kprof-fold doctor` says "no samples from CPU n". The
/// memory of a ring is a power of two of words, which no other code uses; if it is mapped lazily, the NMI faults. The
/// sampler CPU calls `PROFILER.run_sampler(cpu)` instead of its scheduler, and never returns.
pub fn register(cpu: usize) {
    // This is a closure, so that without the feature it adds no code.
    let words = || info().number("ring-words", DEFAULT_RING_WORDS as u64) as usize;
    if let Err(error) = PROFILER.register(cpu, || memory::allocate_words(words())) {
        log!("kprof: cpu {cpu} is not sampled: {error}");
    }
}

/// Called in the Rust part of the NMI entry, with the interrupted registers: [`Registers`], or a frame that implements
/// [`kprof::Interrupted`].
pub fn on_nmi(frame: &entry::TrapFrame) {
    // SAFETY: the NMI stub calls this on its own stack, with the registers that it has interrupted.
    PROFILER.on_nmi(&unsafe { NmiToken::new() }, frame);
}
