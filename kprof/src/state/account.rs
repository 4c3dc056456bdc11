//! The counters that must balance, one set per CPU.
//!
//! In: one call at the place where a thing happens. Out: `Account`, a copy that belongs together. Context: each
//! counter has one writer (the handler, the sampler, or the reader), so a plain load and store is enough. What an NMI
//! may count inside a handler that counts the same is added by one instruction (`x86_64/add.rs`, or a locked one). No
//! counter is computed from the others.
//!
//! ```text
//! sent     = taken + merged + pending
//! taken    = user + idle + lost-* + recorded
//! recorded = delivered + overwritten + in the ring
//! ```

use crate::sync::{AtomicU64, Ordering};

/// A counter with one writer.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds; only the one writer may.
    #[inline(always)]
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Adds by one locked instruction: for what is rare, and counted by NMIs inside a handler too.
    #[inline(always)]
    pub(crate) fn fetch_add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Puts `new` in the place of `old`, if that stands there still.
    #[inline(always)]
    pub(crate) fn replace(&self, old: u64, new: u64) -> bool {
        self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    pub(crate) fn get_acquire(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! handler_counters {
    ($($(#[$doc:meta])* $name:ident $text:literal,)*) => {
        /// What the handler counts.
        #[derive(Debug)]
        pub(crate) struct HandlerCounters {
            /// Recorded kernel samples outside of interrupts: with interrupts on, with interrupts off.
            pub(crate) irq: [Counter; 2],
            $($(#[$doc])* pub(crate) $name: Counter,)*
        }

        impl HandlerCounters {
            /// Those of kernel samples outside of interrupts, by bit 0 of their facts.
            #[inline(always)]
            pub(crate) fn irq(&self, interrupts_off: u64) -> &Counter {
                let [on, off] = &self.irq;
                if interrupts_off == 0 { on } else { off }
            }

            pub(crate) const fn new() -> Self {
                Self { irq: [const { Counter::new() }; 2], $($name: Counter::new(),)* }
            }

            /// The values by their ctl names, in the order of the contract.
            pub(crate) fn read(&self) -> [(&'static str, u64); HANDLER_COUNTERS] {
                [("irq-on", self.irq[0].get()), ("irq-off", self.irq[1].get()), $(($text, self.$name.get()),)*]
            }
        }

        /// How many there are.
        pub(crate) const HANDLER_COUNTERS: usize = 2 + [$($text),*].len();
    };
}

handler_counters! {
    /// New ticks seen.
    taken "taken",
    /// Ticks that came while an earlier one was not seen yet.
    merged "merged",
    /// NMIs of the profiler's without a tick: it was coalesced with one before, or signalled twice.
    spurious "spurious",
    /// NMIs that were not the profiler's.
    foreign "foreign",
    /// Left out: user code.
    user "user",
    /// Left out: the idle context, not in an interrupt.
    idle "idle",
    /// Lost: the ring was full.
    lost_full "lost-full",
    /// Lost: came inside a handler.
    lost_nested "lost-nested",
    /// Lost: published registers changed while they were read.
    lost_torn "lost-torn",
    /// Samples published in the ring.
    recorded "recorded",
    /// Recorded samples that made room for newer ones.
    overwritten "overwritten",
    /// Recorded kernel samples inside an interrupt or exception.
    interrupt "interrupt",
    /// Recorded samples of user code.
    kept_user "kept-user",
    /// Recorded samples of the idle context.
    kept_idle "kept-idle",
    /// TSC ticks spent in the handler, measured on one tick of 64, scaled.
    own_tsc "own-tsc",
    /// How many were measured.
    own_samples "own-samples",
}
