//! The data of each sampled CPU: its ring, its stacks, its idle context.
//!
//! In: the calls that each CPU makes while it boots. Out: its data in the per-CPU block, and a ring
//! that kprof has taken. Runs in: ordinary code, and [`RingBuffer::stack_range`] in NMI.

use alloc::{boxed::Box, vec::Vec};
use core::{
    mem::MaybeUninit,
    ops::Range,
    ptr::{addr_of, null_mut},
    slice,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

use kprof::DEFAULT_RING_WORDS;
use spin::{Mutex, Once};

use super::{nmi::PROFILER, read::Reading, sampler};
use crate::{
    arch::{
        gdt::pcr,
        profiling::{entries, user_memory::LastPage},
    },
    cpu_set::LogicalCpuId,
    memory::{RmmA, RmmArch, PAGE_SIZE},
    percpu::PercpuBlock,
    sync::CleanLockToken,
};

/// Words of a CPU's ring: 256 KiB. A power of two.
const RING_WORDS: usize = DEFAULT_RING_WORDS;
/// Kernel stacks are 16 pages of the linear map, aligned to their size. The boot CPU's first one is
/// in the image.
const STACK_BYTES: u64 = 16 * PAGE_SIZE as u64;
const BOOT_STACK_BYTES: u64 = 128 * 1024;

/// One for each CPU except the last, which is the sampler. Empty if nothing is sampled.
static RINGS: Once<&'static [RingBuffer]> = Once::new();

/// What a sampled CPU has. The per-CPU block refers to it.
pub struct RingBuffer {
    /// The ring's memory, until the CPU is ready and kprof takes it.
    words: AtomicPtr<MaybeUninit<u64>>,
    pub(super) is_ready: AtomicBool,
    /// Debug id of the CPU's idle context (`[kmain]`), and the end of the stack that it boots on.
    pub(super) idle_id: AtomicU32,
    boot_stack_end: AtomicU64,
    /// The part of the interrupted stack that the present NMI may read: from RSP up to its end.
    stack_start: AtomicU64,
    stack_end: AtomicU64,
    pub(super) last_page: LastPage,
    pub(super) reading: Mutex<Reading>,
}

impl RingBuffer {
    fn new() -> Self {
        let words = Box::leak(Box::<[u64]>::new_uninit_slice(RING_WORDS));
        Self {
            words: AtomicPtr::new(words.as_mut_ptr()),
            is_ready: AtomicBool::new(false),
            idle_id: AtomicU32::new(u32::MAX),
            boot_stack_end: AtomicU64::new(0),
            stack_start: AtomicU64::new(0),
            stack_end: AtomicU64::new(0),
            last_page: LastPage::new(),
            reading: Mutex::new(Reading::new()),
        }
    }

    /// Called at the start of an NMI that has interrupted kernel code with this RSP.
    #[inline(always)]
    pub(super) fn set_stack(&self, rsp: u64) {
        let start = rsp & !7;
        let linear_map = RmmA::PHYS_OFFSET as u64;
        let end = if start.wrapping_sub(linear_map) < crate::PML4_SIZE as u64 {
            (start | (STACK_BYTES - 1)).wrapping_add(1)
        } else {
            self.end_of_boot_stack(start)
        };
        self.stack_start.store(start, Ordering::Relaxed);
        self.stack_end.store(end, Ordering::Relaxed);
    }

    /// The end of the boot stack. If `start` is outside of it: 0, which makes the range empty.
    #[cold]
    fn end_of_boot_stack(&self, start: u64) -> u64 {
        let end = self.boot_stack_end.load(Ordering::Relaxed);
        let is_inside = end.wrapping_sub(start).wrapping_sub(1) < BOOT_STACK_BYTES;
        if is_inside {
            end
        } else {
            0
        }
    }

    /// Called at the start of an NMI that has interrupted user code. No stack may be read then.
    #[inline(always)]
    pub(super) fn set_no_stack(&self) {
        self.stack_end.store(0, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn stack_range(&self) -> Range<u64> {
        self.stack_start.load(Ordering::Relaxed)..self.stack_end.load(Ordering::Relaxed)
    }
}

pub(super) fn rings() -> &'static [RingBuffer] {
    RINGS.get().copied().unwrap_or(&[])
}

/// Whether `profiling-N` exists.
pub fn cpu_exists(cpu: LogicalCpuId) -> bool {
    (cpu.get() as usize) < rings().len()
}

/// # Safety
/// Called once, on the boot CPU, before the others start.
pub unsafe fn allocate(total_cpu_count: u32) {
    let sampled = total_cpu_count.saturating_sub(1);
    RINGS.call_once(|| {
        let rings = (0..sampled).map(|_| RingBuffer::new()).collect::<Vec<_>>();
        Box::leak(rings.into_boxed_slice())
    });
    if sampled == 0 {
        warn!(
            "kprof: nothing is sampled: one CPU is set apart, and there is only one (QEMU: -smp 2)"
        );
    } else {
        let kib = RING_WORDS * 8 / 1024;
        info!("kprof: CPU {sampled} samples {sampled} CPU(s), {kib} KiB of ring each");
    }
}

/// # Safety
/// Called on each CPU, on its first stack, after it has loaded its tables.
pub unsafe fn init() {
    let percpu = PercpuBlock::current();
    if RINGS.get().is_none() {
        warn!("kprof: nothing is sampled: the CPUs are not known (no MADT, or no multi_core)");
        return;
    }
    let Some(ring) = rings().get(percpu.cpu_id.get() as usize) else {
        return;
    };
    if percpu.cpu_id.get() == 0 {
        entries::init();
    }
    ring.boot_stack_end.store(top_of_stack(), Ordering::Relaxed);
    // SAFETY: this CPU's own block, and interrupts are off.
    unsafe { addr_of!(percpu.profiling).cast_mut().write(Some(ring)) };
    if sampler::EARLY_START && percpu.cpu_id.get() == 0 {
        ring.is_ready.store(true, Ordering::SeqCst);
        sampler::wait_until_decided();
    }
}

/// Where the stack of the current context begins that it enters the kernel on. While a CPU boots:
/// the end of its first stack.
pub(super) fn top_of_stack() -> u64 {
    // SAFETY: this is this CPU's own task state segment.
    unsafe { addr_of!((*pcr()).tss.rsp).cast::<u64>().read_unaligned() }
}

/// Called on each CPU, in its idle context, before it runs other contexts. From now on it gets
/// ticks.
pub fn ready_for_profiling() {
    let percpu = PercpuBlock::current();
    let Some(ring) = percpu.profiling else { return };
    // SAFETY: no lock is held here: the CPU has just created its first context, its idle one.
    let mut token = unsafe { CleanLockToken::new() };
    let idle = crate::context::current().read(token.token()).debug_id;
    ring.idle_id.store(idle, Ordering::Relaxed);
    ring.is_ready.store(true, Ordering::SeqCst);
    hand_over(percpu.cpu_id.get() as usize, ring);
}

/// Gives a ready CPU's ring to kprof, if kprof is set up. The CPU and the sampler both call it; the
/// later call does it.
pub(super) fn hand_over(cpu: usize, ring: &RingBuffer) {
    if !sampler::is_set_up() || !ring.is_ready.load(Ordering::SeqCst) {
        return;
    }
    let words = ring.words.swap(null_mut(), Ordering::SeqCst);
    if !words.is_null() {
        // SAFETY: these are RING_WORDS words that were leaked for this. The swap gives them out once.
        let memory = || unsafe { slice::from_raw_parts_mut(words, RING_WORDS) };
        if let Err(error) = PROFILER.register(cpu, memory) {
            error!("kprof: cpu {cpu} is not sampled: {error}");
        }
    }
}
