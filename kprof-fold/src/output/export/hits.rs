//! Recorded hits for viewers that show time: each at its time, with the weight for which it stands. Stage: output.
//!
//! In: the events of a point, and its account by CPU. Out: hits by boot and time, and what is known only as a sum by
//! CPU: what was lost, and what was counted while no record was asked for. Together they are the exact total of the
//! point. The hits of a CPU with the same stack stand together for exactly what the folded stacks of this CPU have.

use super::Reason;
use crate::amount::factor;
use crate::events::{EventTally, Scaled};
use crate::heap::{HeapTally, Made};
use crate::output::folded::NOT_RECORDED;
use crate::output::script_events::{EventLog, One};
use crate::points::Point;
use crate::read::consumer::{Consumer, Recorded, Sample};
use crate::select::Select;
use crate::stacks::StackId;
use crate::symbols::name::visible;
use crate::tally::By;
use kprof_format::event::Arguments;
use kprof_format::locks::HOLD;
use kprof_format::memory::LIVE;
use kprof_format::waiting::BLOCKED;
use std::collections::{BTreeMap, BTreeSet};

/// A recorded hit.
#[derive(Clone, Debug)]
pub struct Hit {
    /// Index of the boot.
    pub boot: u32,
    /// CPU; `None` if it is not shown by CPU.
    pub cpu: Option<u32>,
    /// When.
    pub tsc: u64,
    /// Index into [`Hits::tasks`].
    pub task: u32,
    /// The distinct stack.
    pub stack: StackId,
    /// Its own weight.
    pub weight: u64,
    /// The weight for which it stands.
    pub stands_for: u64,
    /// Its arguments.
    pub arguments: Arguments,
}

/// All hits of a point.
#[derive(Debug)]
pub struct Hits {
    /// The name of the point, for people.
    pub name: String,
    /// The unit of the weights: `ns`, `bytes`, or something that is counted.
    pub unit: String,
    /// What the first argument means, by its value.
    pub values: Vec<String>,
    /// The names of the tasks.
    pub tasks: Vec<String>,
    /// The hits, by boot and time.
    pub hits: Vec<Hit>,
    /// Sums without a time: CPU if it is known, name, weight.
    pub beside: Vec<(Option<u64>, &'static str, u64)>,
}

impl Hits {
    /// The allocations that were not freed, at the times at which they were made, with the bytes for which they stand,
    /// or with how many allocations. The sum of a stack is that of the folded stacks.
    pub fn of_heap(tally: &HeapTally, of_allocations: bool) -> Self {
        let mut sums = BTreeMap::<StackId, (f64, u64)>::new();
        let mut hit = |(boot, made): &(usize, Made)| {
            let Made { tsc, cpu, task, stack, weight, estimate } = *made;
            let (sum, end) = sums.entry(stack).or_default();
            *sum += if of_allocations { estimate.allocations } else { estimate.bytes };
            let stands_for = sum.round() as u64 - std::mem::replace(end, sum.round() as u64);
            let (boot, cpu, arguments) = (*boot as u32, Some(cpu), Arguments::default());
            Hit { boot, cpu, tsc, task, stack, weight, stands_for, arguments }
        };
        let hits = tally.made().iter().map(&mut hit).collect();
        let tasks = tally.tasks.iter().map(|task| visible(task).into_owned()).collect();
        let (name, unit) = (LIVE.to_owned(), "bytes".to_owned());
        Self { name, unit, values: Vec::new(), tasks, hits, beside: Vec::new() }
    }

    /// The same, not by CPU and task: all in one task with the name of the point.
    pub fn in_one_task(mut self) -> Self {
        self.tasks = vec![self.name.clone()];
        self.hits.iter_mut().for_each(|hit| (hit.cpu, hit.task) = (None, 0));
        self
    }

    /// The nanoseconds from the beginning and from the end of the time that a hit has taken until it was recorded.
    /// `None` if its weight is no time. The charge of a lock's holder is none: it is the sum of the times that others
    /// have waited. A task that was blocked had to wait for a CPU after that, and this is recorded when it runs again.
    pub fn time_of(&self, hit: &Hit) -> Option<(u64, u64)> {
        if self.unit != "ns" || self.name == HOLD {
            return None;
        }
        let whole = hit.arguments.as_slice().get(1).filter(|_| self.name == BLOCKED);
        let since = whole.map_or(0, |whole| whole.saturating_sub(hit.weight));
        Some((hit.weight.saturating_add(since), since))
    }
}

/// The consumer that keeps the hits of one point.
#[derive(Debug)]
pub struct HitLog {
    log: EventLog,
    tally: EventTally,
}

impl HitLog {
    /// A log of the hits of the point with this name that `select` asks for.
    pub fn new(select: Select, point: &str) -> Self {
        Self { log: EventLog::new(select.clone(), point), tally: EventTally::new(select, point, By::None) }
    }

    /// The same hits by stack.
    pub fn tally(&self) -> &EventTally {
        &self.tally
    }

    /// The hits, scaled to the account of the point. With `of_hits` each stands for a number of hits, not for a weight.
    pub fn hits(&self, name: &str, point: &Point, select: &Select, of_hits: bool) -> Hits {
        let scaled = self.tally.by_cpu(point, of_hits);
        let weight = |event: &One| if of_hits { 1 } else { event.weight };
        let mut events: Vec<&One> = self.log.events().iter().collect();
        events.sort_by_key(|event| (event.boot, event.tsc, event.cpu));
        let tasks: BTreeSet<&str> = events.iter().map(|event| &event.task[..]).collect();
        let tasks: Vec<String> = tasks.into_iter().map(str::to_owned).collect();
        let mut shares = BTreeMap::<(u32, StackId), Share>::new();
        for event in &events {
            shares.entry((event.cpu, event.stack)).or_default().add(weight(event), event);
        }
        for (cpu, counts) in scaled.iter().filter_map(|(cpu, scaled)| cpu.zip(Some(&scaled.counts))) {
            for count in counts {
                let share = u32::try_from(cpu).ok().and_then(|cpu| shares.get_mut(&(cpu, count.stack)));
                share.into_iter().for_each(|share| share.count = count.samples);
            }
        }
        let hit = |event: &&One| Hit {
            boot: event.boot as u32,
            cpu: Some(event.cpu),
            tsc: event.tsc,
            task: tasks.binary_search(&event.task).unwrap_or(0) as u32,
            stack: event.stack,
            weight: event.weight,
            stands_for: shares.get_mut(&(event.cpu, event.stack)).map_or(0, |share| share.next(weight(event), event)),
            arguments: event.arguments,
        };
        let hits = events.iter().map(hit).collect();
        // Of what was only counted no task is known.
        let only_counted = |one: &Scaled| if select.tasks.is_empty() { one.only_counted } else { 0 };
        let lost = Reason::Lost.name(select);
        let sums = |(cpu, one): (&_, &Scaled)| [(*cpu, lost, one.lost), (*cpu, NOT_RECORDED, only_counted(one))];
        let beside = scaled.iter().flat_map(sums);
        let beside = beside.filter(|(_, _, weight)| *weight > 0).collect();
        let values = point.values.iter().map(|word| visible(word).into_owned()).collect();
        Hits { name: visible(name).into_owned(), unit: visible(&point.unit).into_owned(), values, tasks, hits, beside }
    }
}

/// The hits of one CPU with the same stack.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// The sum of their own weights.
    weight: u64,
    /// For what they stand, before scaling.
    estimate: f64,
    /// For what they stand, exactly.
    count: u64,
    /// The part of the estimate and of the count that was given out.
    given: (f64, u64),
}

impl Share {
    fn add(&mut self, weight: u64, event: &One) {
        self.weight = self.weight.saturating_add(weight);
        self.estimate += factor(event.weight, event.state) * weight as f64;
    }

    /// What the next hit stands for. Rounded so that the sum is exact.
    fn next(&mut self, weight: u64, event: &One) -> u64 {
        if self.count == self.weight {
            return weight;
        }
        self.given.0 += factor(event.weight, event.state) * weight as f64;
        let part = if self.estimate > 0.0 { (self.given.0 / self.estimate).min(1.0) } else { 0.0 };
        let end = ((self.count as f64 * part).round() as u64).clamp(self.given.1, self.count);
        end - std::mem::replace(&mut self.given.1, end)
    }
}

impl Consumer for HitLog {
    fn takes_events(&self) -> bool {
        true
    }

    fn event(&mut self, recorded: &Recorded<'_>) {
        self.log.event(recorded);
        self.tally.event(recorded);
    }

    fn sample(&mut self, _: &Sample<'_>) {}
    fn commit(&mut self) {}
    fn discard(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use kprof_format::event::EventLine;

    fn hits(name: &str, unit: &str, text: &str) -> Hits {
        let (event, _) = EventLine::parse(text).expect("is an event");
        let (weight, arguments, cpu) = (event.weight, event.arguments, Some(event.cpu));
        let hit = Hit { boot: 0, cpu, tsc: event.tsc, task: 0, stack: 0, weight, stands_for: weight, arguments };
        let (name, unit, tasks) = (name.to_owned(), unit.to_owned(), vec!["dd".to_owned()]);
        Hits { name, unit, values: Vec::new(), tasks, hits: vec![hit], beside: Vec::new() }
    }

    #[test]
    fn a_time_ends_when_it_is_recorded_but_being_blocked_ends_before_and_a_charge_is_no_time() {
        let time = |name: &str, unit: &str| {
            let hits = hits(name, unit, &format!("!{name} dd 1 5 300 2,190 a"));
            hits.time_of(&hits.hits[0])
        };
        assert_eq!(time("sched.off-cpu", "ns"), Some((300, 0)));
        // 400 in all, of which it was ready to run for 100.
        assert_eq!(time("sched.blocked", "ns"), Some((400, 100)));
        assert_eq!((time("lock.hold", "ns"), time("null.write", "bytes")), (None, None));
    }
}
