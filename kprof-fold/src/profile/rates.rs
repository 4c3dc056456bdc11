//! At which rates samples were taken, and how much time each of them stands for. Stage: read.
//!
//! In: the header and the settings of each boot. Out: the rate in force at each time. A sample stands for the time to
//! the next one, so it weighs more at a lower rate: at 10 per second as much as 100 samples at 1000 per second.

use super::{Boot, Gap, Profile};
use kprof_format::fact::Fact;
use std::collections::BTreeSet;

/// Rates that differ by a greater factor than this are not weighed: a damaged or hostile file could otherwise make one
/// sample into billions. The profiler itself allows 1 to 100 000 per second.
const MAX_FACTOR: u64 = 100_000;

impl Boot {
    /// The rates, in ticks per second and CPU, each with the TSC from which on it is in force, ascending.
    fn rate_changes(&self) -> Vec<(u64, u64)> {
        let rate = |name: &[u8]| std::str::from_utf8(name).ok()?.strip_prefix("hz ")?.trim().parse::<u64>().ok();
        let settings = self.settings.iter().filter_map(|setting| Some((setting.tsc, rate(&setting.name)?)));
        let mut changes: Vec<(u64, u64)> = self.number(Fact::Hz).map(|rate| (0, rate)).into_iter().collect();
        changes.extend(settings);
        changes.retain(|(_, rate)| *rate > 0);
        // Of several changes at one time the last one in the file is in force.
        changes.sort_by_key(|(tsc, _)| *tsc);
        changes
    }

    /// The rates that were in force for samples between two TSCs.
    pub fn rates(&self, between: (u64, u64)) -> BTreeSet<u64> {
        let seen = || self.cpus.values().map(|cpu| cpu.seen);
        let first = seen().filter_map(|seen| seen.tsc_min()).min().map(|first| first.max(between.0));
        let last = seen().filter_map(|seen| seen.tsc_max()).max().map(|last| last.min(between.1));
        let Some((first, last)) = first.zip(last).filter(|(first, last)| first <= last) else {
            return BTreeSet::new();
        };
        let changes = self.rate_changes();
        let later = changes.iter().filter(|(tsc, _)| first < *tsc && *tsc < last).map(|(_, rate)| *rate);
        in_force(&changes, first).into_iter().chain(later).collect()
    }
}

/// The last rate that was set at a TSC or before it.
fn in_force(changes: &[(u64, u64)], tsc: u64) -> Option<u64> {
    let after = changes.partition_point(|(from, _)| *from <= tsc);
    changes.get(after.checked_sub(1)?).map(|(_, rate)| *rate)
}

impl Profile {
    /// The rates of all boots.
    pub fn rates(&self, between: Option<(u64, u64)>) -> BTreeSet<u64> {
        self.boots.iter().flat_map(|boot| boot.rates(between.unwrap_or((0, u64::MAX)))).collect()
    }
}

/// How many samples at the highest rate a sample stands for, at each time of each boot.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The rates of each boot, each with the TSC from which on it is in force.
    changes: Vec<Vec<(u64, u64)>>,
    /// The highest rate that was in force for the chosen samples.
    pub highest: u64,
}

impl Weights {
    /// The weights of a profile whose samples were taken at several rates; `None` if all weigh the same, or if the
    /// rates differ too much.
    pub fn of(profile: &Profile, between: Option<(u64, u64)>) -> Option<Self> {
        let rates = profile.rates(between);
        let (lowest, highest) = (*rates.first()?, *rates.last()?);
        let is_weighed = lowest < highest && highest / lowest <= MAX_FACTOR;
        let changes = || profile.boots.iter().map(Boot::rate_changes).collect();
        is_weighed.then(|| Self { changes: changes(), highest })
    }

    /// The weight at a time of a boot, between 1 and `MAX_FACTOR`.
    pub fn at(&self, boot: usize, tsc: u64) -> f64 {
        let rate = self.changes.get(boot).and_then(|changes| in_force(changes, tsc));
        (self.highest as f64 / rate.unwrap_or(self.highest) as f64).clamp(1.0, MAX_FACTOR as f64)
    }

    /// Weighs the ticks without a sample as the samples of their time.
    pub fn weigh(&self, gaps: &mut [Gap]) {
        for gap in gaps {
            let by = self.at(gap.boot, gap.to.or(gap.from).unwrap_or(0));
            let ticks = &mut gap.ticks;
            let counts = [&mut ticks.user, &mut ticks.idle, &mut ticks.kernel, &mut ticks.coalesced, &mut ticks.lost];
            for count in counts.into_iter().chain([&mut gap.missing]) {
                *count = (*count as f64 * by).round() as u64;
            }
        }
    }
}

/// How much the weights of samples differ: a count to which samples add several each varies more than one of as many
/// samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Unequal {
    /// The largest weight.
    pub largest: f64,
    /// The sum of the squares of all weights.
    pub squares: f64,
}

impl Unequal {
    /// Adds a sample of this weight.
    pub fn add(&mut self, weight: u64) {
        let weight = weight as f64;
        self.largest = self.largest.max(weight);
        self.squares += weight * weight;
    }

    /// By which factor, at most, the variance of a count is larger than that of as many samples. That factor is the sum
    /// of the squares of the weights in the count, divided by the count.
    pub fn factor(&self, count: u64) -> f64 {
        let count = count.max(1) as f64;
        self.largest.min(count).min(self.squares / count).max(1.0)
    }
}

/// Rates for people: `10 and 100`.
pub fn in_words(rates: &BTreeSet<u64>) -> String {
    rates.iter().map(u64::to_string).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Mark, Seen};
    use crate::stacks::Traits;

    fn profile(settings: &[(u64, u64)]) -> Profile {
        let mut boot = Boot { header: [("hz".to_owned(), "1000".to_owned())].into(), ..Boot::default() };
        boot.settings.extend(settings.iter().map(|(tsc, hz)| Mark { tsc: *tsc, name: format!("hz {hz}").into() }));
        let mut seen = Seen::default();
        [10, 90].into_iter().for_each(|tsc| seen.add(tsc, Traits::default()));
        boot.cpus.entry(0).or_default().seen = seen;
        Profile { boots: vec![boot], ..Profile::default() }
    }

    #[test]
    fn a_sample_weighs_the_period_in_force_at_its_time() {
        let profile = profile(&[(60, 300), (30, 10)]);
        let weights = Weights::of(&profile, None).expect("has three rates");
        assert_eq!([29, 30, 59].map(|tsc| weights.at(0, tsc)), [1.0, 100.0, 100.0]);
        assert!((weights.at(0, 60) - 10.0 / 3.0).abs() < 1e-9);
        // Of the chosen time alone the highest rate is 300.
        let weights = Weights::of(&profile, Some((30, 91))).expect("has two rates");
        assert_eq!([30, 60].map(|tsc| weights.at(0, tsc)), [30.0, 1.0]);
    }

    #[test]
    fn one_rate_has_no_weights_and_absurd_ones_are_refused() {
        assert!(Weights::of(&profile(&[(5, 1000), (50, 1000)]), None).is_none());
        assert!(Weights::of(&profile(&[(95, 10)]), None).is_none(), "set after the last sample");
        assert!(Weights::of(&profile(&[(50, u64::MAX)]), None).is_none());
    }
}
