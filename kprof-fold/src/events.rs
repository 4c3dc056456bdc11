//! The recorded hits of one point: counted by stack, and scaled to the exact totals of the point. Stage: fold.
//!
//! In: events, and the account of the point. Out: a count per stack (of weight, or of hits), what was lost, and what
//! was only counted. Together they are the exact total that the kernel has counted.
//!
//! A hit that was recorded stands for itself. One of N that were recorded stands for N hits. One that was drawn by
//! weight (mean distance W) had the chance p = 1 - e^(-w/W), and stands for 1/p hits and the weight w/p, which is
//! without bias. What the recorded hits of a CPU stand for is then scaled to the total of the hits on this CPU for
//! which a record was asked: that is known exactly. So the counts of all CPUs add up to those of the whole.

pub mod parts;

use crate::amount::{Amount, factor};
use crate::points::Point;
use crate::read::consumer::{Consumer, Recorded};
use crate::read::escape::unescape;
use crate::select::Select;
use crate::stacks::StackId;
use crate::tally::{By, Count};
use kprof_format::memory::FREE;
use kprof_format::point::{PointCounter, PointPart, PointState};
use std::collections::{BTreeMap, BTreeSet};

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
    hits: Amount,
    scaled_weight: Amount,
}

impl Sum {
    fn add(&mut self, weight: u64, state: PointState) {
        let factor = factor(weight, state);
        self.events += 1;
        self.weight = self.weight.saturating_add(u128::from(weight));
        self.hits.add(&Amount::of_hit(1.0, factor));
        self.scaled_weight.add(&Amount::of_hit(weight as f64, factor));
    }

    fn merge(&mut self, other: &Self) {
        self.events += other.events;
        self.weight = self.weight.saturating_add(other.weight);
        self.hits.add(&other.hits);
        self.scaled_weight.add(&other.scaled_weight);
    }
}

/// The consumer that keeps the events of one point.
#[derive(Debug)]
pub struct EventTally {
    select: Select,
    point: String,
    by: By,
    groups: Vec<String>,
    /// The key is that of the counts of a point.
    cpus: BTreeMap<Option<u64>, OfCpu>,
}

/// The events of one CPU.
#[derive(Debug, Default)]
struct OfCpu {
    chosen: BTreeMap<(StackId, u32), Sum>,
    all: Sum,
    /// Whether an event was chosen by chance or by number.
    is_sampled: bool,
    /// The greatest mean distance of events that were drawn by weight.
    mean_distance: u64,
    /// The greatest number of hits for which one event stands.
    max_hits: f64,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
        Self { select, point: point.to_owned(), by, groups: Vec::new(), cpus: BTreeMap::new() }
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
        let (mut counts, mut whole) = (BTreeMap::<_, u64>::new(), Scaled::default());
        for part in self.by_cpu(point, of_hits).into_values() {
            whole.lost = whole.lost.saturating_add(part.lost);
            whole.only_counted = whole.only_counted.saturating_add(part.only_counted);
            part.counts.iter().for_each(|one| *counts.entry((one.stack, one.group)).or_default() += one.samples);
        }
        let count = |((stack, group), samples)| Count { group, stack, samples };
        Scaled { counts: counts.into_iter().map(count).collect(), ..whole }
    }

    /// The same by CPU; under `None` the hits on CPUs without memory for the point, which are lost.
    pub fn by_cpu(&self, point: &Point, of_hits: bool) -> BTreeMap<Option<u64>, Scaled> {
        let (nothing, is_free) = (OfCpu::default(), self.point == FREE);
        let cpus: BTreeSet<_> = self.cpus.keys().chain(point.cpus.keys()).copied().collect();
        let scaled = |cpu: Option<u64>| {
            let counts = point.of_cpus(|one| one == cpu);
            if cpu.is_none() {
                let lost = if of_hits { counts.hits() } else { whole(counts.weight()) };
                return (cpu, Scaled { lost, ..Scaled::default() });
            }
            (cpu, self.cpus.get(&cpu).unwrap_or(&nothing).scaled(&counts, of_hits, is_free))
        };
        cpus.into_iter().map(scaled).collect()
    }
}

impl OfCpu {
    /// The counts, scaled to those of the CPU.
    fn scaled(&self, point: &Point, of_hits: bool, is_free: bool) -> Scaled {
        let number = |sum: &Sum| if of_hits { sum.hits.sum } else { sum.scaled_weight.sum };
        let exact = |sum: &Sum| if of_hits { u128::from(sum.events) } else { sum.weight };
        let (recorded, lost_hits) = (point.count(PointCounter::Recorded), point.count(PointCounter::Lost));
        let (lost_hits, unsampled) = (u128::from(lost_hits), point.part(PointPart::Unsampled));
        let missing = u128::from(recorded.saturating_sub(self.all.events));
        let total = if of_hits { u128::from(point.hits()) } else { point.weight() };
        let lost_exactly = if of_hits { lost_hits } else { point.part(PointPart::LostWeight) };
        if self.all.events == 0 && recorded == 0 && unsampled > 0 {
            // None was chosen, so nothing is known of their stacks.
            let only_counted = total.saturating_sub(lost_exactly);
            return Scaled { counts: Vec::new(), lost: whole(lost_exactly), only_counted: whole(only_counted) };
        }
        let asked = match of_hits {
            true => u128::from(recorded) + lost_hits + unsampled,
            false => point.part(PointPart::AskedWeight),
        };
        // A file may end before the newest account: then its events are more than the account knows.
        let asked = asked.max(exact(&self.all));
        let asked = if self.is_sampled && is_free { number(&self.all).round() as u128 } else { asked };
        let (scale, lost) = if !self.is_sampled {
            (1.0, asked - exact(&self.all))
        } else if is_free {
            // Only frees of recorded allocations get a record, and of how many allocations that is asked is not known:
            // others were made before. So nothing is scaled, and the rest is not recorded.
            (1.0, lost_exactly)
        } else {
            // Lost events stand for as much as the others do.
            let (all, events) = (number(&self.all), self.all.events.max(1) as f64);
            let lost = match of_hits {
                true => lost_hits as f64 * all / events,
                false => lost_exactly as f64 * all / (self.all.weight.max(1) as f64),
            };
            let lost = lost + missing as f64 * all / events;
            let scale = if all + lost > 0.0 { asked as f64 / (all + lost) } else { 0.0 };
            (scale, asked.saturating_sub((all * scale).round() as u128))
        };
        // Rounded so that the sum is exact: each count ends at the rounded sum up to it.
        let (mut sum, mut end) = (0.0, 0_u64);
        let counts = self.chosen.iter().map(|((stack, group), part)| {
            if !self.is_sampled {
                // Whole numbers stay what they are, also above 2^53.
                return Count { group: *group, stack: *stack, samples: whole(exact(part)) };
            }
            sum += number(part) * scale;
            let (from, to) = (end, sum.round() as u64);
            end = to;
            Count { group: *group, stack: *stack, samples: to - from }
        });
        let counts = counts.filter(|count| count.samples > 0).collect();
        Scaled { counts, lost: whole(lost), only_counted: whole(total.saturating_sub(asked)) }
    }
}

fn whole(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl Consumer for EventTally {
    fn takes_events(&self) -> bool {
        true
    }

    fn event(&mut self, recorded: &Recorded<'_>) {
        let event = &recorded.event;
        if event.point.to_string() != self.point || !self.select.admits_cpu(event.cpu) {
            return;
        }
        let cpu = Some(u64::from(event.cpu));
        let of_cpu = self.cpus.entry(cpu).or_default();
        of_cpu.is_sampled |= event.state != PointState::Record;
        if let PointState::ByWeight(mean) = event.state {
            of_cpu.mean_distance = of_cpu.mean_distance.max(mean);
        }
        of_cpu.max_hits = of_cpu.max_hits.max(factor(event.weight, event.state));
        let mut one = Sum::default();
        one.add(event.weight, event.state);
        of_cpu.all.merge(&one);
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
        self.cpus.entry(cpu).or_default().chosen.entry((recorded.stack, group)).or_default().merge(&one);
    }

    fn sample(&mut self, _: &crate::read::consumer::Sample<'_>) {}
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
        let whole = ["cpu=1 weight=7100 recorded=3 filtered=29 unsampled=29 asked-weight=7100"];
        let weight = tally.scaled(&point(&whole), false);
        assert_eq!(counts(&weight).iter().map(|(_, weight)| weight).sum::<u64>(), 7100);
        assert_eq!((counts(&weight), weight.lost), (vec![(1, 1014), (2, 6086)], 0));
        // A record of 300 bytes was lost: it stands for as much as the others.
        let lossy =
            ["cpu=1 weight=10000 recorded=3 lost=1 filtered=36 unsampled=36 asked-weight=10000 lost-weight=300"];
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
        let point = point(&["cpu=1 weight=1001000 recorded=2 filtered=999 unsampled=999 asked-weight=1001000"]);
        let weight = tally.scaled(&point, false);
        assert_eq!(
            (counts(&weight)[0].1.abs_diff(1_000_000) <= 1, counts(&weight)[1].1.abs_diff(1000) <= 1),
            (true, true)
        );
        assert_eq!((counts(&weight).iter().map(|(_, weight)| weight).sum::<u64>(), weight.lost), (1_001_000, 0));
    }

    #[test]
    fn the_cpus_add_up_to_the_whole_exactly_whichever_way_their_hits_were_chosen() {
        let (record, by_weight) = (PointState::Record, PointState::ByWeight(900));
        let lines = ["!null.write dd 1 5 7 - a", "!null.write dd 2 5 100 - a", "!null.write dd 2 6 333 - a"];
        let point = point(&[
            "cpu=1 weight=60 recorded=1 filtered=3 lost=1 asked-weight=30 lost-weight=23",
            "cpu=2 weight=10001 recorded=2 lost=1 filtered=30 unsampled=29 asked-weight=9001 lost-weight=50",
            // None of these was chosen, and of one the record was lost.
            "cpu=3 weight=77 lost=1 filtered=6 unsampled=6 asked-weight=77 lost-weight=7",
            "weight=40 lost=2",
        ]);
        let tally = |cpus: &[u32]| {
            let cpus = cpus.iter().map(|cpu| *cpu..=*cpu).collect();
            let select = Select { cpus, ..Select::default() };
            let mut tally = EventTally::new(select, "null.write", By::None);
            for ((text, stack), state) in lines.iter().zip([1, 1, 2]).zip([record, by_weight, by_weight]) {
                let event = EventLine { state, ..EventLine::parse(text).unwrap().0 };
                tally.event(&Recorded { boot: 0, event, task: b"dd", stack, traits: Traits::default() });
            }
            tally
        };
        for of_hits in [false, true] {
            let all = tally(&[]).scaled(&point, of_hits);
            let (mut lost, mut only_counted, mut stacks) = (0, 0, BTreeMap::<StackId, u64>::new());
            for cpu in [None, Some(1), Some(2), Some(3)] {
                let of_cpu = point.of_cpus(|one| one == cpu);
                let chosen: Vec<u32> = cpu.into_iter().map(|cpu| cpu as u32).collect();
                // No event has the number of those without one.
                let part = tally(if chosen.is_empty() { &[9] } else { &chosen }).scaled(&of_cpu, of_hits);
                let counts: u64 = part.counts.iter().map(|count| count.samples).sum();
                let total = if of_hits { of_cpu.hits() } else { of_cpu.weight() as u64 };
                assert_eq!(counts + part.lost + part.only_counted, total, "{cpu:?}");
                (lost, only_counted) = (lost + part.lost, only_counted + part.only_counted);
                part.counts.iter().for_each(|count| *stacks.entry(count.stack).or_default() += count.samples);
            }
            assert_eq!((lost, only_counted), (all.lost, all.only_counted));
            assert_eq!(counts(&all), stacks.into_iter().collect::<Vec<_>>());
            let of_third = tally(&[3]).scaled(&point.of_cpus(|one| one == Some(3)), of_hits);
            assert_eq!((of_third.lost, of_third.only_counted), if of_hits { (1, 6) } else { (7, 70) });
            let of_third = tally(&[3]).by_cpu(&point.of_cpus(|one| one == Some(3)), of_hits);
            assert_eq!(of_third.into_keys().collect::<Vec<_>>(), [Some(3)]);
        }
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
