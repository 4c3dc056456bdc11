//! The counters that must balance, one set per CPU.
//!
//! In: one call for each thing that is counted, where it happens. Out: the values with their ctl names. Runs in: each
//! counter has one writer (the handler, the sampler, or the reader), so an ordinary load and store is enough. A counter
//! that a nested NMI may change while the handler changes it is added to by one instruction (`arch/add.rs`, or a
//! locked one). No counter is computed from the others.
//!
//! ```text
//! sent     = taken + coalesced + pending
//! taken    = user + idle + lost-* + recorded
//! recorded = delivered + overwritten + in the ring
//! ```

use crate::format::counter::Counter as Name;
use crate::sync::{AtomicU64, Ordering};

/// A counter with one writer.
#[derive(Debug)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `count`. Only the one writer may call it.
    #[inline(always)]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Adds by one locked instruction: for rare events that nested NMIs count too.
    #[inline(always)]
    pub(crate) fn fetch_add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Replaces `old` by `new` if the value is still `old`.
    #[inline(always)]
    pub(crate) fn replace(&self, old: u64, new: u64) -> bool {
        self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    pub(crate) fn get_acquire(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How the sampler sleeps between ticks, in TSC ticks; written by the sampler only.
#[derive(Debug)]
pub(crate) struct Sleeps {
    /// The sum of the times that the sampler asked to sleep.
    pub(crate) asked: Counter,
    /// The sum of the times by which sleeps were longer than asked.
    pub(crate) late: Counter,
}

impl Sleeps {
    pub(crate) const fn new() -> Self {
        Self { asked: Counter::new(), late: Counter::new() }
    }

    /// Adds one sleep.
    pub(crate) fn add(&self, asked: u64, slept: u64) {
        self.asked.add(asked);
        self.late.add(slept.saturating_sub(asked));
    }
}

macro_rules! handler_counters {
    ($($(#[$doc:meta])* $name:ident $counter:ident,)*) => {
        /// The counters that the handler writes.
        #[derive(Debug)]
        pub struct HandlerCounters {
            /// Recorded kernel samples outside of interrupts: with interrupts on, with interrupts off.
            pub(crate) irq: [Counter; 2],
            $($(#[$doc])* pub $name: Counter,)*
        }

        impl HandlerCounters {
            /// The counter of kernel samples outside of interrupts, chosen by bit 0 of their facts.
            #[inline(always)]
            pub(crate) fn irq(&self, interrupts_off: u64) -> &Counter {
                let [on, off] = &self.irq;
                if interrupts_off == 0 { on } else { off }
            }

            pub(crate) const fn new() -> Self {
                Self { irq: [const { Counter::new() }; 2], $($name: Counter::new(),)* }
            }

            /// The values by their ctl names, in the order of the contract.
            pub(crate) fn read(&self) -> [(Name, u64); HANDLER_COUNTERS] {
                [
                    (Name::IrqOn, self.irq[0].get()),
                    (Name::IrqOff, self.irq[1].get()),
                    $((Name::$counter, self.$name.get()),)*
                ]
            }
        }

        /// The number of handler counters.
        pub(crate) const HANDLER_COUNTERS: usize = 2 + [$(Name::$counter),*].len();
    };
}

handler_counters! {
    /// Ticks that a handler has taken.
    taken Taken,
    /// Ticks that came while an earlier one was not taken yet.
    coalesced Coalesced,
    /// NMIs of the profiler that found no pending tick, because the tick was coalesced with an earlier one or was
    /// signalled twice.
    spurious Spurious,
    /// NMIs that were not the profiler's.
    foreign Foreign,
    /// Filtered: user code.
    user User,
    /// Filtered: the idle task, not in an interrupt.
    idle Idle,
    /// Lost: the ring was full.
    lost_full LostFull,
    /// Lost: an NMI inside a handler took the tick.
    lost_nested LostNested,
    /// Lost (trigger `published`): what the CPU had published changed while its stack was read, or a stack word could
    /// not be read.
    lost_torn LostTorn,
    /// Samples published in the ring.
    recorded Recorded,
    /// Recorded samples that were overwritten by newer ones.
    overwritten Overwritten,
    /// Recorded kernel samples inside an interrupt or exception.
    interrupt Interrupt,
    /// Recorded samples of user code.
    recorded_user RecordedUser,
    /// Recorded samples of the idle task.
    recorded_idle RecordedIdle,
    /// TSC ticks spent in the handler: measured on one tick of 64, multiplied by 64. The backoff uses it with a coarse
    /// clock too, because it needs a mean over many CPUs and ticks only.
    self_tsc SelfTsc,
    /// The same in cycles, where the cycle counter is used (`self_cost`).
    self_cycles SelfCycles,
    /// Cycles from the beginning of the first handler that was measured to that of the newest one.
    cycles Cycles,
    /// How many ticks were measured.
    self_samples SelfSamples,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_that_ends_early_is_not_late_and_does_not_make_up_for_one_that_was() {
        let sleeps = Sleeps::new();
        [(100, 40), (60, 75), (10, 10)].into_iter().for_each(|(asked, slept)| sleeps.add(asked, slept));
        assert_eq!((sleeps.asked.get(), sleeps.late.get()), (170, 15));
    }
}
