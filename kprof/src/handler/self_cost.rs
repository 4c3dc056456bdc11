//! Measures what the handler itself costs, on one tick of `TICKS_A_MEASUREMENT`.
//!
//! In: clock and cycle counter. Out: the sums in the account, each of them 64 times what was measured, because only one
//! tick in 64 is. Runs in: NMI. Which of the sums are shown is decided in `kprof/src/self_cost.rs`.

use crate::arch::{cycles, timestamp};
use crate::format::counter::TICKS_A_MEASUREMENT;
use crate::slot::CpuSlot;

/// The beginning of a handler that is measured.
pub(super) struct Start {
    clock: u64,
    /// 0 where the cycle counter is not used.
    cycles: u64,
}

impl Start {
    #[inline(always)]
    pub(super) fn now(slot: &CpuSlot) -> Self {
        let clock = timestamp::read();
        Self { clock, cycles: if slot.handler.self_cost.by_cycles() { cycles::read() } else { 0 } }
    }

    /// Adds what has passed.
    #[inline(always)]
    pub(super) fn end(self, slot: &CpuSlot) {
        let (cost, counters) = (&slot.handler.self_cost, &slot.handler.counters);
        if cost.by_cycles() {
            cost.add(counters, self.cycles, cycles::read(), TICKS_A_MEASUREMENT);
        }
        // If the clock has jumped backwards (resume from sleep), nothing is added. The product cannot wrap: 2^58 TSC
        // ticks are more than a year at 8 GHz.
        counters.self_tsc.add(timestamp::read().saturating_sub(self.clock).wrapping_mul(TICKS_A_MEASUREMENT));
        counters.self_samples.add(1);
    }
}
