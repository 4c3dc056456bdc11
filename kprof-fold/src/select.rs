//! Select: decides which samples count. Stage: fold, before anything is added up.
//!
//! In: one sample, or the traits of one stack. Out: yes or no. Conditions on the sample itself (CPU, task, time) are
//! checked for each sample while the file is read. Conditions on the stack are checked once per distinct stack.

pub mod pattern;

pub use pattern::Pattern;

use crate::read::consumer::{Recorded, Sample};
use crate::read::escape::unescape;
use crate::stacks::Traits;
use crate::state::State;
use std::ops::RangeInclusive;

/// CPUs that follow each other; only one for a single CPU.
pub type Cpus = RangeInclusive<u32>;

/// Whether this CPU is in the list; all are in an empty list.
pub fn admits(cpus: &[Cpus], cpu: u32) -> bool {
    cpus.is_empty() || cpus.iter().any(|range| range.contains(&cpu))
}

/// Whether the CPU of a point's account is in the list. An account whose CPU is not known is of none.
pub fn admits_known(cpus: &[Cpus], cpu: Option<u64>) -> bool {
    cpu.and_then(|cpu| u32::try_from(cpu).ok()).is_some_and(|cpu| admits(cpus, cpu))
}

/// The list as `--cpu` takes it: `0-3,7`.
pub fn in_words(cpus: &[Cpus]) -> String {
    let mut joined: Vec<Cpus> = Vec::new();
    for range in cpus {
        match joined.last_mut() {
            Some(last) if last.end().checked_add(1) == Some(*range.start()) => *last = *last.start()..=*range.end(),
            _ => joined.push(range.clone()),
        }
    }
    let word = |range: &Cpus| match (range.start(), range.end()) {
        (from, to) if from == to => from.to_string(),
        (from, to) => format!("{from}-{to}"),
    };
    joined.iter().map(word).collect::<Vec<_>>().join(",")
}

/// The conditions.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// Only these CPUs count. If empty, all do.
    pub cpus: Vec<Cpus>,
    /// Only tasks whose name matches one of these count. If empty, all do.
    pub tasks: Vec<Pattern>,
    /// Only samples from the first TSC up to, but not including, the second count. If `None`, all do.
    pub between: Option<(u64, u64)>,
    /// Whether user samples and the user part of stacks count too.
    pub user: bool,
    /// Only samples with interrupts off (`Some(true)`) or on (`Some(false)`) count, and none within an interrupt or
    /// exception: as in the tables of where the time went ([`State`]).
    pub irq_off: Option<bool>,
    /// Whether idle samples do not count.
    pub hide_idle: bool,
    /// Only stacks with one of these functions count. Callers of the outermost of them are removed. If empty, all
    /// count.
    pub under: Vec<Pattern>,
    /// Stacks with one of these functions do not count.
    pub not: Vec<Pattern>,
    /// Only stacks with one of these functions count, and what the innermost of them has called is removed. If empty,
    /// all count.
    pub callers: Vec<Pattern>,
}

impl Select {
    /// Whether there is no condition on the sample itself.
    pub fn takes_every_sample(&self) -> bool {
        self.cpus.is_empty() && self.tasks.is_empty() && self.between.is_none()
    }

    /// Whether the CPU, task and time of the sample are selected.
    pub fn admits_sample(&self, sample: &Sample<'_>) -> bool {
        self.admits_cpu(sample.cpu)
            && self.between.is_none_or(|(from, to)| from <= sample.tsc && sample.tsc < to)
            && (self.tasks.is_empty() || self.admits_task(sample.task))
    }

    /// Whether the CPU, task and time of the event are selected.
    pub fn admits_event(&self, recorded: &Recorded<'_>) -> bool {
        let tsc = recorded.event.tsc;
        self.admits_cpu(recorded.event.cpu)
            && self.between.is_none_or(|(from, to)| from <= tsc && tsc < to)
            && (self.tasks.is_empty() || self.admits_task(recorded.task))
    }

    /// Whether this CPU is selected.
    pub fn admits_cpu(&self, cpu: u32) -> bool {
        admits(&self.cpus, cpu)
    }

    fn admits_task(&self, task: &[u8]) -> bool {
        let name = unescape(task);
        let name = String::from_utf8_lossy(&name);
        self.tasks.iter().any(|pattern| pattern.fits(&name))
    }

    /// Whether a stack with these traits is selected.
    pub fn admits_traits(&self, traits: Traits) -> bool {
        (self.user || traits.is_kernel())
            && self.irq_off.is_none_or(|off| has_interrupts_off(traits) == Some(off))
            && !(self.hide_idle && traits.is_idle())
    }

    /// How many of `count` events lie in the selected time, if the events are spread evenly from one TSC to another.
    pub fn share(&self, count: u64, from: Option<u64>, to: Option<u64>) -> u64 {
        let Some((first, end)) = self.between else { return count };
        let Some(to) = to.or(from) else { return 0 };
        let from = from.unwrap_or(to).min(to);
        let inside = to.saturating_add(1).min(end).saturating_sub(from.max(first));
        let whole = u128::from(to - from) + 1;
        ((u128::from(count) * u128::from(inside) + whole / 2) / whole) as u64
    }
}

/// Whether interrupts were off, in the meaning of the tables of where the time went: code within an interrupt or
/// exception is neither.
fn has_interrupts_off(traits: Traits) -> Option<bool> {
    match State::of(traits) {
        State::Interrupt => None,
        State::InterruptsOff => Some(true),
        State::Kernel | State::User => Some(false),
        // The idle task is a state of its own, whether it halts with interrupts on or off.
        State::Idle => (!traits.interrupts_off() && !traits.in_interrupt()).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_off_in_the_same_samples_as_in_the_tables_of_time() {
        use kprof_format::marker::{Facts, Marker};
        let facts = |bits: u8| Marker::Facts(Facts(bits)).encode();
        let kernel = 0xffff_ffff_8000_1000;
        let off = Traits::of(&[kernel, facts(Facts::INTERRUPTS_OFF)]);
        let on = Traits::of(&[kernel]);
        let handler = Traits::of(&[kernel, facts(Facts::INTERRUPTS_OFF), Marker::Interrupt(33).encode(), kernel]);
        let idle = Traits::of(&[kernel, facts(Facts::INTERRUPTS_OFF | Facts::IDLE)]);
        let admitted = |irq_off| {
            let select = Select { irq_off: Some(irq_off), ..Select::default() };
            [off, on, handler, idle].map(|traits| select.admits_traits(traits))
        };
        assert_eq!(State::of(handler), State::Interrupt);
        assert_eq!(admitted(true), [true, false, false, false]);
        assert_eq!(admitted(false), [false, true, false, false]);
    }

    #[test]
    fn lists_of_cpus_have_ranges() {
        let cpus = [1..=1, 2..=3, 7..=7];
        assert_eq!((0..9).filter(|cpu| admits(&cpus, *cpu)).collect::<Vec<_>>(), [1, 2, 3, 7]);
        assert_eq!(in_words(&cpus), "1-3,7");
        assert!(admits(&[], 5));
        assert_eq!(
            [Some(2), Some(4), Some(u64::MAX), None].map(|cpu| admits_known(&cpus, cpu)),
            [true, false, false, false]
        );
    }

    #[test]
    fn losses_follow_the_time_asked_for() {
        let select = |from, to| Select { between: Some((from, to)), ..Select::default() };
        assert_eq!(Select::default().share(10, Some(5), None), 10);
        assert_eq!(select(0, 100).share(10, Some(0), Some(99)), 10);
        assert_eq!(select(0, 50).share(10, Some(0), Some(99)), 5);
        assert_eq!(select(200, 300).share(10, Some(0), Some(99)), 0);
        assert_eq!(select(0, 100).share(10, None, None), 0);
        assert_eq!(select(0, u64::MAX).share(u64::MAX, Some(0), Some(u64::MAX - 1)), u64::MAX);
    }
}
