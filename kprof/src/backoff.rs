//! Lowers the rate when sampling costs too much, and raises it again when it does not.
//!
//! In: what one second of sampling has cost, from the counters of all sampled CPUs. Out: how many times the chosen rate
//! should be halved from now on. Pure. The sampler calls [`Cost::halvings`] once a second, applies the result, and
//! writes the new rate into the meta stream. Runs in: sampler CPU.

/// The rate is halved if the handlers take more than 5 % of the time in which the CPUs are not halted.
const MAX_SELF_PERCENT: u64 = 5;
/// The rate is halved if more than 20 % of the ticks that were sent to handlers are coalesced.
const MAX_COALESCED_PERCENT: u64 = 20;
/// The rate is doubled again when both values are below a quarter of their limits, so that the doubled rate does not
/// exceed a limit at once.
const QUIET: u64 = 4;
/// The most halvings: 1000 Hz become about 4 Hz.
const MAX_HALVINGS: u32 = 8;

/// Sums over all sampled CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// TSC ticks that have passed, summed over the CPUs that take ticks.
    pub(crate) time: u64,
    /// TSC ticks spent in the handlers.
    pub(crate) self_cost: u64,
    /// Ticks sent to the handlers.
    pub(crate) sent: u64,
    /// Ticks that found a CPU halted.
    pub(crate) halted: u64,
    /// Ticks that were coalesced.
    pub(crate) coalesced: u64,
}

impl Cost {
    /// The differences to `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            time: self.time.saturating_sub(before.time),
            self_cost: self.self_cost.saturating_sub(before.self_cost),
            sent: self.sent.saturating_sub(before.sent),
            halted: self.halted.saturating_sub(before.halted),
            coalesced: self.coalesced.saturating_sub(before.coalesced),
        }
    }

    /// How many times the chosen rate should be halved after a second of this cost; `now` is how many times it is
    /// halved now. `on_coalesced`: whether too many coalesced ticks are a reason to halve it.
    pub(crate) fn halvings(self, now: u32, on_coalesced: bool) -> u32 {
        let above = |part: u64, whole: u64, percent: u64, divisor: u64| {
            u128::from(part) * 100 * u128::from(divisor) > u128::from(whole) * u128::from(percent)
        };
        // Ticks come at random times, so the share of ticks that found a CPU awake is the share of time that it was
        // awake.
        let ticks = u128::from(self.sent + self.halted).max(1);
        let awake = (u128::from(self.time) * u128::from(self.sent) / ticks) as u64;
        let costs_more_than_allowed_by = |divisor| {
            above(self.self_cost, awake, MAX_SELF_PERCENT, divisor)
                || on_coalesced && above(self.coalesced, self.sent, MAX_COALESCED_PERCENT, divisor)
        };
        if costs_more_than_allowed_by(1) {
            (now + 1).min(MAX_HALVINGS)
        } else if costs_more_than_allowed_by(QUIET) {
            now
        } else {
            now.saturating_sub(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET_SECOND: Cost = Cost { time: 1_000_000, self_cost: 10_000, sent: 1000, halted: 0, coalesced: 10 };

    #[test]
    fn self_cost_above_five_percent_halves_the_rate() {
        assert_eq!(Cost { self_cost: 50_001, ..QUIET_SECOND }.halvings(0, false), 1);
        assert_eq!(Cost { self_cost: 50_000, ..QUIET_SECOND }.halvings(0, false), 0);
        assert_eq!(Cost { self_cost: 900_000, ..QUIET_SECOND }.halvings(8, false), 8);
    }

    #[test]
    fn time_in_halted_cpus_dilutes_nothing() {
        let half = Cost { sent: 500, halted: 500, coalesced: 0, ..QUIET_SECOND };
        assert_eq!(Cost { self_cost: 25_001, ..half }.halvings(0, false), 1);
        assert_eq!(Cost { self_cost: 25_000, ..half }.halvings(0, false), 0);
    }

    #[test]
    fn coalesced_ticks_count_only_where_they_mean_something() {
        let merging = Cost { coalesced: 201, ..QUIET_SECOND };
        assert_eq!(merging.halvings(2, true), 3);
        assert_eq!(merging.halvings(2, false), 1);
    }

    #[test]
    fn the_rate_comes_back_slowly_and_does_not_swing() {
        assert_eq!(QUIET_SECOND.halvings(3, true), 2);
        assert_eq!(QUIET_SECOND.halvings(0, true), 0);
        // The rate stays if its double would cost too much.
        assert_eq!(Cost { self_cost: 30_000, ..QUIET_SECOND }.halvings(3, true), 3);
    }

    #[test]
    fn a_second_without_anything_is_quiet() {
        assert_eq!(Cost::default().halvings(1, true), 0);
    }
}
