//! The CPUs: their blocks, tables, entry stubs, local APIC and clock.
//!
//! A CPU's number is its index in [`CPUS`]. It is read from the task register ([`id`]), so it is right at any
//! instruction, in an NMI too, without trusting GS.

#[cfg(feature = "profiling")]
pub mod alarm;
pub mod apic;
pub mod clock;
pub mod entry;
pub mod gdt;
pub mod idt;
pub mod ioapic;
pub mod smp;
#[cfg(feature = "profiling")]
pub mod steps;
pub mod trap;
pub mod turns;

use core::arch::asm;
use core::cell::UnsafeCell;
#[cfg(feature = "profiling")]
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The greatest number of CPUs this kernel runs.
pub const MAX_CPUS: usize = 16;

/// How many stacks a CPU can have in use.
pub const STACKS: usize = 11;
/// Which of them are there whatever runs: behind the running thread's and the other one's.
pub const NMI_STACK: usize = 2;
/// See [`NMI_STACK`].
pub const DOUBLE_FAULT_STACK: usize = 3;
/// See [`NMI_STACK`].
pub const MACHINE_CHECK_STACK: usize = 4;
/// The first one that a workload may add.
#[cfg(feature = "profiling")]
pub const ADDED_STACKS: usize = 5;

/// In the place of a stack's base where there is none yet: no base has a low bit.
const NO_STACK: u64 = 1;

/// What a CPU keeps for itself. The first two fields are used by the system call stub through GS.
#[repr(C, align(128))]
pub struct Cpu {
    /// The user's RSP, for three instructions of the system call stub.
    pub syscall_scratch: UnsafeCell<u64>,
    /// The top of the running thread's kernel stack.
    pub kernel_stack_top: AtomicU64,
    /// Local APIC id.
    pub apic_id: AtomicU32,
    /// Whether the CPU has loaded its tables and runs threads (or samples).
    pub online: AtomicBool,
    /// Whether the timer asked for another thread.
    pub need_resched: AtomicBool,
    /// Whether the CPU waits in `hlt` for work; cleared by who wakes it and by every interrupt.
    pub halted: AtomicBool,
    /// Bases of the kernel stacks in use: the running thread's, during a switch also the other one's, those for NMI,
    /// double fault, and machine check, and what a workload adds.
    pub stacks: [AtomicU64; STACKS],
    /// Where this CPU publishes what it is at, if it does (the way `published`).
    #[cfg(feature = "profiling")]
    pub publisher: AtomicPtr<kprof::Publisher>,
    /// Id of the running context, for the profiler.
    pub context: AtomicU64,
    /// Whether the running context is the idle one.
    pub idle: AtomicBool,
    /// Whether the CPU runs the scheduler: its timer means the end of a slice.
    pub schedules: AtomicBool,
    /// When its time slice ends, in nanoseconds since boot.
    pub slice_end_ns: AtomicU64,
    /// When it is to sample itself next, in nanoseconds since boot; [`u64::MAX`] = never.
    pub own_tick_ns: AtomicU64,
    /// What the next NMI is to do besides being a tick, if that is not [`trap::NOTHING`].
    pub nmi_order: AtomicU8,
    /// Whether an NMI was sent that it has not served yet.
    pub nmi_pending: AtomicBool,
    /// Nanoseconds for which the idle thread ran, and since when it does now (0: it does not).
    pub idle_ns: AtomicU64,
    pub idle_since_ns: AtomicU64,
}

// SAFETY: `syscall_scratch` is only touched by its own CPU, with interrupts off; an NMI does not touch it.
unsafe impl Sync for Cpu {}

impl Cpu {
    /// Whether the stack with this base is in use here. Callable in an NMI.
    #[inline(always)]
    pub fn has_stack(&self, base: u64) -> bool {
        self.stacks[0].load(Ordering::Relaxed) == base || self.has_other_stack(base)
    }

    #[cold]
    #[inline(never)]
    fn has_other_stack(&self, base: u64) -> bool {
        self.stacks[1..].iter().any(|stack| stack.load(Ordering::Relaxed) == base)
    }

    const fn new() -> Self {
        Self {
            syscall_scratch: UnsafeCell::new(0),
            kernel_stack_top: AtomicU64::new(0),
            apic_id: AtomicU32::new(0),
            online: AtomicBool::new(false),
            need_resched: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            stacks: [const { AtomicU64::new(NO_STACK) }; STACKS],
            #[cfg(feature = "profiling")]
            publisher: AtomicPtr::new(core::ptr::null_mut()),
            context: AtomicU64::new(0),
            idle: AtomicBool::new(true),
            schedules: AtomicBool::new(false),
            slice_end_ns: AtomicU64::new(u64::MAX),
            own_tick_ns: AtomicU64::new(u64::MAX),
            nmi_order: AtomicU8::new(trap::NOTHING),
            nmi_pending: AtomicBool::new(false),
            idle_ns: AtomicU64::new(0),
            idle_since_ns: AtomicU64::new(0),
        }
    }
}

static_assertions::const_assert_eq!(core::mem::offset_of!(Cpu, syscall_scratch), 0);
static_assertions::const_assert_eq!(core::mem::offset_of!(Cpu, kernel_stack_top), 8);

/// The blocks of all CPUs.
pub static CPUS: [Cpu; MAX_CPUS] = [const { Cpu::new() }; MAX_CPUS];

/// How many CPUs the firmware lists (at most [`MAX_CPUS`]).
static COUNT: AtomicU32 = AtomicU32::new(1);
/// Whether a CPU is set apart for sampling.
static HAS_SAMPLER: AtomicBool = AtomicBool::new(false);

/// The number of this CPU (0 before it has a task register). Right in any context; may be stale at once where
/// preemption is on.
#[inline(always)]
pub fn id() -> usize {
    let selector: u32;
    // SAFETY: `str` reads the task register and has no effect.
    unsafe { asm!("str {0:e}", out(reg) selector, options(nomem, nostack, preserves_flags)) };
    (selector / 16) as usize % MAX_CPUS
}

/// The same where nothing can move the caller to another CPU, in a handler: the compiler asks once for several calls.
#[inline(always)]
pub fn id_in_handler() -> usize {
    let selector: u32;
    // SAFETY: `str` reads the task register and has no effect. In a handler it says the same each time.
    unsafe { asm!("str {0:e}", out(reg) selector, options(pure, nomem, nostack, preserves_flags)) };
    (selector / 16) as usize % MAX_CPUS
}

static_assertions::const_assert_eq!(gdt::FIRST_TSS as usize / 16 % MAX_CPUS, 0);

/// The block of this CPU, in a handler.
#[inline(always)]
pub fn this_in_handler() -> &'static Cpu {
    &CPUS[id_in_handler()]
}

/// The block of this CPU.
#[inline(always)]
pub fn this() -> &'static Cpu {
    &CPUS[id()]
}

/// How many CPUs there are.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed) as usize
}

/// Sets the number of CPUs, once, on the boot CPU.
pub fn set_count(count: usize) {
    COUNT.store(count.min(MAX_CPUS) as u32, Ordering::Relaxed);
}

/// The CPU that is set apart for sampling: the boot CPU, once it has started all else. None when it is the only one,
/// when each CPU samples itself, or profiling is off. (Under counted instructions it has to be the first: see `turns`.)
pub fn sampler() -> Option<usize> {
    HAS_SAMPLER.load(Ordering::Relaxed).then_some(0)
}

/// Sets a CPU apart for sampling, or not. Once, on the boot CPU.
pub fn set_sampler(wanted: bool) {
    HAS_SAMPLER.store(wanted && count() > 1, Ordering::Relaxed);
}

/// The CPU that serves device interrupts.
pub fn for_devices() -> &'static Cpu {
    &CPUS[sampler().map_or(0, |sampler| sampler + 1)]
}

/// Sets up this CPU's tables. In: its number. Called once on each CPU, interrupts off.
#[inline(never)]
pub fn init(cpu: usize) {
    gdt::init(cpu);
    idt::load();
    entry::init_syscall(cpu);
}
