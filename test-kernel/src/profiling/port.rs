//! The port of kprof to this kernel: what it answers when kprof asks, and what it calls at boot.
//!
//! In: calls from the boot, from each CPU, from the NMI entry. Out: facts about CPUs, stacks, text, contexts and time.
//! It tries everything that kprof can do; a new port starts from `kernel-integration/ports/bare/`. What is marked NMI
//! may be called between any two instructions: no lock, no allocation, no print, no page fault, no unbounded loop.

use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use kprof::{
    Clock, Config, Context, CpuSet, CpuSlot, DEFAULT_RING_WORDS, EntryFrame, Image, Kernel, NmiToken, Profiler,
    Registers, Setup, Way,
};

// The kernel's own names.
use super::way;
use crate::cpu::{self, CPUS, MAX_CPUS, apic, clock, entry, turns};
use crate::info::info;
use crate::log;
use crate::memory::{self, paging, stacks::STACK_BYTES};
use crate::random;
use crate::wait::WaitQueue;

/// Who waits for records.
pub static READERS: WaitQueue = WaitQueue::new();

/// The profiler of this kernel.
pub static PROFILER: Profiler<Port> = Profiler::new(Port);
static SLOTS: [CpuSlot; MAX_CPUS] = [const { CpuSlot::new() }; MAX_CPUS];

/// What kprof asks this kernel.
pub struct Port;

// SAFETY: `cpu` is the task register's, one per CPU. Stacks, kernel text and a loaded module stay mapped for ever, so
// `read_foreign` may read what was declared at any time; `read_user` walks the page tables. No NMI hook locks or
// faults.
unsafe impl Kernel for Port {
    /// NMI, first thing in each. From the task register, the NMI's own stack or the APIC id; never from GS as it
    /// stands. A lie mixes up the accounts and rings of two CPUs: records are torn.
    #[inline]
    fn cpu(&self) -> usize {
        cpu::id_in_handler()
    }

    /// Sampler CPU, once per tick. May wait for the APIC, not for the CPUs it reaches. A CPU left out has `pending`
    /// ticks for ever; one that was not asked for counts a `foreign`.
    fn signal(&self, cpus: &CpuSet<'_>) {
        cpus.iter().map(|cpu| CPUS[cpu].apic_id.load(Relaxed)).for_each(|apic_id| match way() {
            Way::Ipi => apic::send_ipi(apic_id, apic::SAMPLE),
            _ => apic::send_nmi(apic_id),
        });
    }

    /// Sampler CPU, at each tick: does `cpu` wait in `hlt`, no interrupt begun? It counts as idle and is not woken
    /// then.
    fn is_halted(&self, cpu: usize) -> bool {
        CPUS[cpu].halted.load(Relaxed)
    }

    /// NMI, at the start of a walk and where it changes stacks; also in the middle of a switch. What it declares is
    /// read: a range that is too large faults in the NMI, one that is too small (or None) cuts the stack there, marked
    /// `[cut]`.
    #[inline(always)]
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        self.foreign_stack_range(cpu::id_in_handler(), address)
    }

    /// The same for another CPU, on the sampler CPU: for the way `published` only. Leave it out for all other ways.
    #[inline(always)]
    fn foreign_stack_range(&self, cpu: usize, address: u64) -> Option<Range<u64>> {
        let base = address & !(STACK_BYTES - 1);
        CPUS[cpu].has_stack(base).then_some(base..base + STACK_BYTES)
    }

    /// A word of such a stack, sampler CPU, for the way `published` only. Must survive that the stack is unmapped
    /// meanwhile.
    unsafe fn read_foreign(&self, _cpu: usize, address: u64) -> Option<u64> {
        // SAFETY: the caller's promise: a word that `foreign_stack_range` declared, and kernel stacks stay mapped for
        // ever.
        Some(unsafe { (address as *const u64).read_volatile() })
    }

    /// NMI, for words that are not in `Config::text`: code of modules, which stays mapped. Left out, stacks are cut
    /// there.
    #[inline(always)]
    fn is_text(&self, address: u64) -> bool {
        memory::module::is_text(address)
    }

    /// NMI, once per sample. Ids are never used twice. A context wrongly called idle is left out of the picture, and
    /// only the count `idle` shows it; an idle one that is not called so fills the picture with `hlt`.
    fn context(&self) -> Context {
        let cpu = cpu::this_in_handler();
        Context { id: cpu.context.load(Relaxed), idle: cpu.idle.load(Relaxed) }
    }

    /// NMI, for user frames (`keep user`): walks the page tables by software, any address may come. Left out: none.
    fn read_user(&self, address: u64) -> Option<u64> {
        paging::read_user_word(address)
    }

    /// All stubs of this kernel leave a marker word. Left out, every return address is looked at, which costs time.
    const MARKED_ENTRIES: bool = true;

    /// NMI, once per sample: is this code of an entry stub? A wrong no gives samples in a stub wrong callers.
    #[inline(always)]
    fn is_entry_code(&self, address: u64) -> bool {
        entry::is_stub(address)
    }

    /// NMI, for samples in a stub, whose frame is not there yet, or no more. Left out, such a sample is truncated.
    fn entry_frame(&self, at: &Registers) -> Option<EntryFrame> {
        entry::frame_at(at)
    }

    /// Sampler CPU, between ticks. Sleeps in `hlt` by a one-shot timer; may return early. If it spins, the other CPUs
    /// of a virtual machine lose a third of their speed; if it comes back late, the rate is not reached.
    fn sleep_ns(&self, ns: u64) {
        turns::sleep_ns(ns);
    }

    /// Sampler CPU: somebody who waits in `wait MS` has something to read. Left out, the daemon polls.
    fn wake_reader(&self) {
        READERS.wake();
    }
}

/// Once, on the boot CPU, as soon as memory and a calibrated clock are there. A wrong `tsc_hz` makes rate and times
/// wrong, a wrong `text` cuts every stack, missing `anchors` let the symbols of another build go unnoticed.
pub fn init() {
    let text = paging::text_range();
    let done = PROFILER.init(|| Setup {
        slots: &SLOTS[..cpu::count()],
        meta: memory::allocate_words(DEFAULT_RING_WORDS / 4),
        config: Config {
            sampler_cpu: cpu::sampler(),
            way: way(),
            hz: info().number("hz", 1000) as u32,
            seed: info().number("seed", 42),
            boot: info().number("boot-id", random::next() | 1),
            running: info().option("boot-profile").is_some(),
            can_wait: true,
            backoff_on_merged: info().option("accel") != Some("tcg"),
            tsc_hz: clock::tsc_hz(),
            clock: if info().option("accel") == Some("icount") { Clock::Instructions } else { Clock::Tsc },
            accel: info().option("accel").unwrap_or(""),
            load: text.0,
            text,
            build_id: paging::build_id(),
            anchors: anchors(),
            ..Config::new()
        },
    });
    if let Err(error) = done {
        log!("kprof: nothing is sampled: {error}");
    }
    PROFILER.image(&Image { name: "kernel", load: text.0, text, build_id: paging::build_id() });
}

/// Symbols by which a wrong symbol file is noticed.
fn anchors() -> &'static [(&'static str, u64)] {
    static ANCHORS: spin::Once<[(&str, u64); 2]> = spin::Once::new();
    ANCHORS.call_once(|| [("kmain", paging::kmain_address()), ("trap_stub_0", entry::stub(0))])
}

/// On each CPU but the sampler's, once it has loaded an IDT with an NMI entry. Too early, the first tick is a triple
/// fault; never, `kprof-fold doctor` says "no samples from CPU n". A ring's memory is a power of two of words, nobody
/// else's; mapped lazily, it faults in the NMI. The sampler's calls `PROFILER.run_sampler(cpu)` in place of its
/// scheduler: for ever.
pub fn register(cpu: usize) {
    // In the closure, so that nothing is left of it without the feature.
    let words = || info().number("ring-words", DEFAULT_RING_WORDS as u64) as usize;
    if let Err(error) = PROFILER.register(cpu, || memory::allocate_words(words())) {
        log!("kprof: cpu {cpu} is not sampled: {error}");
    }
}

/// In the NMI entry's Rust half, with what it interrupted: [`Registers`], or a frame that is [`kprof::Interrupted`].
pub fn on_nmi(frame: &entry::TrapFrame) {
    // SAFETY: the NMI stub calls this with the registers it interrupted, on its own stack.
    PROFILER.on_nmi(&unsafe { NmiToken::new() }, frame);
}
