//! What probes have found, as the plugin sends it. Stage: fold.
//!
//! In: the fields of messages. Out: data, by number of the probe, and quantiles of times. Imports no other stage.

use crate::histogram;
use std::collections::BTreeMap;

/// What one probe has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// Its number.
    pub number: u64,
    /// Calls.
    pub calls: u64,
    /// Those that have returned and whose time was measured.
    pub returned: u64,
    /// The sum of their times, in nanoseconds.
    pub sum: u64,
    /// The shortest one.
    pub min: u64,
    /// The longest one.
    pub max: u64,
}

/// How many calls took how long: by range, see `histogram.rs`.
pub type Times = BTreeMap<usize, u64>;

impl Probed {
    /// The quantile `part`, 0 to 1, of the times of the calls that have returned. It is the lowest time of its range,
    /// so the exact one is up to 0.8 % longer; below 256 ns it is exact.
    pub fn quantile(&self, times: &Times, part: f64) -> u64 {
        let wanted = (part * self.returned as f64).ceil().max(1.0) as u64;
        let mut calls = 0;
        let range = times.iter().find(|(_, count)| {
            calls += **count;
            calls >= wanted
        });
        range.map_or(self.max, |(range, _)| histogram::first(*range)).clamp(self.min, self.max.max(self.min))
    }
}

/// A call that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The probe's number.
    pub probe: u64,
    /// The number of its context.
    pub context: u64,
    /// The guest's time in nanoseconds.
    pub time: u64,
    /// RDI, RSI, RDX, RCX, R8, R9.
    pub arguments: [u64; 6],
}

/// What all have found.
#[derive(Debug, Default)]
pub struct Found {
    /// By number.
    pub probes: BTreeMap<u64, Probed>,
    /// Calls by probe and key.
    pub keys: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// Calls by probe and range of their times.
    pub times: BTreeMap<u64, Times>,
    /// Calls that were asked for, by probe.
    pub hits: BTreeMap<u64, Hit>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_in_order_without_gaps_and_narrow() {
        let mut last = 0;
        for time in (0..100_000).chain((17..64).flat_map(|bits| [(1 << bits) - 1, 1 << bits, 3 << (bits - 1)])) {
            let range = histogram::range(time);
            let (first, next) = (histogram::first(range), histogram::first(range + 1));
            assert!(first <= time && (time < next || next == 0), "{time} in {range}: {first} to {next}");
            assert!(range >= last && range <= last + 1 || time > 100_000, "{time} in {range} after {last}");
            assert!(time - first <= time / 128, "{time} is far from {first}");
            last = range;
        }
        assert_eq!([0, 255, 256, 257, 258].map(histogram::range), [0, 255, 256, 256, 257]);
    }

    #[test]
    fn quantiles_are_those_of_the_times_and_within_the_longest_and_the_shortest() {
        let mut times = Times::new();
        (1..=200_u64).for_each(|time| *times.entry(histogram::range(time * 10)).or_default() += 1);
        let probed = Probed { returned: 200, min: 10, max: 2000, ..Probed::default() };
        for (part, exact) in [(0.005, 10), (0.1, 200), (0.5, 1000), (0.9, 1800), (0.99, 1980), (1.0, 2000)] {
            let found = probed.quantile(&times, part);
            assert!(found <= exact && exact - found <= exact / 128, "{part}: {found}, and not {exact}");
        }
        let one = Probed { returned: 1, min: 1001, max: 1001, ..Probed::default() };
        assert_eq!(one.quantile(&Times::from([(histogram::range(1001), 1)]), 0.5), 1001);
    }
}
