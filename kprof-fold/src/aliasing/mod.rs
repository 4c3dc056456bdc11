//! Were the ticks in step with the work? Stage: fold, a check beside the account.
//!
//! In: the samples of each CPU in order, as time and place (the innermost address). Out: a verdict.
//!
//! Method: the same data is thinned in several ways that must agree. Ticks are numbered by time, so that ticks left out
//! (idle, user) keep their number; for each k from 2 to 8 the samples are split by their number modulo k, and the share
//! of each common place in each of the k parts compared with its share in all, once by exact address and once by 256
//! bytes of code. A sampler whose ticks go in step with the work sees other places in other parts, all the time. That
//! is what is tested: the difference is taken in 32 stretches of the recording, and its mean set against its spread
//! (Student's t), so that work which keeps a rhythm for a while only, or goes on for many ticks, raises no alarm. All
//! tests together raise one in at most 0.1 % of runs by chance (Bonferroni).
//!
//! Where gaps are fixed the order of the samples is looked at too (`rhythm.rs`): places that come round and round are
//! work that goes nearly in step with the ticks. With random gaps only a slow rhythm of the work itself can show there,
//! which is sampled rightly, so nothing is looked for.
//!
//! What no thinning can show: a rhythm that each tick meets in the very same phase. That takes ticks with fixed gaps;
//! so gaps that are all multiples of one length are reported too.

mod rhythm;

use crate::diff::significance::z_for;
use crate::fold::frames::ByAddress;

/// Ways of thinning.
const PARTS: std::ops::RangeInclusive<u64> = 2..=8;
/// Places are compared as they are, and by so many bytes.
const PLACE_BITS: [u32; 2] = [0, 8];
/// For a rhythm in the order of the samples, by so many bytes.
const RHYTHM_BITS: [u32; 2] = [8, 12];
/// The chance of an alarm by all tests together: a third of what is promised, as some counts are too small for the
/// theory.
const ALARM: f64 = 0.0003;
/// Stretches of the recording.
const STRETCHES: usize = 32;
/// Fewer samples of a CPU say nothing.
const MIN_SAMPLES: usize = 20 * STRETCHES;
/// The least samples of a place that are expected in each part of each stretch.
const MIN_EXPECTED: f64 = 1.0;
/// The most places that are looked at.
const MAX_PLACES: usize = 20;
/// From this part of all gaps on that are multiples of the common one, gaps are fixed: of gaps that vary by a quarter 8
/// % are, and of fixed ones all but those that interrupts were off at.
const FIXED: f64 = 0.5;
/// How near to a multiple, in parts of the common gap.
const NEAR: f64 = 0.02;

/// What the check found.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Too few samples to tell.
    TooFew,
    /// Every so many ticks see other code than those between.
    InStep {
        /// The number of parts in which the difference is greatest.
        parts: u64,
    },
    /// Gaps are fixed, and the places of the samples come round and round.
    Rhythm {
        /// They come again after so many ticks.
        ticks: f64,
    },
    /// Gaps are fixed, and a tick seldom sees the place that the one before saw.
    Avoiding {
        /// By how many standard deviations more seldom than by chance.
        deviations: f64,
    },
    /// Nothing was found, but all gaps are the same: work with a multiple of their rhythm cannot be seen by them.
    FixedInterval {
        /// The part of gaps that are multiples of the common one.
        part: f64,
    },
    /// Nothing was found, and gaps vary.
    None,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooFew => write!(f, "too few samples to tell"),
            Self::InStep { parts } => write!(
                f,
                "FOUND: samples thinned by {parts} in {parts} ways disagree; the work goes in step with the ticks, so shares are \
                 not those of time (interval random helps)"
            ),
            Self::Rhythm { ticks } => write!(
                f,
                "FOUND: gaps are fixed and the samples repeat every {ticks:.1} ticks, or a few times that: thinned so they \
                 see other code; the work goes in step with the ticks, and shares are not those of time (interval random helps)"
            ),
            Self::Avoiding { deviations } => write!(
                f,
                "FOUND: gaps are fixed and a tick sees the place of the one before more seldom than by chance, by {deviations:.0} \
                 standard deviations; the work goes in step with the ticks, and shares are not those of time (interval random \
                 helps)"
            ),
            Self::FixedInterval { part } => write!(
                f,
                "NOT RULED OUT: {:.0} % of the gaps are multiples of one length; work in step with it is seen always or never \
                 (interval random helps)",
                part * 100.0
            ),
            Self::None => write!(f, "none found; gaps vary, and the same samples thinned by 2 to 8 agree"),
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
    let limit = student(z_for(1.0 - ALARM, tests), (STRETCHES - 1) as f64);
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
    let limit = z_for(1.0 - ALARM, cpus.len() * RHYTHM_BITS.len());
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

/// The places of a CPU's samples, each with a small number, so that one look decides which column a sample is counted
/// in.
struct Places {
    /// Number of each sample's place.
    of: Vec<u32>,
    /// Samples of each place, and the place.
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

    /// The places that at least so many samples have, the most common first, if not too many.
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

/// The length that more gaps have than any other, within 4 %: where many ticks are left out, the middle one is a
/// multiple.
fn common_interval(cpus: &[Vec<(u64, u64)>]) -> u64 {
    let mut intervals: Vec<u64> = intervals(cpus).filter(|gap| *gap > 0).collect();
    intervals.sort_unstable();
    let (mut from, mut best) = (0, (0, 0));
    for (to, gap) in intervals.iter().enumerate() {
        while intervals[from] < gap - gap / 25 {
            from += 1;
        }
        best = best.max((to - from, intervals[from + (to - from) / 2]));
    }
    best.1
}

fn fixed_part(cpus: &[Vec<(u64, u64)>], period: u64) -> f64 {
    let is_multiple = |gap: &u64| {
        let times = (*gap as f64 / period as f64).round().max(1.0);
        (*gap as f64 - times * period as f64).abs() <= NEAR * period as f64
    };
    let (all, fixed) =
        intervals(cpus).fold((0u64, 0u64), |(all, fixed), gap| (all + 1, fixed + u64::from(is_multiple(&gap))));
    fixed as f64 / all.max(1) as f64
}

/// Number of the tick and place of each sample.
fn number(cpu: &[(u64, u64)], period: u64) -> Vec<(u64, u64)> {
    let (mut tick, mut before) = (0u64, None);
    let numbered = cpu.iter().map(|(tsc, place)| {
        let gap = tsc.saturating_sub(*before.get_or_insert(*tsc));
        tick += if before == Some(*tsc) { 0 } else { ((gap + period / 2) / period).max(1) };
        before = Some(*tsc);
        (tick, *place)
    });
    numbered.collect()
}

/// The greatest t of all common places and parts: how steadily a place has another share in one part than in all.
fn score(ticks: &[(u64, u64)], parts: u64, places: &Places) -> f64 {
    let common = places.common(MIN_EXPECTED * (STRETCHES as u64 * parts) as f64);
    let mut column = vec![usize::MAX; places.counts.len()];
    common.iter().enumerate().for_each(|(at, number)| column[*number as usize] = at);
    let parts = parts as usize;
    // Sums of the differences and of their squares, by place and part.
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
        // Rounding leaves a little where nothing differs.
        if mean.abs() < 1e-9 { 0.0 } else { mean.abs() / spread }
    };
    sums.iter().zip(&squares).map(t).fold(0.0, f64::max)
}

/// The quantile of Student's t for that of the normal distribution (Abramowitz and Stegun 26.7.5).
fn student(z: f64, freedom: f64) -> f64 {
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
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
    fn quantiles_of_student_are_those_of_the_tables() {
        for (z, freedom, t) in
            [(1.959_964, 30.0, 2.042_272), (2.575_829, 30.0, 2.749_996), (3.290_527, 31.0, 3.633_456)]
        {
            assert!((student(z, freedom) - t).abs() < 1e-4, "{}", student(z, freedom));
        }
    }

    #[test]
    fn gaps_are_fixed_where_they_are_multiples_of_one() {
        let cpu = |intervals: &[u64]| {
            let ends = intervals.iter().scan(0, |tsc, gap| {
                *tsc += gap;
                Some((*tsc, 0))
            });
            vec![[(0, 0)].into_iter().chain(ends).collect::<Vec<_>>()]
        };
        assert_eq!(fixed_part(&cpu(&[100, 101, 99, 300, 200, 100]), 100), 1.0);
        assert_eq!(fixed_part(&cpu(&[100, 80, 120, 90, 113]), 100), 0.2);
    }
}
