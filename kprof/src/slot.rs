//! Everything one CPU has: its tick, its account, its ring, its reader's place.
//!
//! In and out: the stages, each writing only its own part. Context: see the parts. The parts are 128 bytes apart, so
//! that sampler, handler and reader, on different CPUs, do not fight for cache lines.

use crate::account::{Counter, HandlerCounters};
use crate::events::Events;
use crate::handler::Progress;
use crate::published::Publisher;
use crate::ring::{BadMemory, Ring};
use crate::sync::{AtomicU64, Ordering};
use crate::unwind::Before;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicBool;

/// One CPU's part of the profiler. The kernel provides one for each CPU, in a static or from its allocator.
pub struct CpuSlot {
    pub(crate) sampler: SamplerPart,
    pub(crate) handler: HandlerPart,
    pub(crate) reader: ReaderPart,
    /// Gets its memory once, by `register`.
    pub(crate) ring: Ring,
    pub(crate) events: Events,
    pub(crate) published: Publisher,
}

/// Written by the sampler CPU (or by this CPU itself where it is its own sampler).
#[repr(align(128))]
pub(crate) struct SamplerPart {
    /// The newest tick number; also how many were sent to the handler.
    pub(crate) tick: AtomicU64,
    /// Ticks that found the CPU halted: sent, taken and left out as idle here, without a signal.
    pub(crate) halted: Counter,
    /// Signals sent again, without a new tick: each may bring an NMI that finds none.
    pub(crate) resent: Counter,
    /// To be signalled in this round.
    pub(crate) due: AtomicBool,
    /// In the mask of `cpus LIST`.
    pub(crate) enabled: AtomicBool,
    /// A quarter of the ring is unread and the reader has been told.
    pub(crate) woken: AtomicBool,
    /// Where this CPU is its own sampler: the TSC of its next tick, and the state of its gaps.
    pub(crate) own_next: AtomicU64,
    pub(crate) own_gaps: AtomicU64,
}

/// Written by this CPU's handler.
#[repr(align(128))]
pub(crate) struct HandlerPart {
    /// The newest tick taken, and whether a handler is at work.
    pub(crate) progress: Progress,
    pub(crate) counters: HandlerCounters,
    /// Of the walk before.
    pub(crate) before: Before,
    /// Words of an idle walk, which nobody reads.
    pub(crate) scratch: [AtomicU64; SCRATCH_WORDS],
}

/// Few: the walk goes round in them.
pub(crate) const SCRATCH_WORDS: usize = 16;

/// Written by the claimed reader.
#[repr(align(128))]
pub(crate) struct ReaderPart {
    /// Where the next read begins.
    pub(crate) position: AtomicU64,
    /// Records from the oldest one up to there; true as long as none was overwritten.
    pub(crate) read: AtomicU64,
    /// Samples acknowledged.
    pub(crate) delivered: Counter,
    /// Held while somebody reads.
    pub(crate) busy: AtomicBool,
}

impl ReaderPart {
    pub(crate) const fn new() -> Self {
        Self {
            position: AtomicU64::new(0),
            read: AtomicU64::new(0),
            delivered: Counter::new(),
            busy: AtomicBool::new(false),
        }
    }

    /// The next reader begins with the oldest record.
    pub(crate) fn rewind(&self) {
        self.position.store(0, Ordering::Relaxed);
        self.read.store(0, Ordering::Relaxed);
    }
}

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
                woken: AtomicBool::new(false),
                own_next: AtomicU64::new(0),
                own_gaps: AtomicU64::new(0),
            },
            handler: HandlerPart {
                progress: Progress::new(),
                counters: HandlerCounters::new(),
                before: Before::new(),
                scratch: [const { AtomicU64::new(0) }; SCRATCH_WORDS],
            },
            reader: ReaderPart::new(),
            ring: Ring::none(),
            events: Events::new(),
            published: Publisher::new(),
        }
    }

    /// Numbers a tick without sending anything: for benches and tests that play the sampler, on one thread.
    #[doc(hidden)]
    #[inline(always)]
    pub fn raise_tick(&self) {
        self.sampler.tick.store(self.sampler.tick.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Gives the CPU its ring; from now on it gets ticks.
    pub(crate) fn install(&self, memory: &'static mut [MaybeUninit<u64>]) -> Result<(), BadMemory> {
        self.ring.install(memory)
    }

    /// Whether it gets ticks.
    pub(crate) fn takes_ticks(&self) -> bool {
        self.ring.get().is_some() && self.sampler.enabled.load(Ordering::Relaxed)
    }

    /// Whether its handler is at work.
    pub(crate) fn in_handler(&self) -> bool {
        self.handler.progress.moment().is_none()
    }

    /// Ticks sent that the handler has not seen.
    pub(crate) fn pending(&self) -> u64 {
        // The handler first: what it has seen was sent before.
        let seen = self.handler.progress.seen();
        self.sampler.tick.load(Ordering::Relaxed).saturating_sub(seen)
    }
}

impl Default for CpuSlot {
    fn default() -> Self {
        Self::new()
    }
}
