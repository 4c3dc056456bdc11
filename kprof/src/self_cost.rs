//! By what the self cost is measured: the clock, the cycle counter, or nothing.
//!
//! In: the kernel's choices, and whether the counter counts on a CPU; the counts before and after a handler. Out: the
//! counters that are shown, of which each has one unit. Runs in: `register` decides; the handler adds; ordinary code
//! reads. A clock that is too coarse gives no number: a handler takes less than a step of it, or a few.

use crate::account::HandlerCounters;
use crate::arch::cycles;
use crate::config::Config;
use crate::format::counter::Counter;
use crate::sync::{AtomicU64, Ordering};
use core::sync::atomic::AtomicBool;

/// A clock with at least this frequency is fine enough: a step is at most 10 ns, and a handler takes some hundreds.
const FINE_HZ: u64 = 100_000_000;

/// By what it is measured, on every CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The clock, in TSC ticks.
    Clock,
    /// The cycle counter, in cycles. It is measured on those CPUs whose counter counts.
    Cycles,
    /// Not at all.
    Nothing,
}

impl Source {
    pub(crate) fn of(config: &Config) -> Self {
        Self::choose(cycles::EXISTS, config.tsc_hz, config.cycle_counter)
    }

    /// `has_counter`: the processor has a cycle counter besides its clock. `is_offered`: the kernel says that it can be
    /// read.
    fn choose(has_counter: bool, tsc_hz: u64, is_offered: bool) -> Self {
        match (has_counter && tsc_hz < FINE_HZ, is_offered) {
            (false, _) => Self::Clock,
            (true, true) => Self::Cycles,
            (true, false) => Self::Nothing,
        }
    }
}

/// The part of one CPU. Written by `register` while the CPU gets no ticks, and then by its handler.
pub(crate) struct SelfCost {
    /// Handlers read the cycle counter.
    by_cycles: AtomicBool,
    /// The count of cycles when the newest handler that was measured began; 0: there was none.
    begin: AtomicU64,
}

impl SelfCost {
    pub(crate) const fn new() -> Self {
        Self { by_cycles: AtomicBool::new(false), begin: AtomicU64::new(0) }
    }

    /// Decides for this CPU. Call it on this CPU.
    pub(crate) fn decide(&self, config: &Config) {
        self.begin.store(0, Ordering::Relaxed);
        let by_cycles = Source::of(config) == Source::Cycles && cycles::is_counting();
        self.by_cycles.store(by_cycles, Ordering::Release);
    }

    /// Whether handlers read the cycle counter. A constant where there is none.
    #[inline(always)]
    pub(crate) fn by_cycles(&self) -> bool {
        cycles::EXISTS && self.by_cycles.load(Ordering::Relaxed)
    }

    /// Adds the cycles of one handler, which stands for `measured` ones. A counter that was reset adds nothing.
    #[inline(always)]
    pub(crate) fn add(&self, counters: &HandlerCounters, begin: u64, end: u64, measured: u64) {
        let before = self.begin.load(Ordering::Relaxed);
        if before != 0 {
            counters.cycles.add(begin.saturating_sub(before));
        }
        self.begin.store(begin, Ordering::Relaxed);
        counters.self_cycles.add(end.saturating_sub(begin).wrapping_mul(measured));
    }

    /// Whether a counter of this CPU is shown: only those of the source that it has.
    pub(crate) fn shows(&self, source: Source, counter: Counter) -> bool {
        let by_cycles = source == Source::Cycles && self.by_cycles();
        match counter {
            Counter::SelfTsc => source == Source::Clock,
            Counter::SelfCycles | Counter::Cycles => by_cycles,
            Counter::SelfSamples => source == Source::Clock || by_cycles,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarse_clock_measures_nothing() {
        assert_eq!(Source::choose(true, 62_500_000, true), Source::Cycles);
        assert_eq!(Source::choose(true, 10_000_000, false), Source::Nothing);
        for offered in [false, true] {
            assert_eq!(Source::choose(true, 1_000_000_000, offered), Source::Clock, "a clock of one nanosecond");
            assert_eq!(Source::choose(false, 10_000_000, offered), Source::Clock, "no other counter");
        }
    }

    #[test]
    fn cycles_are_counted_inside_of_handlers_and_from_one_that_is_measured_to_the_next() {
        let (cost, counters) = (SelfCost::new(), HandlerCounters::new());
        cost.add(&counters, 5000, 5200, 64);
        assert_eq!((counters.self_cycles.get(), counters.cycles.get()), (200 * 64, 0));
        cost.add(&counters, 9000, 9300, 64);
        assert_eq!((counters.self_cycles.get(), counters.cycles.get()), (500 * 64, 4000));
        // The counter was reset to 0, inside of this handler and once more before the next one.
        cost.add(&counters, 10_000, 50, 64);
        cost.add(&counters, 300, 400, 64);
        assert_eq!((counters.self_cycles.get(), counters.cycles.get()), (600 * 64, 5000));
    }

    #[test]
    fn counters_of_another_source_are_not_shown() {
        let cost = SelfCost::new();
        let shown = |source| {
            [Counter::SelfTsc, Counter::SelfCycles, Counter::Cycles, Counter::SelfSamples, Counter::Sent]
                .map(|counter| cost.shows(source, counter))
        };
        assert_eq!(shown(Source::Clock), [true, false, false, true, true]);
        assert_eq!(shown(Source::Nothing), [false, false, false, false, true]);
        // The counter of this CPU does not count.
        assert_eq!(shown(Source::Cycles), [false, false, false, false, true]);
        cost.by_cycles.store(true, Ordering::Relaxed);
        assert_eq!(shown(Source::Clock), [true, false, false, true, true]);
        let expected = if cycles::EXISTS { [false, true, true, true, true] } else { shown(Source::Nothing) };
        assert_eq!(shown(Source::Cycles), expected);
    }
}
