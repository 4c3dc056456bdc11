//! The CPU samples itself by the kernel's own timer: aarch64, where this kernel starts no second CPU.
//!
//! In: the timer's interrupts, with what they have interrupted. Out: samples, and when the timer has
//! to interrupt next: for the kernel's own period, or earlier for a sample. Runs in: the timer's
//! interrupt, with interrupts masked; so code that masks them has no samples, and its time appears at
//! the instruction that unmasks them. No other interrupt takes a sample.

use alloc::boxed::Box;
use core::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use kprof::{CpuSet, Kernel, NmiToken, Profiler, Task, Trigger, DEFAULT_RING_WORDS};
use spin::{Mutex, Once};

use super::{
    read::{send_names, Reading},
    setup::{env, hz, setup},
};
use crate::{
    arch::{
        interrupt::InterruptStack,
        profiling::{clock_hz, entries, init as init_timer, registers, timer_is_due},
    },
    cpu_set::LogicalCpuId,
    memory::{RmmA, RmmArch, PAGE_SIZE},
    percpu::PercpuBlock,
    sync::CleanLockToken,
};

pub static PROFILER: Profiler<Port> = Profiler::new(Port);

/// Kernel stacks are 16 pages of the linear map, aligned to their size. The first one is in the image.
const STACK_BYTES: u64 = 16 * PAGE_SIZE as u64;
const BOOT_STACK_BYTES: u64 = 128 * 1024;

static BOOT_STACK_END: AtomicU64 = AtomicU64::new(0);
/// The part of the interrupted stack that may be read now.
static STACK_START: AtomicU64 = AtomicU64::new(0);
static STACK_END: AtomicU64 = AtomicU64::new(0);
static RING: Once<[RingBuffer; 1]> = Once::new();
/// When the timer has to interrupt for a sample, and what is left of the kernel's own period.
static NEXT_NS: AtomicU64 = AtomicU64::new(u64::MAX);
static PERIOD: Mutex<Period> = Mutex::new(Period { left: 0, loaded: 0 });

/// What the sampled CPU has.
pub struct RingBuffer {
    /// Debug id of the idle context (`[kmain]`).
    idle_id: u32,
    pub(super) reading: Mutex<Reading>,
}

pub(super) fn rings() -> &'static [RingBuffer] {
    RING.get().map_or(&[], |ring| ring)
}

/// Whether `profiling-N` exists.
pub fn cpu_exists(cpu: LogicalCpuId) -> bool {
    (cpu.get() as usize) < rings().len()
}

/// # Safety
/// Called once, on the boot stack, which ends at `boot_stack_end`, before interrupts are unmasked.
pub unsafe fn init(boot_stack_end: usize) {
    BOOT_STACK_END.store(boot_stack_end as u64, Ordering::Relaxed);
}

/// Called in the idle context, before others run. From now on the CPU can be sampled.
pub fn ready_for_profiling() {
    init_timer();
    // SAFETY: no lock is held here: the CPU has just created its first context, its idle one.
    let mut token = unsafe { CleanLockToken::new() };
    let idle_id = crate::context::current().read(token.token()).debug_id;
    RING.call_once(|| {
        [RingBuffer {
            idle_id,
            reading: Mutex::new(Reading::new()),
        }]
    });
    let hz = hz();
    let done = PROFILER.init(|| {
        let mut setup = setup(None, clock_hz(), hz);
        setup.config.trigger = Trigger::Timer;
        setup.config.include_user = true;
        setup.config.running = env("KPROF_START") == Some("1");
        setup
    });
    if let Err(error) = done {
        error!("kprof: nothing is sampled: {error}");
        return;
    }
    send_names(&mut token);
    let words = || Box::leak(Box::<[u64]>::new_uninit_slice(DEFAULT_RING_WORDS));
    if let Err(error) = PROFILER.register(0, words) {
        error!("kprof: nothing is sampled: {error}");
        return;
    }
    info!("kprof: {hz} Hz, by this CPU's timer; code with interrupts masked is not seen");
}

/// Called by the stubs of IRQs, before the interrupt is handled.
pub fn interrupted(stack: &InterruptStack) {
    if !timer_is_due() {
        return;
    }
    let at = registers(stack);
    let range = if at.from_user { 0..0 } else { stack_at(at.sp) };
    STACK_START.store(range.start, Ordering::Relaxed);
    STACK_END.store(range.end, Ordering::Relaxed);
    // SAFETY: called in an entry, with what it has interrupted. Interrupts are masked, so it is not nested.
    let tick = PROFILER.on_timer(&unsafe { NmiToken::new() }, &at);
    NEXT_NS.store(tick.next_ns, Ordering::Relaxed);
}

/// What may be read above the interrupted SP. Empty if the stack is not known.
fn stack_at(sp: u64) -> Range<u64> {
    let start = sp & !15;
    let linear_map = RmmA::PHYS_OFFSET as u64;
    let end = if start.wrapping_sub(linear_map) < crate::PML4_SIZE as u64 {
        (start | (STACK_BYTES - 1)).wrapping_add(1)
    } else {
        let end = BOOT_STACK_END.load(Ordering::Relaxed);
        let is_inside = end.wrapping_sub(start).wrapping_sub(1) < BOOT_STACK_BYTES;
        if is_inside {
            end
        } else {
            start
        }
    };
    start..end
}

/// Called in the handler of the timer, first. Whether the kernel's own period is over.
pub fn is_period_over() -> bool {
    PERIOD.lock().is_over()
}

/// Called where the timer is loaded: with how many counts, if the kernel's own period has `period`.
pub fn counts(period: u32) -> u32 {
    let wanted = u128::from(NEXT_NS.load(Ordering::Relaxed)).saturating_mul(clock_hz().into());
    let wanted = wanted / 1_000_000_000;
    PERIOD
        .lock()
        .load(period, u32::try_from(wanted).unwrap_or(u32::MAX))
}

/// Shares the timer between the kernel, whose period it keeps, and the samples. In counts of the timer.
pub struct Period {
    left: u32,
    loaded: u32,
}

impl Period {
    /// The timer has interrupted.
    fn is_over(&mut self) -> bool {
        self.left = self.left.saturating_sub(self.loaded);
        self.loaded = 0;
        self.left == 0
    }

    /// What the timer is loaded with.
    fn load(&mut self, period: u32, wanted: u32) -> u32 {
        if self.left == 0 {
            self.left = period;
        }
        self.loaded = wanted.clamp(1, self.left.max(1));
        self.loaded
    }
}

/// There is no second CPU.
pub fn maybe_run_profiling_helper_forever(_cpu_id: LogicalCpuId) {}

/// Keys do not start sampling here: use ctl. (This kernel has no driver of a keyboard on aarch64, so nothing calls it.)
#[allow(dead_code)]
pub fn serio_command(_index: usize, _data: u8) {}

/// This kernel's implementation of `kprof::Kernel`, which documents what each function must return.
pub struct Port;

// SAFETY: there is one CPU. `stack_range` declares only the part of the interrupted stack above its
// SP, which is completely mapped, and in use until the interrupt returns. The text is mapped for
// ever, and there are no modules. User memory is not read. No lock is taken.
unsafe impl Kernel for Port {
    fn cpu(&self) -> usize {
        0
    }

    /// Never called: the CPU signals nobody.
    fn signal(&self, _cpus: &CpuSet<'_>) {}

    fn stack_range(&self, _address: u64) -> Option<Range<u64>> {
        Some(STACK_START.load(Ordering::Relaxed)..STACK_END.load(Ordering::Relaxed))
    }

    fn task(&self) -> Task {
        let idle = rings().first().map_or(u32::MAX, |ring| ring.idle_id);
        let current = &PercpuBlock::current().switch_internals.current_dbg_id;
        let id = match current.load(Ordering::Relaxed) {
            // Before the first switch the idle context runs.
            u32::MAX => idle,
            id => id,
        };
        Task {
            id: u64::from(id),
            idle: id == idle,
        }
    }

    const MARKED_ENTRIES: bool = true;

    fn is_entry_code(&self, address: u64) -> bool {
        entries::contains(address)
    }

    /// Never called: there is no sampler CPU.
    fn sleep_ns(&self, _ns: u64) {}
}
