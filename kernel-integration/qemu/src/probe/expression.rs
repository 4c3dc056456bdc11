//! What is to be watched. In: text, see [`HELP`](super::HELP). Out: a pattern, and words for the plugin.

use anyhow::{Context, Error, Result, bail, ensure};
use kprof_fold::select::pattern::stars;
use std::str::FromStr;

/// The registers of arguments, in the plugin's order.
pub const ARGUMENTS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];
/// Comparisons, in the plugin's order.
const COMPARISONS: [&str; 7] = ["=", "!=", "<", "<=", ">", ">=", "&"];

/// What calls are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The caller.
    Caller,
    /// The guest's stack.
    Task,
    /// An argument, by number.
    Argument(usize),
}

impl Key {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Task => "stack",
            Self::Argument(number) => ARGUMENTS[number],
        }
    }
}

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    pattern: String,
    /// Whether times are measured.
    pub has_time: bool,
    /// What calls are told apart by.
    pub key: Option<Key>,
    nth: u64,
    conditions: Vec<[u64; 3]>,
}

fn argument(name: &str) -> Result<usize> {
    let found = ARGUMENTS.iter().position(|known| *known == name);
    found.with_context(|| format!("`{name}` is no argument: {} are", ARGUMENTS.join(", ")))
}

fn number(text: &str) -> Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.with_context(|| format!("`{text}` is no number"))
}

/// The parts between colons; the two colons of a path are none.
fn parts(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let is_end =
        |at: usize| bytes[at] == b':' && bytes.get(at + 1) != Some(&b':') && (at == 0 || bytes[at - 1] != b':');
    let ends: Vec<usize> = (0..bytes.len()).filter(|at| is_end(*at)).chain([bytes.len()]).collect();
    let starts = std::iter::once(0).chain(ends.iter().map(|end| end + 1));
    starts.zip(&ends).map(|(start, end)| text[start..*end].trim()).collect()
}

impl FromStr for Expression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = parts(text);
        let (pattern, rest) = parts.split_first().context("a pattern is missing")?;
        ensure!(!pattern.is_empty(), "a pattern is missing");
        let mut expression =
            Self { pattern: (*pattern).to_owned(), has_time: false, key: None, nth: 0, conditions: Vec::new() };
        for part in rest {
            match part.split_whitespace().collect::<Vec<_>>()[..] {
                ["latency"] => expression.has_time = true,
                ["by", "caller"] => expression.key = Some(Key::Caller),
                ["by", "task"] => expression.key = Some(Key::Task),
                ["by", name] => expression.key = Some(Key::Argument(argument(name)?)),
                ["nth", which] => expression.nth = number(which)?,
                ["if", name, comparison, value] => {
                    let known = COMPARISONS.iter().position(|known| *known == comparison);
                    let known =
                        known.with_context(|| format!("`{comparison}` is none of {}", COMPARISONS.join(" ")))?;
                    expression.conditions.push([argument(name)? as u64, known as u64, number(value)?]);
                }
                _ => bail!("`{part}` is none of latency, by caller, by task, by rdi, if rdi > 0, nth 1"),
            }
        }
        Ok(expression)
    }
}

impl Expression {
    /// Whether a name has this pattern.
    pub fn matches(&self, name: &str) -> bool {
        stars(self.pattern.as_bytes(), name.as_bytes())
    }

    /// Whether it is of some calls only.
    pub fn has_condition(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// The words for the plugin, after the address.
    pub fn words(&self) -> Vec<u64> {
        let key = match self.key {
            None => 0,
            Some(Key::Caller) => 1,
            Some(Key::Task) => 2,
            Some(Key::Argument(number)) => 3 + number as u64,
        };
        let first = [u64::from(self.has_time), key, self.nth, self.conditions.len() as u64];
        first.into_iter().chain(self.conditions.iter().flatten().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_stars_and_the_colons_of_paths() {
        let matches = |pattern: &str, name: &str| pattern.parse::<Expression>().unwrap().matches(name);
        assert!(matches("*::fs::*:latency", "kernel::fs::read"));
        assert!(matches("a*b*c", "a-b-b-c") && matches("?ead", "read") && matches("*", ""));
        assert!(!matches("read", "reads") && !matches("?ead", "ead") && !matches("a*b", "a-b-c"));
        assert!(!matches("kernel::fs", "kernel::fs::read"));
    }

    #[test]
    fn everything_after_the_pattern_is_for_the_plugin() {
        let words = |text: &str| text.parse::<Expression>().unwrap().words();
        assert_eq!(words("a::b"), [0, 0, 0, 0]);
        assert_eq!(words("a::b:latency:by task:nth 3"), [1, 2, 3, 0]);
        assert_eq!(words("*:by rdx:if rsi >= 0x10:if r9 & 2"), [0, 5, 0, 2, 1, 5, 16, 5, 6, 2]);
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        let said = |text: &str| text.parse::<Expression>().unwrap_err().to_string();
        assert!(said(":latency").contains("pattern is missing"));
        assert!(said("a:latencies").contains("`latencies` is none of latency, by caller"));
        assert!(said("a:by rax").contains("`rax` is no argument"));
        assert!(said("a:if rdi ~ 5").contains("`~` is none of ="));
        assert!(said("a:if rdi > five").contains("`five` is no number"));
    }
}
