//! Parses the text that a read of `ctl-profiling` gives.
//!
//! In: `key value` lines. Out: state, header facts, counters by CPU. Runs in: user process. Unknown keys are kept and
//! never refused, because a newer kernel may have more of them. A missing key stays missing: no value is invented for
//! it.

use crate::stream::Stream;
use kprof_format::account;
use kprof_format::counter::{Counter, MetaCounter};
use kprof_format::fact::Fact;
use std::collections::BTreeMap;

/// One reading of the ctl file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ctl {
    facts: Vec<(String, String)>,
    cpus: BTreeMap<u32, Counters>,
    meta: Counters,
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

    /// Sets the counter at index `at` and increments `at`. The name there is usually the same as at the last reading.
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
    ///
    /// # Errors
    /// As [`Ctl::update`].
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut ctl = Self::default();
        ctl.update(text)?;
        Ok(ctl)
    }

    /// Parses a newer text into the memory of the older one. The keys are nearly always the same, so nothing is
    /// allocated.
    ///
    /// # Errors
    /// The number of the first line (from 1) that is not `key value`, or whose counter is not a decimal number. The
    /// lines before it have been applied; the other values are still the old ones.
    pub fn update(&mut self, text: &str) -> Result<(), String> {
        let mut facts = Slots::new(&mut self.facts);
        let mut rest = text;
        let mut number = 0;
        // The lines of one CPU are adjacent. `prefix` is its `N.`, and `known` is the index after its last counter.
        let (mut prefix, mut cpu, mut known) = ("", 0, 0);
        let mut meta_known = 0;
        let mut seen = 0_u32;
        while !rest.is_empty() {
            number += 1;
            let end = rest.bytes().position(|byte| byte == b'\n').unwrap_or(rest.len());
            let line = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or("");
            let wrong = || format!("line {number}: `{line}` is not `key value` with a decimal counter");
            let space = line.bytes().position(|byte| byte == b' ').unwrap_or(line.len());
            let (key, value) = (&line[..space], line[space..].trim_start());
            if key.is_empty() {
                return Err(wrong());
            }
            if let Some(name) = key.strip_prefix("meta.") {
                self.meta.set(&mut meta_known, name, decimal(value).ok_or_else(wrong)?);
            } else if let Some(counter) = key.strip_prefix("cpu.") {
                if prefix.is_empty() || !counter.starts_with(prefix) {
                    self.cpus.entry(cpu).and_modify(|counters| counters.0.truncate(known));
                    let dot = counter.bytes().position(|byte| byte == b'.').ok_or_else(wrong)?;
                    cpu = counter[..dot].parse().map_err(|_| wrong())?;
                    (prefix, known) = (&counter[..=dot], 0);
                    seen += 1;
                }
                let value = decimal(value).ok_or_else(wrong)?;
                let name = &counter[prefix.len()..];
                let before = self.before.get(&cpu).and_then(|counters| counters.at(known, name)).unwrap_or(0);
                self.cpus.entry(cpu).or_default().set(&mut known, name, value.saturating_sub(before));
            } else {
                facts.put(key, value);
            }
        }
        facts.end();
        self.cpus.entry(cpu).and_modify(|counters| counters.0.truncate(known));
        self.meta.0.truncate(meta_known);
        if self.cpus.len() as u32 != seen {
            // A CPU is not in the text any more. This is rare, so searching the whole text for each CPU is fast enough.
            let named = |cpu: &u32| text.contains(&format!("cpu.{cpu}."));
            self.cpus.retain(|cpu, _| named(cpu));
        }
        Ok(())
    }

    /// The state as a kernel would have given it, for sources that have no ctl file.
    pub fn made_up(facts: &[(Fact, &str)], cpus: impl IntoIterator<Item = u32>) -> Self {
        Self {
            facts: facts.iter().map(|(fact, value)| (fact.name().into(), (*value).into())).collect(),
            cpus: cpus.into_iter().map(|cpu| (cpu, Counters::default())).collect(),
            meta: Counters::default(),
            before: BTreeMap::new(),
        }
    }

    /// From here on the counters of the CPUs count since now instead of since boot. Ticks that are pending now are
    /// taken later, so they count as sent since now. Samples that are in a ring now are delivered later, but were
    /// recorded before, so they do not count as delivered.
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

    /// The id of this boot; empty if the source has none.
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

    /// A counter of the meta stream, if the kernel keeps it.
    pub fn meta(&self, counter: MetaCounter) -> Option<u64> {
        self.meta.named(counter.name())
    }

    /// The position after the newest record of a stream, if the kernel keeps it.
    pub fn position_in(&self, stream: Stream) -> Option<u64> {
        match stream {
            Stream::Meta => self.meta(MetaCounter::PositionIn),
            Stream::Cpu(cpu) => self.cpu(cpu)?.find(Counter::PositionIn),
        }
    }

    /// The position of the oldest record of a stream, if the kernel keeps it.
    pub fn position_out(&self, stream: Stream) -> Option<u64> {
        match stream {
            Stream::Meta => self.meta(MetaCounter::PositionOut),
            Stream::Cpu(cpu) => self.cpu(cpu)?.find(Counter::PositionOut),
        }
    }

    /// How full the fullest ring is, from 0 to 1.
    pub fn fill(&self) -> f64 {
        let fill = |ring: &Counters| {
            let words = ring.get(Counter::PositionIn).saturating_sub(ring.get(Counter::PositionOut));
            words as f64 / ring.get(Counter::RingWords).max(1) as f64
        };
        self.cpus.values().map(fill).fold(0.0, f64::max).min(1.0)
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
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    digits.bytes().try_fold(0_u64, |value, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| value.checked_mul(10)?.checked_add(u64::from(digit))).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_counters_and_repeated_keys_are_told_apart() {
        let text = "protocol 1\nstate running\nanchor a=1\nanchor b=2\ninclude idle user\nerror\ncpu.1.sent 100\n\
                    cpu.1.lost-full 3\ncpu.1.lost-torn 4\ncpu.1.ring-words 100\ncpu.1.position-in 50\n\
                    cpu.1.position-out 25\ncpu.12.sent 7\nmeta.position-in 9\n";
        let ctl = Ctl::parse(text).unwrap();
        assert!(ctl.is_running());
        assert_eq!(ctl.fact(Fact::Include), Some("idle user"));
        assert_eq!(ctl.facts(Fact::Anchor).collect::<Vec<_>>(), ["a=1", "b=2"]);
        assert_eq!(ctl.cpus().map(|(cpu, _)| cpu).collect::<Vec<_>>(), [1, 12]);
        assert_eq!(ctl.cpu(1).unwrap().lost(), 7);
        assert_eq!(ctl.meta(MetaCounter::PositionIn), Some(9));
        assert_eq!(ctl.fill(), 0.25);
        assert_eq!(ctl.cpu(1).unwrap().find(Counter::Delivered), None);
    }

    #[test]
    fn an_updated_reading_is_the_same_as_a_fresh_one() {
        let texts = [
            "protocol 1\nstate running\nanchor a=1\ncpu.1.sent 1\ncpu.1.taken 1\ncpu.2.sent 3\nmeta.lost 0\n",
            "protocol 1\nstate stopped\nanchor a=1\nanchor b=2\ncpu.1.sent 5\ncpu.1.taken 4\ncpu.2.sent 9\nmeta.lost 1\n",
            "state stopped\ncpu.2.sent 9\n",
            "state stopped\ncpu.2.taken 9\ncpu.2.sent 9\ncpu.7.sent 9\nmeta.position-in 1\nmeta.lost 1\nerror x y\n",
            "",
        ];
        for before in texts {
            for after in texts {
                let mut ctl = Ctl::parse(before).unwrap();
                ctl.update(after).unwrap();
                assert_eq!(ctl, Ctl::parse(after).unwrap(), "{before:?} then {after:?}");
            }
        }
    }

    #[test]
    fn a_bad_counter_is_named_by_its_line() {
        let error = Ctl::parse("state running\ncpu.1.sent many\n").unwrap_err();
        assert!(error.starts_with("line 2: `cpu.1.sent many`"), "{error}");
        assert!(Ctl::parse("cpu.x.sent 1\n").is_err());
        assert!(Ctl::parse(" leading\n").is_err());
    }

    #[test]
    fn counters_can_count_from_now_and_levels_stay_what_they_are() {
        let mut ctl = Ctl::parse(
            "cpu.1.sent 100\ncpu.1.taken 97\ncpu.1.recorded 60\ncpu.1.lost-full 820\ncpu.1.pending 3\n\
             cpu.1.delivered 50\ncpu.1.in-ring 10\ncpu.1.position-in 600\ncpu.1.newer-counter 7\n",
        )
        .unwrap();
        ctl.count_from_now();
        let all = |ctl: &Ctl| ctl.cpu(1).unwrap().iter().map(|(_, value)| value).collect::<Vec<_>>();
        assert_eq!(all(&ctl), [3, 0, 0, 0, 3, 0, 10, 600, 0]);
        // The ten samples from before were delivered, and two new ones of five; the ring has a new counter before
        // others.
        ctl.update(
            "cpu.1.sent 107\ncpu.1.taken 107\ncpu.1.first 1\ncpu.1.recorded 65\ncpu.1.lost-full 825\ncpu.1.pending 0\n\
             cpu.1.delivered 62\ncpu.1.in-ring 3\ncpu.1.position-in 640\ncpu.1.newer-counter 9\ncpu.2.sent 4\n",
        )
        .unwrap();
        assert_eq!(all(&ctl), [10, 10, 1, 5, 5, 0, 2, 3, 640, 2]);
        assert_eq!(ctl.cpu(2).unwrap().get(Counter::Sent), 4, "a CPU that came later counts from its start");
    }
}
