//! At which rates samples were taken. Stage: read.
//!
//! In: the header and the settings of a boot. Out: each rate that was in force while samples were taken. Every sample
//! counts the same in all outputs, so with more than one rate shares are of samples, and not of time.

use super::{Boot, Profile};
use kprof_format::fact::Fact;
use std::collections::BTreeSet;

impl Boot {
    /// The rates, in ticks per second and CPU, that were in force for samples between two TSCs.
    pub fn rates(&self, between: (u64, u64)) -> BTreeSet<u64> {
        let seen = || self.cpus.values().map(|cpu| cpu.seen);
        let first = seen().filter_map(|seen| seen.tsc_min()).min().map(|first| first.max(between.0));
        let last = seen().filter_map(|seen| seen.tsc_max()).max().map(|last| last.min(between.1));
        let Some((first, last)) = first.zip(last).filter(|(first, last)| first <= last) else {
            return BTreeSet::new();
        };
        let rate = |name: &[u8]| std::str::from_utf8(name).ok()?.strip_prefix("hz ")?.trim().parse::<u64>().ok();
        let mut settings: Vec<(u64, u64)> =
            self.settings.iter().filter_map(|setting| Some((setting.tsc, rate(&setting.name)?))).collect();
        settings.sort_unstable();
        let at_first = settings.iter().rev().find(|(tsc, _)| *tsc <= first).map(|(_, rate)| *rate);
        let later = settings.iter().filter(|(tsc, _)| first < *tsc && *tsc < last).map(|(_, rate)| *rate);
        at_first.or(self.number(Fact::Hz)).into_iter().chain(later).filter(|rate| *rate > 0).collect()
    }
}

impl Profile {
    /// The rates of all boots.
    pub fn rates(&self, between: Option<(u64, u64)>) -> BTreeSet<u64> {
        self.boots.iter().flat_map(|boot| boot.rates(between.unwrap_or((0, u64::MAX)))).collect()
    }
}

/// Rates for people: `10 and 100`.
pub fn in_words(rates: &BTreeSet<u64>) -> String {
    rates.iter().map(u64::to_string).collect::<Vec<_>>().join(" and ")
}
