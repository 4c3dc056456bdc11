//! The recorded requests to disks: how long they took, by direction, disk and size. Stage: fold; a consumer.
//!
//! In: events. Out: for each point of requests, each disk and each size (a power of two up to the next) the nanoseconds
//! of every request. Unlike the histogram of a point they are exact, so the quantiles are those of the records.

use crate::read::consumer::{Consumer, Recorded, Sample};
use crate::select::{Cpus, admits};
use kprof_format::block::Request;
use kprof_format::point::{PointState, bucket};
use std::collections::BTreeMap;

/// Requests of one point and disk, of about the same size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The bytes of all of them.
    pub bytes: u128,
    /// How long each took, in nanoseconds.
    pub ns: Vec<u64>,
}

/// What a group has in common: the point, the disk, and the binary logarithm of the bytes.
pub type Key = (String, u16, usize);

/// The consumer that keeps all requests.
#[derive(Debug, Default)]
pub struct Requests {
    cpus: Vec<Cpus>,
    groups: BTreeMap<Key, Group>,
    /// A point of which some requests were chosen by their weight, if there is one.
    pub chosen_by_weight: Option<String>,
}

impl Requests {
    /// The requests of these CPUs; of all, if none is given.
    pub fn of_cpus(cpus: &[Cpus]) -> Self {
        Self { cpus: cpus.to_vec(), ..Self::default() }
    }

    /// The groups of the points that `is_wanted` names, each with its times in order.
    pub fn groups(self, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<Key, Group> {
        let mut groups = self.groups;
        groups.retain(|(point, ..), _| is_wanted(point));
        groups.values_mut().for_each(|group| group.ns.sort_unstable());
        groups
    }
}

impl Group {
    /// The least time that this share of the requests (0 to 1) did not exceed. The times are in order.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.ns.len() as f64 * share).ceil() as usize).clamp(1, self.ns.len().max(1));
        self.ns.get(rank - 1).copied().unwrap_or(0)
    }

    /// The sum of all times.
    pub fn sum(&self) -> u128 {
        self.ns.iter().map(|ns| u128::from(*ns)).sum()
    }
}

impl Consumer for Requests {
    fn takes_events(&self) -> bool {
        true
    }

    fn event(&mut self, recorded: &Recorded<'_>) {
        let event = &recorded.event;
        if !admits(&self.cpus, event.cpu) {
            return;
        }
        let point = event.point.to_string();
        let Some(request) = Request::of(&point, event.arguments.as_slice()) else { return };
        if let PointState::ByWeight(_) = event.state {
            self.chosen_by_weight.get_or_insert_with(|| point.clone());
        }
        let group = self.groups.entry((point, request.device, bucket(request.bytes))).or_default();
        group.bytes += u128::from(request.bytes);
        group.ns.push(event.weight);
    }

    fn sample(&mut self, _: &Sample<'_>) {}
    fn commit(&mut self) {}
    fn discard(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_time_that_was_measured() {
        let group = Group { bytes: 0, ns: (1..=200).collect() };
        assert_eq!([0.0, 0.5, 0.9, 0.99, 0.999, 1.0].map(|share| group.quantile(share)), [1, 100, 180, 198, 200, 200]);
        assert_eq!((Group::default().quantile(0.5), group.sum()), (0, 20_100));
    }
}
