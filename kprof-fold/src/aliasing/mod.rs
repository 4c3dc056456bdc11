//! Aliasing: checks whether the ticks were in step with the work. Stage: fold, a check besides the account.
//!
//! In: the samples of each CPU in order, as time and place (the innermost address). Out: a verdict.
//!
//! Method: subsets of the samples are compared, which must agree if there is no aliasing. Ticks are numbered by time,
//! so that filtered ticks (idle, user) are counted too. For each k from 2 to 8 the samples are split into k parts by
//! their tick number modulo k. The share that each common place has in each part is compared with the share that it has
//! in all samples, once by exact address and once by 256 bytes of code. If the ticks are in step with the work,
//! different parts see different places during the whole recording. To test for this, the recording is divided into 32
//! segments, the difference is computed in each segment, and its mean is compared with its spread (Student's t). So
//! work that is periodic only for a while, or that takes many ticks, raises no alarm. All tests together raise an alarm
//! by chance in at most 0.1 % of runs (Bonferroni).
//!
//! If intervals are fixed, the order of the samples is checked too (`rhythm.rs`): places that repeat periodically show
//! work that is nearly in step with the ticks. If intervals are random, this check is not made: only a slow period of
//! the work itself could show there, and such work is sampled correctly.
//!
//! No subset can show work whose period each tick meets in exactly the same phase. This is only possible with fixed
//! intervals, so intervals that are all multiples of one length are reported too.

mod rhythm;

use crate::by_address::ByAddress;
use crate::diff::significance::quantile;

/// Into how many parts the samples are split.
const PARTS: std::ops::RangeInclusive<u64> = 2..=8;
/// Places are compared by address without this many low bits: by exact address, and by 256 bytes of code.
const PLACE_BITS: [u32; 2] = [0, 8];
/// To find a rhythm in the order of the samples, addresses are compared without this many low bits: by 256 bytes and by
/// 4 KiB.
const RHYTHM_BITS: [u32; 2] = [8, 12];
/// The probability of a false alarm by all tests together. It is a third of the promised one, because some counts are
/// too small for the theory to be exact.
const ALARM: f64 = 0.0003;
/// Number of segments of the recording.
const STRETCHES: usize = 32;
/// A CPU with fewer samples than this is not checked.
const MIN_SAMPLES: usize = 20 * STRETCHES;
/// Minimum number of samples of a place that must be expected in each part of each segment.
const MIN_EXPECTED: f64 = 1.0;
/// Maximum number of places that are compared.
const MAX_PLACES: usize = 20;
/// Intervals are called fixed if at least this share of them are multiples of the common one. With a jitter of a
/// quarter 8 % are multiples; with fixed intervals all are, except where interrupts were off and delayed a tick.
const FIXED: f64 = 0.5;
/// An interval counts as a multiple of the common interval if its distance from the nearest multiple is at most this
/// share of the common interval.
const NEAR: f64 = 0.02;

/// What the check found.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// There are too few samples to decide.
    TooFew,
    /// Every k-th tick sees different code than the ticks in between.
    InStep {
        /// The k for which the difference is greatest.
        parts: u64,
    },
    /// Intervals are fixed, and the places of the samples repeat periodically.
    Rhythm {
        /// The period, in ticks.
        ticks: f64,
    },
    /// Intervals are fixed, and a tick sees the place of the tick before it less often than by chance.
    Avoiding {
        /// How much less often, in standard deviations.
        deviations: f64,
    },
    /// Nothing was found, but all intervals are the same. Work with a multiple of this period would look constant.
    FixedInterval {
        /// The share of intervals that are multiples of the common one.
        part: f64,
    },
    /// Nothing was found, and intervals vary.
    None,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooFew => write!(f, "too few samples to tell"),
            Self::InStep { parts } => write!(
                f,
                "FOUND: the {parts} subsets with every {parts}th sample have different shares; the work goes in step \
                 with the ticks, so shares are not those of time (interval random helps)"
            ),
            Self::Rhythm { ticks } => write!(
                f,
                "FOUND: intervals are fixed, and the samples repeat every {ticks:.1} ticks or a small multiple of it; \
                 the work goes in step with the ticks, so shares are not those of time (interval random helps)"
            ),
            Self::Avoiding { deviations } => write!(
                f,
                "FOUND: intervals are fixed, and two successive samples are at the same place less often than by \
                 chance, by {deviations:.0} standard deviations; the work goes in step with the ticks, so shares are \
                 not those of time (interval random helps)"
            ),
            Self::FixedInterval { part } => write!(
                f,
                "NOT RULED OUT: {:.0} % of the intervals are multiples of one length; work in step with them is \
                 sampled always or never (interval random helps)",
                part * 100.0
            ),
            Self::None => {
                write!(
                    f,
                    "none found; intervals vary, and subsets with every 2nd to every 8th sample have the same shares"
                )
            }
        }
    }
}

/// Checks the samples of each CPU: time and place, ascending by time.
pub fn check(cpus: &[Vec<(u64, u64)>]) -> Verdict {
    let large: Vec<_> = cpus.iter().filter(|cpu| cpu.len() >= MIN_SAMPLES).collect();
    if large.is_empty() {
        return Verdict::TooFew;
    }
    let period = common_interval(cpus).max(1);
    let tests = large.len() * PLACE_BITS.len() * MAX_PLACES * PARTS.sum::<u64>() as usize;
    let limit = quantile(ALARM / tests as f64, (STRETCHES - 1) as f64);
    let mut worst = (limit, None);
    for cpu in &large {
        let ticks = number(cpu, period);
        let places = PLACE_BITS.map(|bits| Places::number(&ticks, bits));
        for (parts, places) in PARTS.flat_map(|parts| places.each_ref().map(|places| (parts, places))) {
            let score = score(&ticks, parts, places);
            if score > worst.0 {
                worst = (score, Some(parts));
            }
        }
    }
    match (worst.1, fixed_part(cpus, period)) {
        (Some(parts), _) => Verdict::InStep { parts },
        (None, part) if part >= FIXED => match strongest_rhythm(&large, period) {
            Some(rhythm) => Verdict::Rhythm { ticks: rhythm.ticks },
            None => avoidance(&large, period).unwrap_or(Verdict::FixedInterval { part }),
        },
        (None, _) => Verdict::None,
    }
}

fn avoidance(cpus: &[&Vec<(u64, u64)>], period: u64) -> Option<Verdict> {
    let of_cpu = |cpu: &&Vec<(u64, u64)>| {
        let ticks = number(cpu, period);
        RHYTHM_BITS.map(|bits| rhythm::avoidance(&ticks, bits, ticks.len().div_ceil(STRETCHES)))
    };
    let deviations = cpus.iter().flat_map(of_cpu).fold(0.0, f64::max);
    let limit = quantile(ALARM / (cpus.len() * RHYTHM_BITS.len()) as f64, f64::INFINITY);
    (deviations > limit).then_some(Verdict::Avoiding { deviations })
}

fn strongest_rhythm(cpus: &[&Vec<(u64, u64)>], period: u64) -> Option<rhythm::Rhythm> {
    let chance = ALARM / (cpus.len() * RHYTHM_BITS.len()) as f64;
    let by_bits = |ticks: &[(u64, u64)], bits: u32| {
        let places = Places::number(ticks, bits);
        let common = places.common(MIN_EXPECTED * STRETCHES as f64);
        let common: Vec<u64> = common.into_iter().map(|number| places.counts[number as usize].1).collect();
        rhythm::find(ticks, &common, bits, chance)
    };
    let rhythms = cpus.iter().flat_map(|cpu| {
        let ticks = number(cpu, period);
        RHYTHM_BITS.map(|bits| by_bits(&ticks, bits))
    });
    rhythms.flatten().max_by(|a, b| a.strength.total_cmp(&b.strength))
}

/// The places of a CPU's samples, each with a small number that serves as an array index.
struct Places {
    /// For each sample the number of its place.
    of: Vec<u32>,
    /// For each place how many samples it has, and its address.
    counts: Vec<(usize, u64)>,
}

impl Places {
    fn number(ticks: &[(u64, u64)], bits: u32) -> Self {
        let (mut numbers, mut counts) = (ByAddress::<u32>::default(), Vec::<(usize, u64)>::new());
        let of = ticks.iter().map(|(_, place)| {
            let place = place >> bits;
            let number = *numbers.entry(place).or_insert(counts.len() as u32);
            if number as usize == counts.len() {
                counts.push((0, place));
            }
            counts[number as usize].0 += 1;
            number
        });
        Self { of: of.collect(), counts }
    }

    /// The places with at least `least` samples, the most common first; at most [`MAX_PLACES`].
    fn common(&self, least: f64) -> Vec<u32> {
        let mut common: Vec<u32> =
            (0..).zip(&self.counts).filter(|(_, (count, _))| *count as f64 >= least).map(|one| one.0).collect();
        common.sort_unstable_by_key(|number| std::cmp::Reverse(self.counts[*number as usize]));
        common.truncate(MAX_PLACES);
        common
    }
}

fn intervals(cpus: &[Vec<(u64, u64)>]) -> impl Iterator<Item = u64> {
    cpus.iter().flat_map(|cpu| cpu.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].0)))
}

/// The most common interval: more intervals are within 4 % of it than of any other. The median would be wrong if many
/// ticks are filtered, because it is then a multiple of the period.
fn common_interval(cpus: &[Vec<(u64, u64)>]) -> u64 {
    let mut intervals: Vec<u64> = intervals(cpus).filter(|interval| *interval > 0).collect();
    intervals.sort_unstable();
    let (mut from, mut best) = (0, (0, 0));
    for (to, interval) in intervals.iter().enumerate() {
        while intervals[from] < interval - interval / 25 {
            from += 1;
        }
        best = best.max((to - from, intervals[from + (to - from) / 2]));
    }
    best.1
}

fn fixed_part(cpus: &[Vec<(u64, u64)>], period: u64) -> f64 {
    let is_multiple = |interval: &u64| {
        let times = (*interval as f64 / period as f64).round().max(1.0);
        (*interval as f64 - times * period as f64).abs() <= NEAR * period as f64
    };
    let (all, fixed) = intervals(cpus)
        .fold((0u64, 0u64), |(all, fixed), interval| (all + 1, fixed + u64::from(is_multiple(&interval))));
    fixed as f64 / all.max(1) as f64
}

/// For each sample the number of its tick, computed from the time, and its place.
fn number(cpu: &[(u64, u64)], period: u64) -> Vec<(u64, u64)> {
    let (mut tick, mut before) = (0u64, None);
    let numbered = cpu.iter().map(|(tsc, place)| {
        let interval = tsc.saturating_sub(*before.get_or_insert(*tsc));
        tick += if before == Some(*tsc) { 0 } else { ((interval + period / 2) / period).max(1) };
        before = Some(*tsc);
        (tick, *place)
    });
    numbered.collect()
}

/// The greatest Student's t of all common places and parts. It is large if a place has, in one part, a share that
/// differs from its share in all samples in the same direction in most segments.
fn score(ticks: &[(u64, u64)], parts: u64, places: &Places) -> f64 {
    let common = places.common(MIN_EXPECTED * (STRETCHES as u64 * parts) as f64);
    let mut column = vec![usize::MAX; places.counts.len()];
    common.iter().enumerate().for_each(|(at, number)| column[*number as usize] = at);
    let parts = parts as usize;
    // Sums of the differences and of their squares, for each place and part.
    let (mut sums, mut squares) = (vec![0.0; common.len() * parts], vec![0.0; common.len() * parts]);
    let mut stretches = 0.0;
    let length = ticks.len().div_ceil(STRETCHES);
    for (stretch, places) in ticks.chunks(length).zip(places.of.chunks(length)) {
        let (mut in_part, mut cells) = (vec![0.0; parts], vec![0.0; common.len() * parts]);
        for ((tick, _), place) in stretch.iter().zip(places) {
            let part = (*tick % parts as u64) as usize;
            in_part[part] += 1.0;
            let at = column[*place as usize];
            if at != usize::MAX {
                cells[at * parts + part] += 1.0;
            }
        }
        stretches += 1.0;
        for (at, cell) in cells.iter().enumerate() {
            let (first, part) = (at / parts * parts, at % parts);
            let share = cells[first..first + parts].iter().sum::<f64>() / stretch.len() as f64;
            let difference = if in_part[part] > 0.0 { cell / in_part[part] - share } else { 0.0 };
            sums[at] += difference;
            squares[at] += difference * difference;
        }
    }
    let t = |(sum, square): (&f64, &f64)| {
        let mean: f64 = sum / stretches;
        let spread = ((square / stretches - mean * mean).max(0.0) / (stretches - 1.0)).sqrt();
        // If nothing differs, rounding leaves a mean that is not exactly 0.
        if mean.abs() < 1e-9 { 0.0 } else { mean.abs() / spread }
    };
    sums.iter().zip(&squares).map(t).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_numbered_by_time() {
        let cpu = [(100, 1), (200, 2), (501, 3), (501, 4), (510, 5)];
        assert_eq!(number(&cpu, 100), [(0, 1), (1, 2), (4, 3), (4, 4), (5, 5)]);
    }

    #[test]
    fn intervals_are_fixed_where_they_are_multiples_of_one() {
        let cpu = |intervals: &[u64]| {
            let ends = intervals.iter().scan(0, |tsc, interval| {
                *tsc += interval;
                Some((*tsc, 0))
            });
            vec![[(0, 0)].into_iter().chain(ends).collect::<Vec<_>>()]
        };
        assert_eq!(fixed_part(&cpu(&[100, 101, 99, 300, 200, 100]), 100), 1.0);
        assert_eq!(fixed_part(&cpu(&[100, 80, 120, 90, 113]), 100), 0.2);
    }
}
