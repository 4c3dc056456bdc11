//! The report. In: what probes have found. Out: text, the function with the most calls first.

use super::Watched;
use super::expression::{ARGUMENTS, Expression, Key};
use crate::counted::Counted;
use crate::found::{Hit, Probed, Times};
use crate::functions::Functions;
use crate::histogram;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{Result, Write};

/// The longest bar.
const BAR: u64 = 40;
/// The key under which the plugin counts calls that have too many different ones.
const OTHER: u64 = u64::MAX;

/// What the report is of.
pub struct Report<'a> {
    /// Contexts, and what probes have found.
    pub counted: &'a Counted,
    /// Names.
    pub functions: &'a Functions,
    /// What was asked for.
    pub expressions: &'a [Expression],
    /// By number of the probe.
    pub watched: &'a [Watched],
}

impl Report<'_> {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, top: usize, out: &mut dyn Write) -> Result<()> {
        let found = &self.counted.probes;
        let probes = self.called();
        for probed in &probes {
            let Some(watched) = self.watched.get(probed.number as usize) else { continue };
            let expression = &self.expressions[watched.expression];
            writeln!(out, "{:>12} calls  {}", probed.calls, self.functions.name(watched.function))?;
            if let (Some(key), Some(keys)) = (expression.key, found.keys.get(&probed.number)) {
                let keys = sorted(keys);
                for (value, calls) in keys.iter().take(top) {
                    writeln!(out, "{calls:>20}  {} {}", key.name(), self.shown(key, *value))?;
                }
                let rest: u64 = keys.iter().skip(top).map(|(_, calls)| calls).sum();
                if rest > 0 {
                    writeln!(out, "{rest:>20}  {} others", keys.len() - top)?;
                }
            }
            if expression.has_time {
                times(probed, found.times.get(&probed.number).unwrap_or(&Times::new()), out)?;
            }
            if let Some(hit) = found.hits.get(&probed.number) {
                self.hit(hit, out)?;
            }
        }
        let without = self.watched.len() - probes.len();
        if without > 0 {
            writeln!(out, "{without:>12} functions were not called")?;
        }
        Ok(())
    }

    /// The probes that were hit, the one with the most calls first.
    pub fn called(&self) -> Vec<&Probed> {
        let mut probes: Vec<&Probed> = self.counted.probes.probes.values().filter(|probed| probed.calls > 0).collect();
        probes.sort_by_key(|probed| (Reverse(probed.calls), probed.number));
        probes
    }

    /// How a key is shown.
    pub fn shown(&self, key: Key, value: u64) -> String {
        match key {
            Key::Caller if value >> 32 == 0 => {
                let name = self.functions.name(value as u32);
                if name == "[?]" { "none: the outermost function".to_owned() } else { name.to_owned() }
            }
            _ if value == OTHER => "others".to_owned(),
            _ => format!("{value:#x}"),
        }
    }

    fn hit(&self, hit: &Hit, out: &mut dyn Write) -> Result<()> {
        write!(out, "{:>20}  at {} ns:", "one call", hit.time)?;
        for (name, value) in ARGUMENTS.iter().zip(hit.arguments) {
            write!(out, " {name}={value:#x}")?;
        }
        writeln!(out)?;
        self.stack(hit).into_iter().try_for_each(|name| writeln!(out, "{:>22}{name}", ""))
    }

    /// The stack of a call, innermost function first.
    pub fn stack(&self, hit: &Hit) -> Vec<&str> {
        let (mut names, mut at) = (Vec::new(), hit.context as usize);
        while let Some(context) = self.counted.contexts.get(at).filter(|_| at != 0) {
            names.push(self.functions.name(context.function));
            at = context.parent as usize;
        }
        names
    }
}

/// Keys with their calls, the one with the most first.
pub fn sorted(keys: &BTreeMap<u64, u64>) -> Vec<(u64, u64)> {
    let mut keys: Vec<(u64, u64)> = keys.iter().map(|(key, calls)| (*key, *calls)).collect();
    keys.sort_by_key(|(key, calls)| (Reverse(*calls), *key));
    keys
}

/// The parts of calls whose times are shown, and their names.
pub const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// The times of a probe, in nanoseconds of the guest's clock.
fn times(probed: &Probed, times: &Times, out: &mut dyn Write) -> Result<()> {
    if probed.returned == 0 {
        return writeln!(out, "{:>20}  none has returned to a caller", "");
    }
    let mean = probed.sum as f64 / probed.returned as f64;
    let (min, max, returned) = (probed.min, probed.max, probed.returned);
    let parts: String =
        QUANTILES.iter().map(|(name, part)| format!("{name} {} ns, ", probed.quantile(times, *part))).collect();
    writeln!(out, "{returned:>20}  have returned: minimum {min} ns, {parts}maximum {max} ns, mean {mean:.1} ns")?;
    let mut by_digits = [0_u64; 65];
    for (range, calls) in times {
        by_digits[64 - histogram::first(*range).leading_zeros() as usize] += calls;
    }
    let most = by_digits.iter().copied().max().unwrap_or(1).max(1);
    let is_used = |calls: &u64| *calls > 0;
    let first = by_digits.iter().position(is_used).unwrap_or(0);
    let last = by_digits.iter().rposition(is_used).unwrap_or(0);
    for (digits, calls) in by_digits.iter().enumerate().take(last + 1).skip(first) {
        let from = if digits == 0 { 0 } else { 1_u64 << (digits - 1) };
        let bar = "#".repeat(calls.saturating_mul(BAR).div_ceil(most) as usize);
        let line = format!("{calls:>20}  {:<16} {bar}", format!("from {from} ns"));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
