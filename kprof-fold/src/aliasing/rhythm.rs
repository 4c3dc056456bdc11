//! Rhythm: checks whether the places of the samples repeat periodically. Stage: fold, part of the aliasing check.
//!
//! In: the samples of a CPU as tick number and place. Out: the number of ticks after which the places repeat, if they
//! do.
//!
//! If the period of the work is nearly a multiple of fixed intervals, each tick sees the work a little later than the
//! tick before. The places then appear one after the other, again and again, and a place's share depends on where the
//! recording begins and ends. A spectrum shows every such period, also one that is not a whole number of ticks. The
//! samples of each common place are a sequence of 0 and 1, which is divided into segments; the spectra of the segments
//! (fast Fourier transform, Hann window) are added up. Work without a period has a smooth spectrum, even if it takes
//! many ticks. A period is a line that is higher than its neighbours on both sides. By chance a sum of K spectra
//! exceeds t times its expected value with a probability of at most exp(-K (t - 1 - ln t)) (Chernoff's bound for the
//! gamma distribution). The limit is set so that all lines of all places together raise a false alarm with at most the
//! given probability.

use crate::by_address::ByAddress;
use rustfft::FftPlanner;
use rustfft::num_complex::Complex;
use std::f64::consts::TAU;

/// Lengths of a segment in ticks. A longer segment separates lines better; a period that is sometimes interrupted gives
/// a broad line, which a shorter segment shows better.
const LENGTHS: [usize; 4] = [128, 256, 512, 1024];
/// Minimum number of segments.
const MIN_STRETCHES: usize = 5;
/// Number of neighbours on each side with which a line is compared.
const NEIGHBOURS: usize = 12;
/// The nearest neighbours on each side are skipped, because the window spreads a line over them.
const LEAK: usize = 3;
/// Lines of the spectrum with a lower number are not tested, because they have too few neighbours.
const FIRST_LINE: usize = LEAK + NEIGHBOURS / 2;
/// A place is tested only if the samples change to it from another place at least this often: in total, and in each
/// segment on average.
const MIN_COMINGS: usize = 100;
const MIN_COMINGS_EACH: usize = 2;
/// A line is compared with the median of few neighbours, which may by chance be too small by up to this factor.
const CARE: f64 = 1.8;

/// A rhythm that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rhythm {
    /// The period, in ticks.
    pub(super) ticks: f64,
    /// The strength of the line divided by the limit, so it is greater than 1.
    pub(super) strength: f64,
}

/// The strongest rhythm of these places. `chance` is the probability that any is found although there is none.
pub(super) fn find(ticks: &[(u64, u64)], places: &[u64], bits: u32, chance: f64) -> Option<Rhythm> {
    let (first, last) = (ticks.first()?.0, ticks.last()?.0);
    let all = usize::try_from(last - first + 1).ok()?;
    // If most ticks have no sample, the order of the samples says nothing.
    if all > ticks.len().saturating_mul(4) {
        return None;
    }
    let comings = |place: u64| {
        let is_new = |pair: &&[(u64, u64)]| pair[1].1 >> bits == place && pair[0].1 >> bits != place;
        ticks.windows(2).filter(is_new).count()
    };
    let mut best: Option<Rhythm> = None;
    for (length, stretches) in LENGTHS.map(|length| (length, all / length)) {
        // The spectrum of a place that appears only a few times is neither smooth nor a line, so it cannot be judged.
        let enough = MIN_COMINGS.max(MIN_COMINGS_EACH * stretches);
        let places: Vec<u64> = places.iter().copied().filter(|place| comings(*place) >= enough).collect();
        if stretches < MIN_STRETCHES || places.is_empty() {
            continue;
        }
        let lines = FIRST_LINE..length / 2 - LEAK - NEIGHBOURS / 2;
        let tests = LENGTHS.len() * lines.len() * places.len();
        let limit = CARE * min_ratio((tests as f64 / chance).ln() / stretches as f64);
        for place in places {
            let spectrum = spectrum(ticks, first, place, bits, (length, stretches));
            for line in lines.clone() {
                let strength = spectrum[line] / beside(&spectrum, line) / limit;
                if strength > 1.0 && best.is_none_or(|best| strength > best.strength) {
                    best = Some(Rhythm { ticks: length as f64 / line as f64, strength });
                }
            }
        }
    }
    best
}

/// How much less often than by chance two consecutive ticks see the same place, in standard deviations. Work that takes
/// several ticks makes equal places more frequent. The only work that makes them less frequent is periodic work that
/// advances by the same part of its period from tick to tick.
pub(super) fn avoidance(ticks: &[(u64, u64)], bits: u32, stretch: usize) -> f64 {
    let (mut seen, mut expected, mut variance) = (0.0, 0.0, 0.0);
    for stretch in ticks.chunks(stretch.max(2)) {
        let mut counts = ByAddress::<f64>::default();
        stretch.iter().for_each(|(_, place)| *counts.entry(place >> bits).or_default() += 1.0);
        // The probability that two different samples of the segment are of the same place.
        let all = stretch.len() as f64;
        let chance = counts.values().map(|count| count * (count - 1.0)).sum::<f64>() / (all * (all - 1.0)).max(1.0);
        let pairs = stretch.windows(2).filter(|pair| pair[1].0 == pair[0].0 + 1);
        let (number, same) = pairs.fold((0.0, 0.0), |(number, same), pair| {
            (number + 1.0, same + f64::from(u8::from(pair[0].1 >> bits == pair[1].1 >> bits)))
        });
        seen += same;
        expected += number * chance;
        variance += number * chance * (1.0 - chance);
    }
    if variance > 0.0 { (expected - seen) / variance.sqrt() } else { 0.0 }
}

/// Solves t - 1 - ln t = `value` for a t greater than 1.
fn min_ratio(value: f64) -> f64 {
    let (mut low, mut high) = (1.0, 2.0 * value + 4.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if middle - 1.0 - middle.ln() < value { low = middle } else { high = middle }
    }
    high
}

/// The value with which a line is compared: the greater of the medians of its neighbours below and above it.
fn beside(spectrum: &[f64], line: usize) -> f64 {
    let middle = |lines: &[f64]| {
        let mut sorted = lines.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    let below = &spectrum[(line - LEAK).saturating_sub(NEIGHBOURS).max(1)..line - LEAK];
    let above = &spectrum[line + LEAK..(line + LEAK + NEIGHBOURS).min(spectrum.len())];
    middle(below).max(middle(above)).max(f64::MIN_POSITIVE)
}

/// The sum of the spectra of all segments for one place. Line n stands for n periods per segment.
fn spectrum(ticks: &[(u64, u64)], first: u64, place: u64, bits: u32, (length, stretches): (usize, usize)) -> Vec<f64> {
    let transform = FftPlanner::new().plan_fft_forward(length);
    let (mut sum, mut row) = (vec![0.0; length / 2], vec![Complex::default(); length]);
    let window: Vec<f64> = (0..length).map(|at| 0.5 - 0.5 * (TAU * at as f64 / length as f64).cos()).collect();
    let mut rest = ticks;
    for stretch in 0..stretches as u64 {
        let from = first + stretch * length as u64;
        let mine;
        (mine, rest) = rest.split_at(rest.partition_point(|(tick, _)| *tick < from + length as u64));
        let here = mine.iter().filter(|(_, at)| at >> bits == place).count() as f64;
        let share = here / mine.len().max(1) as f64;
        row.fill(Complex::default());
        for (tick, at) in mine {
            let index = (tick - from) as usize;
            row[index].re = window[index] * (f64::from(u8::from(at >> bits == place)) - share);
        }
        transform.process(&mut row);
        sum.iter_mut().zip(&row).for_each(|(sum, line)| *sum += line.norm_sqr());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spectrum_of_work_that_comes_every_sixteenth_tick_is_lines_there() {
        let ticks: Vec<(u64, u64)> = (0..640).map(|tick| (tick, u64::from(tick % 16 == 0))).collect();
        let spectrum = spectrum(&ticks, 0, 1, 0, (128, 5));
        for (line, strength) in spectrum.iter().enumerate().take(64 - LEAK).skip(FIRST_LINE) {
            // The window spreads a line over three.
            assert_eq!(*strength > 1.0, (line + 1) % 8 <= 2, "{line}: {strength}");
        }
    }

    #[test]
    fn the_limit_is_where_the_bound_says() {
        let t = min_ratio(0.7);
        assert!((t - 1.0 - t.ln() - 0.7).abs() < 1e-9, "{t}");
        assert!(min_ratio(20.0) > 20.0);
    }
}
