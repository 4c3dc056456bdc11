//! Parses the text that a read of `ctl-profiling` gives.
//!
//! In: `key value` lines. Out: state, header facts, counters by CPU. Runs in: user process. Unknown keys are kept and
//! never refused, because a newer kernel may have more of them. A line that is not understood is ignored. A missing key
//! stays missing: no value is invented for it.

use crate::stream::Stream;
use kprof_format::account;
use kprof_format::counter::{Counter, EventCounter, MetaCounter};
use kprof_format::fact::Fact;
use kprof_format::point::CTL_PREFIX;
use std::collections::BTreeMap;

/// What one read of the ctl file has returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ctl {
    facts: Vec<(String, String)>,
    cpus: BTreeMap<u32, Counters>,
    meta: Counters,
    /// The counters of the event streams.
    events: BTreeMap<u32, Counters>,
    /// What each CPU had counted before the session; empty if it counts since boot.
    before: BTreeMap<u32, Counters>,
}

/// Counters by name, in the order of the kernel's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(Vec<(String, u64)>);

impl Counters {
    /// A counter; 0 if the kernel does not keep it.
    pub fn get(&self, counter: Counter) -> u64 {
        self.find(counter).unwrap_or(0)
    }

    /// A counter, if the kernel keeps it.
    pub fn find(&self, counter: Counter) -> Option<u64> {
        self.named(counter.name())
    }

    /// The counter of this name, which may be one that this version does not know.
    pub fn named(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Whether the source keeps no counters at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The counter of this name, which is usually at this index.
    fn at(&self, index: usize, name: &str) -> Option<u64> {
        match self.0.get(index) {
            Some((known, value)) if known == name => Some(*value),
            _ => self.named(name),
        }
    }

    /// Sets the counter at index `at` and increments `at`. The counter at this index usually has the same name as in
    /// the previous text.
    fn set(&mut self, at: &mut usize, name: &str, value: u64) {
        match self.0.get_mut(*at) {
            Some((old_name, old_value)) if old_name == name => *old_value = value,
            _ => {
                self.0.truncate(*at);
                self.0.push((name.into(), value));
            }
        }
        *at += 1;
    }

    /// Sets the counter of this name, wherever it is.
    fn put(&mut self, name: &str, value: u64) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name.into(), value)),
        }
    }

    /// All counters, in the kernel's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The number of lost samples: the sum over all reasons.
    pub fn lost(&self) -> u64 {
        account::lost(self.iter())
    }
}

impl Ctl {
    /// Parses a text.
    pub fn parse(text: &str) -> Self {
        let mut ctl = Self::default();
        ctl.update(text);
        ctl
    }

    /// Parses a newer text of ctl into the memory of the older one. The keys are nearly always the same, so nothing is
    /// allocated. A counter whose value is not a decimal number is ignored.
    pub fn update(&mut self, text: &str) {
        let mut facts = Slots::new(&mut self.facts);
        let mut rest = text;
        // The lines of one CPU are adjacent. `prefix` is its `N.`, and `known` is the index after its last counter.
        let (mut prefix, mut known) = ("", 0);
        let mut cpu: Option<(&mut Counters, Option<&Counters>)> = None;
        let mut meta_known = 0;
        let mut seen = 0_u32;
        while !rest.is_empty() {
            let key_end = rest.bytes().position(|byte| matches!(byte, b' ' | b'\n')).unwrap_or(rest.len());
            let (key, behind) = rest.split_at(key_end);
            let end = behind.bytes().position(|byte| byte == b'\n').unwrap_or(behind.len());
            let value = behind[..end].trim_start();
            rest = behind.get(end + 1..).unwrap_or("");
            if key.is_empty() {
                continue;
            }
            if let Some(name) = key.strip_prefix("meta.") {
                if let Some(value) = decimal(value) {
                    self.meta.set(&mut meta_known, name, value);
                }
            } else if let Some((cpu, name)) = key.strip_prefix("event.").and_then(|counter| counter.split_once('.')) {
                if let (Some(value), Ok(cpu)) = (decimal(value), cpu.parse()) {
                    self.events.entry(cpu).or_default().put(name, value);
                }
            } else if let Some(counter) = key.strip_prefix("cpu.") {
                let Some(value) = decimal(value) else { continue };
                if prefix.is_empty() || !counter.starts_with(prefix) {
                    let Some(dot) = counter.find('.') else { continue };
                    let Ok(number) = counter[..dot].parse() else { continue };
                    if let Some((counters, _)) = cpu.take() {
                        counters.0.truncate(known);
                    }
                    cpu = Some((self.cpus.entry(number).or_default(), self.before.get(&number)));
                    (prefix, known) = (&counter[..=dot], 0);
                    seen += 1;
                }
                let Some((counters, before)) = &mut cpu else { continue };
                let name = &counter[prefix.len()..];
                let before = before.and_then(|counters| counters.at(known, name)).unwrap_or(0);
                counters.set(&mut known, name, value.saturating_sub(before));
            } else {
                facts.put(key, value);
            }
        }
        facts.end();
        if let Some((counters, _)) = cpu {
            counters.0.truncate(known);
        }
        self.meta.0.truncate(meta_known);
        if self.cpus.len() as u32 != seen {
            // A CPU is not in the text any more. This is rare, so searching the whole text for each CPU is fast enough.
            let named = |cpu: &u32| text.contains(&format!("cpu.{cpu}."));
            self.cpus.retain(|cpu, _| named(cpu));
        }
    }

    /// The state as a kernel would have given it, for sources that have no ctl file.
    pub fn made_up(facts: &[(Fact, &str)], cpus: impl IntoIterator<Item = u32>) -> Self {
        Self {
            facts: facts.iter().map(|(fact, value)| (fact.name().into(), (*value).into())).collect(),
            cpus: cpus.into_iter().map(|cpu| (cpu, Counters::default())).collect(),
            meta: Counters::default(),
            events: BTreeMap::new(),
            before: BTreeMap::new(),
        }
    }

    /// After this call the counters of the CPUs count since the call instead of since boot. Ticks that are pending now
    /// are taken later, so they count as sent after the call. Samples that are in a ring now are delivered later, but
    /// were recorded before, so they do not count as delivered.
    pub fn count_from_now(&mut self) {
        for (cpu, counters) in &mut self.cpus {
            let (pending, in_ring) = (counters.get(Counter::Pending), counters.get(Counter::InRing));
            let mut before = counters.clone();
            for (name, value) in &mut before.0 {
                *value = match Counter::of(name) {
                    Some(Counter::Sent) => value.saturating_sub(pending),
                    Some(Counter::Delivered) => *value + in_ring,
                    Some(counter) if counter.is_level() => 0,
                    _ => *value,
                };
            }
            counters.0.iter_mut().zip(&before.0).for_each(|((_, value), (_, old))| *value = value.saturating_sub(*old));
            self.before.insert(*cpu, before);
        }
    }

    /// The value of a fact; the first value if the fact repeats.
    pub fn fact(&self, fact: Fact) -> Option<&str> {
        self.facts(fact).next()
    }

    /// All values of a fact that may repeat.
    pub fn facts(&self, fact: Fact) -> impl Iterator<Item = &str> {
        self.facts.iter().filter(move |(known, _)| known == fact.name()).map(|(_, value)| value.as_str())
    }

    /// The points that were hit since boot: name, unit, state.
    pub fn points(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.facts.iter().filter_map(|(key, value)| {
            let (unit, state) = value.split_once(' ')?;
            Some((key.strip_prefix(CTL_PREFIX)?, unit, state))
        })
    }

    /// The id of this boot; empty if the source gives none.
    pub fn boot(&self) -> &str {
        self.fact(Fact::Boot).unwrap_or("")
    }

    /// Whether the kernel is sampling now.
    pub fn is_running(&self) -> bool {
        self.fact(Fact::State) == Some("running")
    }

    /// Whether full rings overwrite their oldest records (flight recorder).
    pub fn overwrites(&self) -> bool {
        self.fact(Fact::Mode) == Some("overwrite")
    }

    /// The counters of every CPU that has a ring.
    pub fn cpus(&self) -> impl Iterator<Item = (u32, &Counters)> {
        self.cpus.iter().map(|(cpu, counters)| (*cpu, counters))
    }

    /// The counters of one CPU.
    pub fn cpu(&self, cpu: u32) -> Option<&Counters> {
        self.cpus.get(&cpu)
    }

    /// The CPUs that have an event stream.
    pub fn event_cpus(&self) -> impl Iterator<Item = u32> {
        self.events.keys().copied()
    }

    /// A counter of a CPU's event stream, if the kernel keeps it.
    pub fn event(&self, cpu: u32, counter: EventCounter) -> Option<u64> {
        self.events.get(&cpu)?.named(counter.name())
    }

    /// A counter of the meta stream, if the kernel keeps it.
    pub fn meta(&self, counter: MetaCounter) -> Option<u64> {
        self.meta.named(counter.name())
    }

    /// The position after the newest record of a stream, if the kernel keeps it.
    pub fn position_in(&self, stream: Stream) -> Option<u64> {
        match stream {
            Stream::Meta => self.meta(MetaCounter::PositionIn),
            Stream::Cpu(cpu) => self.cpu(cpu)?.find(Counter::PositionIn),
            Stream::Event(cpu) => self.event(cpu, EventCounter::PositionIn),
        }
    }

    /// The position of the oldest record of a stream, if the kernel keeps it.
    pub fn position_out(&self, stream: Stream) -> Option<u64> {
        match stream {
            Stream::Meta => self.meta(MetaCounter::PositionOut),
            Stream::Cpu(cpu) => self.cpu(cpu)?.find(Counter::PositionOut),
            Stream::Event(cpu) => self.event(cpu, EventCounter::PositionOut),
        }
    }

    /// The capacity of the ring of a CPU's stream in words, if the kernel keeps it.
    pub fn ring_words(&self, stream: Stream) -> Option<u64> {
        match stream {
            Stream::Meta => None,
            Stream::Cpu(cpu) => self.cpu(cpu)?.find(Counter::RingWords),
            Stream::Event(cpu) => self.event(cpu, EventCounter::RingWords),
        }
    }

    /// How full the fullest ring is, from 0 to 1.
    pub fn fill(&self) -> f64 {
        // An event stream has counters of the same names.
        let fill = |ring: &Counters| {
            let words = ring.get(Counter::PositionIn).saturating_sub(ring.get(Counter::PositionOut));
            words as f64 / ring.get(Counter::RingWords).max(1) as f64
        };
        self.cpus.values().chain(self.events.values()).map(fill).fold(0.0, f64::max).min(1.0)
    }
}

/// Facts that are being overwritten with newer ones.
struct Slots<'a> {
    facts: &'a mut Vec<(String, String)>,
    at: usize,
}

impl<'a> Slots<'a> {
    fn new(facts: &'a mut Vec<(String, String)>) -> Self {
        Self { facts, at: 0 }
    }

    fn put(&mut self, key: &str, value: &str) {
        match self.facts.get_mut(self.at) {
            Some((old_key, old_value)) if old_key == key => {
                if old_value != value {
                    value.clone_into(old_value);
                }
            }
            _ => {
                self.facts.truncate(self.at);
                self.facts.push((key.into(), value.into()));
            }
        }
        self.at += 1;
    }

    fn end(self) {
        self.facts.truncate(self.at);
    }
}

/// A decimal number of up to 64 bits.
fn decimal(digits: &str) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.bytes().try_fold(0_u64, |value, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| value.checked_mul(10)?.checked_add(u64::from(digit))).flatten()
    })
}

#[cfg(test)]
mod tests;
