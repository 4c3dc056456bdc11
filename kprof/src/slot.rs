//! The part of one CPU: its tick, its account, its ring with its readers.
//!
//! In and out: the stages, each writing only its own part. Runs in: see the parts. The parts are 128 bytes apart, so
//! that sampler, handler and reader, on different CPUs, do not share cache lines.

use crate::account::{Counter, HandlerCounters};
use crate::errors::BadMemory;
use crate::progress::Progress;
use crate::publisher::Publisher;
use crate::self_cost::SelfCost;
use crate::stream::Stream;
use crate::sync::{AtomicU64, Ordering};
use crate::unwind::FrameCache;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicBool;

/// One CPU's part of the profiler. The kernel provides one for each CPU, in a static or from its allocator.
pub struct CpuSlot {
    /// The sampler's part.
    pub sampler: SamplerPart,
    /// The handler's part.
    pub handler: HandlerPart,
    /// The ring, which gets its memory once, by `register`, and its readers.
    pub stream: Stream,
    pub(crate) published: Publisher,
    /// A profiler has taken this slot, so no other one can.
    is_taken: AtomicBool,
    /// The memory of this slot is being installed, or has been.
    is_registered: AtomicBool,
}

/// Written by the sampler CPU, or by this CPU itself if it makes its own ticks.
#[repr(align(128))]
pub struct SamplerPart {
    /// The newest tick number; also how many were sent to the handler.
    pub tick: AtomicU64,
    /// Ticks that found the CPU halted. No signal is sent for them; they count as sent, taken and filtered as idle.
    pub halted: Counter,
    /// Signals sent again, without a new tick. Each may cause an NMI that finds no tick.
    pub(crate) resent: Counter,
    /// Set if the CPU is to be signalled in this round.
    pub(crate) due: AtomicBool,
    /// The CPU is in the list of the command `cpus`.
    pub(crate) enabled: AtomicBool,
    /// The value of `enabled` without what the lease has set.
    pub(crate) enabled_base: AtomicBool,
    /// The CPU went away (`offline`), and has not registered again.
    pub(crate) offline: AtomicBool,
    /// If this CPU makes its own ticks: the TSC time of its next tick (1 if they are caused by an event).
    /// `own_intervals` is the state of its random intervals.
    pub(crate) own_next: AtomicU64,
    pub(crate) own_intervals: AtomicU64,
}

/// Written by this CPU's handler.
#[repr(align(128))]
pub struct HandlerPart {
    /// The newest tick taken, and whether a handler is running.
    pub progress: Progress,
    pub counters: HandlerCounters,
    /// The frames of earlier walks.
    pub(crate) frame_cache: FrameCache,
    /// Where the walk of an idle task writes its words, which are never read.
    pub(crate) scratch: [AtomicU64; SCRATCH_WORDS],
    /// By what the self cost is measured.
    pub(crate) self_cost: SelfCost,
}

/// The number of scratch words. A few are enough, because the walk overwrites them again and again.
pub(crate) const SCRATCH_WORDS: usize = 16;

impl CpuSlot {
    /// A slot of a CPU that has not registered.
    #[allow(clippy::declare_interior_mutable_const)]
    pub const fn new() -> Self {
        Self {
            sampler: SamplerPart {
                tick: AtomicU64::new(0),
                halted: Counter::new(),
                resent: Counter::new(),
                due: AtomicBool::new(false),
                enabled: AtomicBool::new(true),
                enabled_base: AtomicBool::new(true),
                offline: AtomicBool::new(false),
                own_next: AtomicU64::new(0),
                own_intervals: AtomicU64::new(0),
            },
            handler: HandlerPart {
                progress: Progress::new(),
                counters: HandlerCounters::new(),
                frame_cache: FrameCache::new(),
                scratch: [const { AtomicU64::new(0) }; SCRATCH_WORDS],
                self_cost: SelfCost::new(),
            },
            stream: Stream::new(),
            published: Publisher::new(),
            is_taken: AtomicBool::new(false),
            is_registered: AtomicBool::new(false),
        }
    }

    /// Numbers a tick without sending anything: for tests and benchmarks that act as the sampler, on one thread.
    #[cfg(any(test, feature = "testing"))]
    #[inline(always)]
    pub fn raise_tick(&self) {
        self.sampler.tick.store(self.sampler.tick.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Takes the slot for a profiler. `false` if another one has it.
    pub(crate) fn take(&self) -> bool {
        !self.is_taken.swap(true, Ordering::AcqRel)
    }

    /// Gives the slot back.
    pub(crate) fn give_back(&self) {
        self.is_taken.store(false, Ordering::Release);
    }

    /// Whether the caller is the first to register this CPU. If so, it must install the memory.
    pub(crate) fn begin_registering(&self) -> bool {
        !self.is_registered.swap(true, Ordering::AcqRel)
    }

    /// Gives the CPU its ring. Without one it gets no ticks. Only for the caller that has begun to register it.
    pub(crate) fn install(&self, memory: &'static mut [MaybeUninit<u64>]) -> Result<(), BadMemory> {
        let installed = self.stream.ring.install(memory);
        if installed.is_err() {
            self.is_registered.store(false, Ordering::Release);
        }
        installed
    }

    /// Whether the CPU gets ticks.
    pub fn takes_ticks(&self) -> bool {
        self.stream.ring.get().is_some()
            && self.sampler.enabled.load(Ordering::Relaxed)
            && !self.sampler.offline.load(Ordering::Relaxed)
    }

    /// Whether a tick is pending for the CPU or its handler is running. A CPU that went away counts as not busy.
    pub(crate) fn is_busy(&self) -> bool {
        !self.sampler.offline.load(Ordering::Relaxed) && (self.pending() > 0 || self.in_handler())
    }

    /// Whether the CPU's handler is running.
    pub(crate) fn in_handler(&self) -> bool {
        self.handler.progress.moment().is_none()
    }

    /// The number of ticks that were sent and that the handler has not taken yet.
    pub fn pending(&self) -> u64 {
        // The handler's number is read first: every tick that it has seen was sent before.
        let seen = self.handler.progress.seen();
        self.sampler.tick.load(Ordering::Relaxed).saturating_sub(seen)
    }
}

impl Default for CpuSlot {
    fn default() -> Self {
        Self::new()
    }
}
