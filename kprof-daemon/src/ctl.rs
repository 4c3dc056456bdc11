//! The text that a read of `ctl-profiling` gives, taken apart.
//!
//! In: `key value` lines. Out: state, header facts, counters by CPU. Context: user process. Unknown keys are kept and
//! never refused (a newer kernel may say more); a missing key is missing, nothing is made up.

use std::collections::BTreeMap;

/// The header keys that the sample file repeats, in the order of the file. `anchor` may stand in the text many times.
pub const HEADER_KEYS: [&str; 16] = [
    "tsc-hz", "boot", "cpus", "sampler", "way", "clock", "hz", "gaps", "seed", "keep", "backoff", "depth", "mode",
    "build-id", "load", "text",
];

/// The counters that stand in every batch line of a CPU.
pub const BATCH_COUNTERS: [&str; 10] = [
    "taken",
    "merged",
    "user",
    "idle",
    "lost-full",
    "lost-large",
    "lost-nested",
    "lost-torn",
    "recorded",
    "overwritten",
];

/// One reading of the ctl file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ctl {
    facts: Vec<(String, String)>,
    cpus: BTreeMap<u32, Counters>,
    meta: Counters,
}

/// Counters by name, in the order of the kernel's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(Vec<(String, u64)>);

impl Counters {
    /// The counter of this name; 0 where the kernel does not keep it.
    pub fn get(&self, name: &str) -> u64 {
        self.find(name).unwrap_or(0)
    }

    /// The counter of this name, if the kernel keeps it.
    pub fn find(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Whether the source keeps none at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in the kernel's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// All samples lost, by whatever reason.
    pub fn lost(&self) -> u64 {
        self.iter().filter(|(name, _)| name.starts_with("lost")).map(|(_, value)| value).sum()
    }
}

impl Ctl {
    /// Takes the text apart.
    ///
    /// # Errors
    /// The number of the first line (from 1) that is not `key value`, or whose counter is not a decimal number.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut ctl = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            let value = value.trim();
            let wrong = || format!("line {number}: `{line}` is not `key value` with a decimal counter");
            if let Some(counter) = key.strip_prefix("cpu.") {
                let (cpu, name) = counter.split_once('.').ok_or_else(wrong)?;
                let cpu = cpu.parse().map_err(|_| wrong())?;
                ctl.cpus.entry(cpu).or_default().0.push((name.into(), value.parse().map_err(|_| wrong())?));
            } else if let Some(name) = key.strip_prefix("meta.") {
                ctl.meta.0.push((name.into(), value.parse().map_err(|_| wrong())?));
            } else if key.is_empty() {
                return Err(wrong());
            } else {
                ctl.facts.push((key.into(), value.into()));
            }
        }
        Ok(ctl)
    }

    /// A text as the kernel would have made it, for sources that have no ctl file.
    pub fn made_up(facts: &[(&str, &str)], cpus: impl IntoIterator<Item = u32>) -> Self {
        Self {
            facts: facts.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            cpus: cpus.into_iter().map(|cpu| (cpu, Counters::default())).collect(),
            meta: Counters::default(),
        }
    }

    /// The value of a key; the first one of a key that repeats.
    pub fn fact(&self, key: &str) -> Option<&str> {
        self.facts.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// All values of a key that may repeat.
    pub fn facts<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.facts.iter().filter(move |(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// The id of this boot; empty where the source has none.
    pub fn boot(&self) -> &str {
        self.fact("boot").unwrap_or("")
    }

    /// Whether sampling goes on now.
    pub fn is_running(&self) -> bool {
        self.fact("state") == Some("running")
    }

    /// Whether full rings overwrite their oldest records (flight recorder).
    pub fn overwrites(&self) -> bool {
        self.fact("mode") == Some("overwrite")
    }

    /// The counters of every CPU that has a ring.
    pub fn cpus(&self) -> impl Iterator<Item = (u32, &Counters)> {
        self.cpus.iter().map(|(cpu, counters)| (*cpu, counters))
    }

    /// The counters of one CPU.
    pub fn cpu(&self, cpu: u32) -> Option<&Counters> {
        self.cpus.get(&cpu)
    }

    /// The counters of the meta stream.
    pub fn meta(&self) -> &Counters {
        &self.meta
    }

    /// How full the fullest ring is, from 0 to 1.
    pub fn fill(&self) -> f64 {
        let fill = |ring: &Counters| {
            let words = ring.get("position-in").saturating_sub(ring.get("position-out"));
            words as f64 / ring.get("ring-words").max(1) as f64
        };
        self.cpus.values().map(fill).fold(0.0, f64::max).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_counters_and_repeated_keys_are_told_apart() {
        let text = "protocol 1\nstate running\nanchor a=1\nanchor b=2\nkeep idle user\nerror\ncpu.1.sent 100\n\
                    cpu.1.lost-full 3\ncpu.1.lost-torn 4\ncpu.1.ring-words 100\ncpu.1.position-in 50\n\
                    cpu.1.position-out 25\ncpu.12.sent 7\nmeta.position-in 9\n";
        let ctl = Ctl::parse(text).unwrap();
        assert!(ctl.is_running());
        assert_eq!(ctl.fact("keep"), Some("idle user"));
        assert_eq!(ctl.facts("anchor").collect::<Vec<_>>(), ["a=1", "b=2"]);
        assert_eq!(ctl.cpus().map(|(cpu, _)| cpu).collect::<Vec<_>>(), [1, 12]);
        assert_eq!(ctl.cpu(1).unwrap().lost(), 7);
        assert_eq!(ctl.meta().get("position-in"), 9);
        assert_eq!(ctl.fill(), 0.25);
        assert_eq!(ctl.cpu(1).unwrap().find("nonsense"), None);
    }

    #[test]
    fn a_bad_counter_is_named_by_its_line() {
        let error = Ctl::parse("state running\ncpu.1.sent many\n").unwrap_err();
        assert!(error.starts_with("line 2: `cpu.1.sent many`"), "{error}");
        assert!(Ctl::parse("cpu.x.sent 1\n").is_err());
        assert!(Ctl::parse(" leading\n").is_err());
    }
}
