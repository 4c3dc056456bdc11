//! The probes of the simulated kernel.
//!
//! In: the commands `probe` and `unprobe`, calls. Out: what the kernel tells of them in ctl and in the meta stream.
//! Each function that has a probe is called once for each read of ctl, and each call takes 100 ns. What a probe asks of
//! the calls is not simulated.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Probes {
    /// The exits of each function that has a probe, by address.
    pub planted: BTreeMap<u64, Vec<u64>>,
    /// Calls that were not told yet.
    calls: BTreeMap<u64, u64>,
    /// All calls.
    pub all_calls: BTreeMap<u64, u64>,
    /// A function that can have no probe.
    pub refused: Option<u64>,
    /// Those that were put with the lease, on functions that had none.
    of_lease: BTreeSet<u64>,
}

impl Probes {
    /// A command, as words.
    pub fn control(&mut self, words: &[&str], has_lease: bool) -> Result<(), String> {
        let asked = words.iter().position(|word| ["args", "if"].contains(word)).unwrap_or(words.len());
        let (words, _) = words.split_at(asked);
        let numbers: Vec<u64> = words[1..].iter().filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
        match words {
            ["unprobe", "all"] => self.planted.clear(),
            ["unprobe", "lease"] if has_lease => self.end_lease(),
            ["unprobe", _] if numbers.len() == 1 => _ = self.planted.remove(&numbers[0]),
            ["probe", ..] if numbers.len() + 1 == words.len() && !numbers.is_empty() => {
                if self.refused == Some(numbers[0]) {
                    return Err("line 1: an exit is neither `ret` nor a direct `jmp`".into());
                }
                let is_new = self.planted.insert(numbers[0], numbers[1..].to_vec()).is_none();
                self.calls.entry(numbers[0]).or_default();
                if has_lease && is_new {
                    self.of_lease.insert(numbers[0]);
                } else if !has_lease {
                    self.of_lease.remove(&numbers[0]);
                }
            }
            _ => return Err(format!("`{}` is no command", words.join(" "))),
        }
        Ok(())
    }

    /// Every function that has a probe is called.
    pub fn call(&mut self) {
        for address in self.planted.keys() {
            for calls in [&mut self.calls, &mut self.all_calls] {
                *calls.entry(*address).or_default() += 1;
            }
        }
    }

    /// The lines of ctl: a point stays when its probe is removed, and is off then.
    pub fn text(&self) -> String {
        let state = |address| if self.planted.contains_key(address) { "count" } else { "off" };
        self.calls.keys().map(|address| format!("point.probe.{address:016x} ns {}\n", state(address))).collect()
    }

    /// The records of the calls that were not told yet: number, weight, text.
    pub fn told(&mut self) -> Vec<(u64, u64, String)> {
        let called = (100..).zip(&mut self.calls).filter(|(_, (_, calls))| **calls > 0);
        called
            .map(|(number, (address, calls))| {
                let calls = std::mem::take(calls);
                let text = format!("ns probe.{address:016x} log2-6={calls} filtered={calls}");
                (number, 100 * calls, text)
            })
            .collect()
    }

    /// The holder of the lease has closed its control file, or removes its probes.
    pub fn end_lease(&mut self) {
        let of_lease = std::mem::take(&mut self.of_lease);
        self.planted.retain(|address, _| !of_lease.contains(address));
    }

    /// The addresses of the functions that have a probe.
    pub fn addresses(&self) -> BTreeSet<u64> {
        self.planted.keys().copied().collect()
    }
}
