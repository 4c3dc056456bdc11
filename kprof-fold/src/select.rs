//! Select: which samples count. Stage: fold, before anything is added up.
//!
//! In: one sample, or one stack with its names. Out: yes or no. What depends on the sample alone (CPU, task, time)
//! is decided while reading; what depends on the stack is decided once per distinct stack.

use crate::read::escape::unescape;
use crate::read::ingest::Sample;
use crate::stacks::Traits;

/// A name with `*` for any bytes, `?` for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern as the user wrote it.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Whether the whole of `name` fits.
    pub fn fits(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut p, mut n) = (0, 0);
        // Where to go on when the last star must take one byte more.
        let mut retry = None;
        while n < name.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    p += 1;
                    retry = Some((p, n));
                }
                Some(byte) if *byte == b'?' || *byte == name[n] => {
                    p += 1;
                    n += 1;
                }
                _ => {
                    let Some((after_star, taken)) = retry else { return false };
                    retry = Some((after_star, taken + 1));
                    p = after_star;
                    n = taken + 1;
                }
            }
        }
        pattern[p..].iter().all(|byte| *byte == b'*')
    }

    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Pattern {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::new(text))
    }
}

/// The choice.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// Only these CPUs; empty: all.
    pub cpus: Vec<u32>,
    /// Only tasks whose name fits one of these; empty: all.
    pub tasks: Vec<Pattern>,
    /// Only samples from the first TSC to just before the second, by boot; empty: all.
    pub between: Option<(u64, u64)>,
    /// User samples and the user part of stacks count too.
    pub user: bool,
    /// Only samples with interrupts off (`Some(true)`) or on (`Some(false)`).
    pub irq_off: Option<bool>,
    /// Idle samples do not count.
    pub hide_idle: bool,
    /// Only stacks with one of these functions, cut off above the outermost one; empty: all.
    pub under: Vec<Pattern>,
    /// No stack with one of these functions.
    pub not: Vec<Pattern>,
}

impl Select {
    /// Whether nothing is asked of the sample itself.
    pub fn takes_every_sample(&self) -> bool {
        self.cpus.is_empty() && self.tasks.is_empty() && self.between.is_none()
    }

    /// Whether CPU, task and time of the sample are asked for.
    pub fn admits_sample(&self, sample: &Sample<'_>) -> bool {
        self.admits_cpu(sample.cpu)
            && self.between.is_none_or(|(from, to)| from <= sample.tsc && sample.tsc < to)
            && (self.tasks.is_empty() || self.admits_task(sample.task))
    }

    /// Whether this CPU is asked for.
    pub fn admits_cpu(&self, cpu: u32) -> bool {
        self.cpus.is_empty() || self.cpus.contains(&cpu)
    }

    fn admits_task(&self, task: &[u8]) -> bool {
        let name = unescape(task);
        let name = String::from_utf8_lossy(&name);
        self.tasks.iter().any(|pattern| pattern.fits(&name))
    }

    /// Whether a stack with these traits is asked for.
    pub fn admits_traits(&self, traits: Traits) -> bool {
        (self.user || traits.is_kernel())
            && self.irq_off.is_none_or(|off| off == traits.interrupts_off())
            && !(self.hide_idle && traits.is_idle())
    }

    /// How many of `count` events spread evenly from one TSC to another lie in the time asked for.
    pub fn share(&self, count: u64, from: Option<u64>, to: Option<u64>) -> u64 {
        let Some((first, end)) = self.between else { return count };
        let Some(to) = to.or(from) else { return 0 };
        let from = from.unwrap_or(to).min(to);
        let inside = to.saturating_add(1).min(end).saturating_sub(from.max(first));
        let whole = u128::from(to - from) + 1;
        ((u128::from(count) * u128::from(inside) + whole / 2) / whole) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_whole_names_with_stars() {
        for (pattern, name, fits) in [
            ("mm::map", "mm::map", true),
            ("mm::map", "mm::mapx", false),
            ("mm::*", "mm::map", true),
            ("*map*", "mm::map_page", true),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("m?::map", "mm::map", true),
            ("", "", true),
            ("*", "", true),
            ("", "x", false),
        ] {
            assert_eq!(Pattern::new(pattern).fits(name), fits, "{pattern} {name}");
        }
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
