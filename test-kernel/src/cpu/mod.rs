//! The CPUs: their blocks, tables, entry stubs, local APIC and clock.
//!
//! A CPU's number is its index in [`CPUS`]. It is read from the task register ([`id`]), so it is right at any
//! instruction, also in an NMI, and GS need not be trusted.

#[cfg(feature = "profiling")]
pub mod alarm;
pub mod apic;
pub mod clock;
pub mod entry;
pub mod gdt;
pub mod idt;
pub mod ioapic;
pub mod order;
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

/// Maximum number of CPUs that this kernel uses.
pub const MAX_CPUS: usize = 16;

/// Maximum number of stacks that a CPU has in use.
pub const STACKS: usize = 11;
/// Index of the NMI stack. This stack and the next two are always in use. The indexes before them are for the running
/// thread's stack and, during a switch, the other thread's.
pub const NMI_STACK: usize = 2;
/// See [`NMI_STACK`].
pub const DOUBLE_FAULT_STACK: usize = 3;
/// See [`NMI_STACK`].
pub const MACHINE_CHECK_STACK: usize = 4;
/// The first index in [`Cpu::stacks`] that no stack of the CPU uses: a workload may set the entries from here on.
#[cfg(feature = "profiling")]
pub const ADDED_STACKS: usize = 5;

/// Stands for "no stack" in a list of bases. No base has this bit set.
const NO_STACK: u64 = 1;

/// The data of one CPU. The system call stub uses the first two fields through GS.
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
    /// Whether the CPU waits for work in `hlt`, or for its next interrupt in [`turns::wait_for_interrupt`]. Cleared by
    /// the code that wakes it and by every interrupt.
    pub halted: AtomicBool,
    /// Bases of the kernel stacks in use: the running thread's, during a switch also the other thread's, those for NMI,
    /// double fault and machine check, and those that a workload adds.
    pub stacks: [AtomicU64; STACKS],
    /// Where this CPU publishes its state, if the trigger is `published`; otherwise null.
    #[cfg(feature = "profiling")]
    pub publisher: AtomicPtr<kprof::Publisher>,
    /// Id of the running task, for the profiler.
    pub task: AtomicU64,
    /// Whether the running task is the idle one.
    pub idle: AtomicBool,
    /// Whether the CPU runs the scheduler, so that its timer interrupt means the end of a time slice.
    pub schedules: AtomicBool,
    /// When its time slice ends, in nanoseconds since boot.
    pub slice_end_ns: AtomicU64,
    /// When it samples itself next, in nanoseconds since boot; [`u64::MAX`] = never.
    pub timer_interval_ns: AtomicU64,
    /// What the next NMI has to do besides taking a tick; [`order::NOTHING`] if nothing.
    pub nmi_order: AtomicU8,
    /// Whether an NMI was sent that the CPU has not handled yet.
    pub nmi_pending: AtomicBool,
    /// For how many nanoseconds the idle thread has run, and since when it is running now (0: it is not).
    pub idle_ns: AtomicU64,
    pub idle_since_ns: AtomicU64,
}

// SAFETY: only its own CPU accesses `syscall_scratch`, with interrupts off. An NMI does not access it.
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
            task: AtomicU64::new(0),
            idle: AtomicBool::new(true),
            schedules: AtomicBool::new(false),
            slice_end_ns: AtomicU64::new(u64::MAX),
            timer_interval_ns: AtomicU64::new(u64::MAX),
            nmi_order: AtomicU8::new(order::NOTHING),
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

/// The number of this CPU; 0 before its task register is loaded. It can be called anywhere. If preemption is on, the
/// result may already be outdated, because the thread may have moved to another CPU.
#[inline(always)]
pub fn id() -> usize {
    let selector: u32;
    // SAFETY: `str` reads the task register and has no effect.
    unsafe { asm!("str {0:e}", out(reg) selector, options(nomem, nostack, preserves_flags)) };
    (selector / 16) as usize % MAX_CPUS
}

/// The number of this CPU, for a handler, which cannot move to another CPU. So the compiler may read the number once
/// for several calls.
#[inline(always)]
pub fn id_in_handler() -> usize {
    let selector: u32;
    // SAFETY: `str` reads the task register and has no effect. In a handler it says the same each time.
    unsafe { asm!("str {0:e}", out(reg) selector, options(pure, nomem, nostack, preserves_flags)) };
    (selector / 16) as usize % MAX_CPUS
}

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

/// The sampler CPU: the boot CPU, after it has started everything else. `None` if it is the only CPU, if each CPU
/// samples itself, or if profiling is off. (Under `-icount` the sampler must be the first CPU; see `turns`.)
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
