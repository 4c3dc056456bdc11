//! The kernel's heap: what was allocated, and what of it was not freed, by stack. Stage: fold.
//!
//! In: the events of `heap.alloc` and `heap.free`. Out: for each stack how many allocations and bytes its recorded
//! allocations stand for, and those of them that have no free. A free has the number of the allocation that it ends.
//! It may be in the file before its allocation, because each CPU has a stream of its own. What an allocation stands
//! for follows from how it was chosen (see `events`); nothing is scaled beyond that. While `heap.free` is off nobody
//! knows what is freed, so of allocations that were recorded before it is not known whether they still exist: they are
//! counted by themselves, and shown nowhere as not freed.

use crate::amount::factor;
use crate::read::consumer::{Consumer, Recorded, Sample};
use crate::read::escape::unescape;
use crate::select::Select;
use crate::stacks::StackId;
use crate::tally::{By, Count};
use kprof_format::memory::{ALLOC, FREE, time_of};
use kprof_format::point::PointState;
use std::collections::{BTreeMap, HashMap, HashSet};

/// An allocation by its number, in a boot.
type Number = (usize, u64);

/// The consumer that keeps the allocations that were not freed.
#[derive(Debug)]
pub struct HeapTally {
    select: Select,
    by: By,
    live: HashMap<Number, Made>,
    /// Frees whose allocation was not seen yet.
    freed: HashSet<Number>,
    all: BTreeMap<StackId, Estimate>,
    /// The names of the tasks, unescaped.
    pub tasks: Vec<String>,
    task_numbers: HashMap<Vec<u8>, u32>,
    /// The newest time of each boot in which frees were watched without a gap.
    times: BTreeMap<usize, u64>,
    /// The time of the last event of each boot.
    ends: BTreeMap<usize, u64>,
    /// The mean distance of the last allocation that was chosen by weight.
    pub mean_bytes: Option<u64>,
}

/// A recorded allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Made {
    /// When it was made.
    pub tsc: u64,
    /// On which CPU.
    pub cpu: u32,
    /// Index into [`HeapTally::tasks`].
    pub task: u32,
    /// Where.
    pub stack: StackId,
    /// Its own bytes.
    pub weight: u64,
    /// For what it stands.
    pub estimate: Estimate,
}

/// What allocations stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// How many there were.
    pub allocations: f64,
    /// Their bytes.
    pub bytes: f64,
}

impl Estimate {
    fn add(&mut self, other: Self) {
        self.allocations += other.allocations;
        self.bytes += other.bytes;
    }
}

/// The ages of allocations: the upper ends of the groups in milliseconds, and their names.
const AGES: [(f64, &str); 6] = [
    (1.0, "[younger than 1 ms]"),
    (10.0, "[1 to 10 ms]"),
    (100.0, "[10 to 100 ms]"),
    (1000.0, "[100 ms to 1 s]"),
    (10_000.0, "[1 to 10 s]"),
    (f64::INFINITY, "[10 s or older]"),
];

impl HeapTally {
    /// A tally of the allocations that `select` asks for.
    pub fn new(select: Select, by: By) -> Self {
        let (live, freed, all, ends) = Default::default();
        let (tasks, task_numbers, times) = Default::default();
        Self { select, by, live, freed, all, tasks, task_numbers, times, ends, mean_bytes: None }
    }

    /// The recorded allocations without a free. Their frees were watched up to now, or were not (`is_watched`).
    fn without_free(&self, is_watched: bool) -> impl Iterator<Item = (&Number, &Made)> {
        let newest = |boot: &usize| self.times.get(boot).copied().unwrap_or(0);
        self.live.iter().filter(move |((boot, number), _)| (time_of(*number) == newest(boot)) == is_watched)
    }

    /// How many recorded allocations were not freed.
    pub fn live(&self) -> usize {
        self.without_free(true).count()
    }

    /// Of how many recorded allocations it is not known whether they were freed.
    pub fn unknown(&self) -> usize {
        self.without_free(false).count()
    }

    /// What all of these stand for.
    pub fn live_estimate(&self) -> Estimate {
        let mut sum = Estimate::default();
        self.without_free(true).for_each(|(_, made)| sum.add(made.estimate));
        sum
    }

    /// What was not freed, by stack and group: bytes, or allocations; and the names of the groups.
    pub fn counts(&self, of_allocations: bool, tsc_hz: Option<f64>) -> (Vec<Count>, Vec<String>) {
        let mut sums = BTreeMap::<(String, StackId), f64>::new();
        for (stack, group, estimate) in self.unfreed(tsc_hz) {
            let number = if of_allocations { estimate.allocations } else { estimate.bytes };
            *sums.entry((group, stack)).or_default() += number;
        }
        let mut groups: Vec<String> = sums.keys().map(|(group, _)| group.clone()).collect();
        groups.dedup();
        let index = |group: &String| groups.binary_search(group).unwrap_or(0) as u32;
        let count = |((group, stack), sum): (&(String, StackId), &f64)| Count {
            group: index(group),
            stack: *stack,
            samples: sum.round() as u64,
        };
        let counts = sums.iter().map(count).filter(|count| count.samples > 0).collect();
        (counts, groups)
    }

    /// Each allocation that was not freed: its stack, its group, for what it stands.
    pub fn unfreed(&self, tsc_hz: Option<f64>) -> impl Iterator<Item = (StackId, String, Estimate)> {
        self.without_free(true).map(move |((boot, _), made)| {
            let group = match self.by {
                By::Age => age(self.ends.get(boot).map_or(0, |end| end.saturating_sub(made.tsc)), tsc_hz).to_owned(),
                By::Cpu => format!("CPU {}", made.cpu),
                By::Task => self.tasks[made.task as usize].clone(),
                By::None | By::Entry | By::Line | By::Reason => String::new(),
            };
            (made.stack, group, made.estimate)
        })
    }

    /// The allocations that were not freed, by boot and time, each with the index of its boot.
    pub fn made(&self) -> Vec<(usize, Made)> {
        let mut all: Vec<_> = self.without_free(true).collect();
        all.sort_by_key(|((boot, number), made)| (*boot, made.tsc, *number));
        all.into_iter().map(|((boot, _), made)| (*boot, *made)).collect()
    }

    /// For each stack what was allocated, and what of it was not freed.
    pub fn by_stack(&self) -> BTreeMap<StackId, (Estimate, Estimate)> {
        let mut rows: BTreeMap<_, _> =
            self.all.iter().map(|(stack, all)| (*stack, (*all, Estimate::default()))).collect();
        for (_, made) in self.without_free(true) {
            rows.entry(made.stack).or_default().1.add(made.estimate);
        }
        rows
    }

    /// The number of a task, whose name is as it is in the file.
    fn task(&mut self, name: &[u8]) -> u32 {
        if let Some(number) = self.task_numbers.get(name) {
            return *number;
        }
        let number = self.tasks.len() as u32;
        self.tasks.push(String::from_utf8_lossy(&unescape(name)).into_owned());
        self.task_numbers.insert(name.to_vec(), number);
        number
    }

    fn allocated(&mut self, number: Number, recorded: &Recorded<'_>) {
        let event = &recorded.event;
        if let PointState::ByWeight(mean) = event.state {
            self.mean_bytes = Some(mean);
        }
        let was_freed = self.freed.remove(&number);
        if !self.select.admits_event(recorded) {
            return;
        }
        let allocations = factor(event.weight, event.state);
        let estimate = Estimate { allocations, bytes: allocations * event.weight as f64 };
        self.all.entry(recorded.stack).or_default().add(estimate);
        if was_freed {
            return;
        }
        let task = self.task(recorded.task);
        let made = Made { tsc: event.tsc, cpu: event.cpu, task, stack: recorded.stack, weight: event.weight, estimate };
        self.live.insert(number, made);
    }
}

/// The group of an age in ticks.
fn age(ticks: u64, tsc_hz: Option<f64>) -> &'static str {
    let Some(tsc_hz) = tsc_hz else { return "[age not known: no clock]" };
    let ms = ticks as f64 / tsc_hz * 1000.0;
    AGES.iter().find(|(end, _)| ms < *end).map_or("", |(_, name)| name)
}

impl Consumer for HeapTally {
    fn takes_events(&self) -> bool {
        true
    }

    fn event(&mut self, recorded: &Recorded<'_>) {
        let event = &recorded.event;
        let end = self.ends.entry(recorded.boot).or_default();
        *end = (*end).max(event.tsc);
        let (name, Some(number)) = (event.point.to_string(), event.arguments.as_slice().first()) else { return };
        if name == ALLOC || name == FREE {
            let newest = self.times.entry(recorded.boot).or_default();
            *newest = (*newest).max(time_of(*number));
        }
        let number = (recorded.boot, *number);
        if name == ALLOC {
            self.allocated(number, recorded);
        } else if name == FREE && self.live.remove(&number).is_none() {
            self.freed.insert(number);
        }
    }

    fn sample(&mut self, _: &Sample<'_>) {}
    fn commit(&mut self) {}
    fn discard(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::Traits;
    use kprof_format::event::EventLine;

    fn tally(by: By, lines: &[(StackId, &str)]) -> HeapTally {
        let mut tally = HeapTally::new(Select::default(), by);
        for (stack, text) in lines {
            let (event, _) = EventLine::parse(text).unwrap();
            tally.event(&Recorded { boot: 0, event, task: b"dd", stack: *stack, traits: Traits::default() });
        }
        tally
    }

    fn counts(tally: &HeapTally, of_allocations: bool) -> Vec<(StackId, u64, String)> {
        let (counts, groups) = tally.counts(of_allocations, Some(1e9));
        counts.iter().map(|count| (count.stack, count.samples, groups[count.group as usize].clone())).collect()
    }

    #[test]
    fn what_was_freed_is_not_live_whichever_comes_first_in_the_file() {
        let tally = tally(
            By::None,
            &[
                (9, "!heap.free dd 2 7 100 2,1000 a"),
                (1, "!heap.alloc dd 1 5 100 1,1000 a"),
                (1, "!heap.alloc dd 1 6 100 2,2000 a"),
                (2, "!heap.alloc dd 1 7 40 3,3000 a"),
                (9, "!heap.free dd 1 8 40 3,3000 a"),
                (2, "!heap.alloc dd 1 9 60 4,3000 a"),
                (7, "!other dd 1 9 60 1 a"),
            ],
        );
        assert_eq!(counts(&tally, false), [(1, 100, String::new()), (2, 60, String::new())]);
        assert_eq!(tally.live(), 2);
        let made = |tsc, stack, weight| {
            let estimate = Estimate { allocations: 1.0, bytes: weight as f64 };
            (0, Made { tsc, cpu: 1, task: 0, stack, weight, estimate })
        };
        assert_eq!((tally.made(), &tally.tasks[..]), (vec![made(5, 1, 100), made(9, 2, 60)], &["dd".to_owned()][..]));
        let rows = tally.by_stack();
        assert_eq!((rows[&1].0.bytes, rows[&1].1.bytes), (200.0, 100.0));
        assert_eq!((rows[&2].0.allocations, rows[&2].1.allocations), (2.0, 1.0));
    }

    #[test]
    fn what_was_made_before_frees_were_not_watched_is_unknown_and_not_live() {
        let tally = tally(
            By::None,
            &[
                (1, "!heap.alloc dd 1 5 100 1,1000 a"),
                (1, "!heap.alloc dd 1 6 40 1000000000001,1000 a"),
                // Of another CPU, later in the file.
                (1, "!heap.alloc dd 2 4 7 2,2000 a"),
                (1, "!heap.alloc dd 2 4 8 3,3000 a"),
                (9, "!heap.free dd 2 5 8 3,3000 a"),
            ],
        );
        assert_eq!((tally.live(), tally.unknown(), counts(&tally, false)), (1, 2, vec![(1, 40, String::new())]));
        assert_eq!((tally.live_estimate().bytes, tally.made().len()), (40.0, 1));
        assert_eq!(tally.by_stack()[&1].1.bytes, 40.0);
    }

    #[test]
    fn an_allocation_drawn_by_weight_stands_for_more() {
        let tally =
            tally(By::None, &[(1, "!heap.alloc dd 1 5 1~1000 1,10 a"), (2, "!heap.alloc dd 1 5 99999~1000 2,20 a")]);
        assert_eq!(tally.mean_bytes, Some(1000));
        let (bytes, allocations) = (counts(&tally, false), counts(&tally, true));
        assert!(bytes[0].1.abs_diff(1000) <= 1 && bytes[1].1 == 99_999, "{bytes:?}");
        assert!(allocations[0].1.abs_diff(1000) <= 1 && allocations[1].1 == 1, "{allocations:?}");
    }

    #[test]
    fn ages_are_those_at_the_last_event() {
        let tally = tally(
            By::Age,
            &[
                (1, "!heap.alloc dd 1 0 8 1,10 a"),
                (1, "!heap.alloc dd 1 3b9ac9ff 8 2,20 a"),
                (1, "!heap.alloc dd 1 3b9aca00 8 3,30 a"),
            ],
        );
        let names: Vec<String> =
            counts(&tally, false).into_iter().map(|(_, bytes, age)| format!("{bytes} {age}")).collect();
        assert_eq!(names, ["8 [1 to 10 s]", "16 [younger than 1 ms]"]);
    }
}
