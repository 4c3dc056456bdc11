//! The recorded hits of one point: counted by stack, and scaled to the exact totals of the point. Stage: fold.
//!
//! In: events, and the account of the point. Out: a count per stack (of weight, or of hits), what was lost, and what
//! was only counted. Together they are the exact total that the kernel has counted.
//!
//! A hit that was recorded stands for itself. One of N that were recorded stands for N hits. One that was drawn by
//! weight (mean distance W) had the chance p = 1 - e^(-w/W), and stands for 1/p hits and the weight w/p, which is
//! without bias. What a point's recorded hits stand for is then scaled to the total of the hits for which a record was
//! asked: that is known exactly.

use crate::points::Point;
use crate::read::escape::unescape;
use crate::read::ingest::{Consumer, Recorded};
use crate::select::Select;
use crate::stacks::StackId;
use crate::tally::{By, Count};
use kprof_format::memory::FREE;
use kprof_format::point::{PointCounter, PointPart, PointState};
use std::collections::BTreeMap;

/// For how many hits a recorded hit of this weight stands, if it was chosen like this.
pub fn factor(weight: u64, state: PointState) -> f64 {
    match state {
        PointState::Every(hits) => hits as f64,
        PointState::ByWeight(mean) if weight > 0 => 1.0 / -(-(weight as f64) / mean as f64).exp_m1(),
        _ => 1.0,
    }
}

/// What the numbers of folded events are.
#[derive(Clone, Debug)]
pub struct EventFacts {
    /// The unit of the weights, or `hits`, for people.
    pub unit: String,
    /// The name of the point, for people.
    pub name: String,
    /// What was counted while no record was asked, in this unit.
    pub only_counted: u64,
    /// What the account of the point says, in one line.
    pub account: String,
    /// The sums of the point; `None` for what is computed from several points.
    pub sums: Option<Point>,
}

/// What a group of hits stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    events: u64,
    weight: u128,
    /// What they stand for: hits, and weight.
    hits: f64,
    scaled_weight: f64,
}

impl Sum {
    fn add(&mut self, weight: u64, state: PointState) {
        let factor = factor(weight, state);
        self.events += 1;
        self.weight = self.weight.saturating_add(u128::from(weight));
        self.hits += factor;
        self.scaled_weight += factor * weight as f64;
    }

    fn merge(&mut self, other: &Self) {
        self.events += other.events;
        self.weight = self.weight.saturating_add(other.weight);
        self.hits += other.hits;
        self.scaled_weight += other.scaled_weight;
    }
}

/// The consumer that keeps the events of one point.
#[derive(Debug)]
pub struct EventTally {
    select: Select,
    point: String,
    by: By,
    groups: Vec<String>,
    chosen: BTreeMap<(StackId, u32), Sum>,
    all: Sum,
    /// Whether an event was chosen by chance or by number.
    is_sampled: bool,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaled {
    /// Counts per stack.
    pub counts: Vec<Count>,
    /// What was lost.
    pub lost: u64,
    /// What was counted while no record was asked.
    pub only_counted: u64,
}

impl EventTally {
    /// A tally of the events of the point with this name that `select` asks for.
    pub fn new(select: Select, point: &str, by: By) -> Self {
        let (groups, chosen, all) = (Vec::new(), BTreeMap::new(), Sum::default());
        Self { select, point: point.to_owned(), by, groups, chosen, all, is_sampled: false }
    }

    /// Names of the groups.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    fn group(&mut self, name: String) -> u32 {
        let known = self.groups.iter().position(|known| *known == name);
        known.unwrap_or_else(|| {
            self.groups.push(name);
            self.groups.len() - 1
        }) as u32
    }

    /// The counts of weight, or of hits, scaled to the totals of `point`.
    pub fn scaled(&self, point: &Point, of_hits: bool) -> Scaled {
        let number = |sum: &Sum| if of_hits { sum.hits } else { sum.scaled_weight };
        let exact = |sum: &Sum| if of_hits { u128::from(sum.events) } else { sum.weight };
        let (homeless_hits, homeless_weight) = point.homeless;
        let lost_hits = u128::from(point.count(PointCounter::Lost).saturating_sub(homeless_hits));
        let missing = u128::from(point.count(PointCounter::Recorded).saturating_sub(self.all.events));
        let asked = match of_hits {
            true => u128::from(point.count(PointCounter::Recorded)) + lost_hits + point.part(PointPart::LeftOut),
            false => point.part(PointPart::AskedWeight),
        };
        let homeless = if of_hits { u128::from(homeless_hits) } else { homeless_weight };
        let total = if of_hits { u128::from(point.hits()) } else { point.weight };
        // A file may end before the newest account: then its events are more than the account knows.
        let asked = asked.max(exact(&self.all));
        let asked = match self.is_sampled && self.point == FREE {
            true => number(&self.all).round() as u128,
            false => asked,
        };
        let only_counted = total.saturating_sub(asked.saturating_add(homeless));
        let (scale, lost) = if !self.is_sampled {
            (1.0, asked - exact(&self.all))
        } else if self.point == FREE {
            // Only frees of recorded allocations get a record, and of how many allocations that is asked is not known:
            // others were made before. So nothing is scaled, and the rest is not recorded.
            let lost = if of_hits { lost_hits } else { point.part(PointPart::LostWeight) };
            (1.0, lost)
        } else {
            // Lost events stand for as much as the others do.
            let (all, events) = (number(&self.all), self.all.events.max(1) as f64);
            let lost_weight = point.part(PointPart::LostWeight) as f64;
            let lost = match of_hits {
                true => lost_hits as f64 * all / events,
                false => lost_weight * all / (self.all.weight.max(1) as f64),
            };
            let lost = lost + missing as f64 * all / events;
            let scale = if all + lost > 0.0 { asked as f64 / (all + lost) } else { 0.0 };
            (scale, asked.saturating_sub((all * scale).round() as u128))
        };
        // Rounded so that the sum is exact: each count ends at the rounded sum up to it.
        let (mut sum, mut end) = (0.0, 0_u64);
        let counts = self.chosen.iter().map(|((stack, group), part)| {
            sum += number(part) * scale;
            let (from, to) = (end, sum.round() as u64);
            end = to;
            Count { group: *group, stack: *stack, samples: to - from }
        });
        let counts = counts.filter(|count| count.samples > 0).collect();
        let whole = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        Scaled { counts, lost: whole(lost.saturating_add(homeless)), only_counted: whole(only_counted) }
    }
}

impl Consumer for EventTally {
    fn takes_events(&self) -> bool {
        true
    }

    fn event(&mut self, recorded: &Recorded<'_>) {
        let event = &recorded.event;
        if event.point.to_string() != self.point {
            return;
        }
        self.is_sampled |= event.state != PointState::Record;
        let mut one = Sum::default();
        one.add(event.weight, event.state);
        self.all.merge(&one);
        if !self.select.admits_event(recorded) {
            return;
        }
        let group = match self.by {
            By::None | By::Entry | By::Line | By::Age => 0,
            By::Cpu => self.group(format!("CPU {}", event.cpu)),
            // The meaning of the number may come later in the file.
            By::Reason => match event.arguments.as_slice().first() {
                Some(reason) => self.group(reason.to_string()),
                None => self.group(String::new()),
            },
            By::Task => self.group(String::from_utf8_lossy(&unescape(recorded.task)).into_owned()),
        };
        self.chosen.entry((recorded.stack, group)).or_default().merge(&one);
    }

    fn sample(&mut self, _: &crate::read::ingest::Sample<'_>) {}
    fn commit(&mut self) {}
    fn discard(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::Traits;
    use kprof_format::event::EventLine;
    use kprof_format::line::PointAccount;

    fn tally(events: &[(StackId, u64, PointState)]) -> EventTally {
        let mut tally = EventTally::new(Select::default(), "null.write", By::None);
        for name in ["null.write", "other"] {
            for (stack, weight, state) in events {
                let text = format!("!{name} dd 1 5 {weight} - a");
                let event = EventLine { state: *state, ..EventLine::parse(&text).unwrap().0 };
                let recorded = Recorded { boot: 0, event, task: b"dd", stack: *stack, traits: Traits::default() };
                tally.event(&recorded);
            }
        }
        tally
    }

    fn point(lines: &[&str]) -> Point {
        let mut point = Point::default();
        lines.iter().for_each(|line| {
            let line = format!("tsc=1 {line} unit=bytes point=null.write");
            point.add_line(&PointAccount::read(&line).unwrap());
        });
        point
    }

    fn counts(scaled: &Scaled) -> Vec<(StackId, u64)> {
        scaled.counts.iter().map(|count| (count.stack, count.samples)).collect()
    }

    #[test]
    fn recorded_hits_are_taken_as_they_are_and_the_rest_is_lost_or_was_only_counted() {
        let tally = tally(&[(1, 100, PointState::Record), (2, 300, PointState::Record), (1, 1, PointState::Record)]);
        // Of 1000 bytes 200 were written before records were asked for, and 40 where there is no memory.
        let point = point(&[
            "cpu=1 weight=960 recorded=3 lost=2 filtered=4 asked-weight=760 lost-weight=359",
            "weight=40 lost=1",
        ]);
        let weight = tally.scaled(&point, false);
        assert_eq!((counts(&weight), weight.lost, weight.only_counted), (vec![(1, 101), (2, 300)], 399, 200));
        let hits = tally.scaled(&point, true);
        assert_eq!((counts(&hits), hits.lost, hits.only_counted), (vec![(1, 2), (2, 1)], 3, 4));
    }

    #[test]
    fn one_of_ten_stands_for_ten_and_the_sum_is_the_exact_total() {
        let every = PointState::Every(10);
        let tally = tally(&[(1, 100, every), (2, 300, every), (2, 300, every)]);
        let whole = ["cpu=1 weight=7100 recorded=3 filtered=29 left-out=29 asked-weight=7100"];
        let weight = tally.scaled(&point(&whole), false);
        assert_eq!(counts(&weight).iter().map(|(_, weight)| weight).sum::<u64>(), 7100);
        assert_eq!((counts(&weight), weight.lost), (vec![(1, 1014), (2, 6086)], 0));
        // A record of 300 bytes was lost: it stands for as much as the others.
        let lossy = ["cpu=1 weight=10000 recorded=3 lost=1 filtered=36 left-out=36 asked-weight=10000 lost-weight=300"];
        let weight = tally.scaled(&point(&lossy), false);
        assert_eq!((counts(&weight), weight.lost), (vec![(1, 1000), (2, 6000)], 3000));
        let hits = tally.scaled(&point(&lossy), true);
        assert_eq!((counts(&hits), hits.lost), (vec![(1, 10), (2, 20)], 10));
    }

    #[test]
    fn what_was_drawn_by_weight_is_scaled_by_its_chance() {
        let mean = PointState::ByWeight(1000);
        // A hit far above the mean stands for itself, one far below for the mean.
        let tally = tally(&[(1, 1_000_000, mean), (2, 1, mean)]);
        let point = point(&["cpu=1 weight=1001000 recorded=2 filtered=999 left-out=999 asked-weight=1001000"]);
        let weight = tally.scaled(&point, false);
        assert_eq!(
            (counts(&weight)[0].1.abs_diff(1_000_000) <= 1, counts(&weight)[1].1.abs_diff(1000) <= 1),
            (true, true)
        );
        assert_eq!((counts(&weight).iter().map(|(_, weight)| weight).sum::<u64>(), weight.lost), (1_001_000, 0));
    }

    #[test]
    fn a_file_without_its_last_account_or_without_events_loses_nothing_else() {
        let tally_of_two = tally(&[(1, 100, PointState::Record), (1, 100, PointState::Record)]);
        let early = point(&["cpu=1 weight=100 recorded=1 asked-weight=100"]);
        assert_eq!(
            tally_of_two.scaled(&early, false),
            Scaled { counts: vec![Count { group: 0, stack: 1, samples: 200 }], lost: 0, only_counted: 0 }
        );
        let all_lost = point(&["cpu=1 weight=100 lost=1 asked-weight=100 lost-weight=100"]);
        assert_eq!(tally(&[]).scaled(&all_lost, false).lost, 100);
    }
}
