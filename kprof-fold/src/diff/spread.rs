//! How much the runs of one side differ from each other, beyond chance. Stage: diff.
//!
//! In: the counts of a function in every run of both sides. Out: by what factor its variance is larger than that of
//! independent samples, and how well this factor is known (degrees of freedom).
//!
//! Method: as in edgeR's quasi-likelihood test (Lund and others, Statistical Applications in Genetics and Molecular
//! Biology 11, 2012), for counts of genes instead of functions. First, the shares of all functions vary between runs by
//! the same relative amount, tau: the variance of a count is then that of chance times 1 + tau^2 n p / (1 - p), so a
//! large function varies more. Tau is chosen so that Pearson's chi-squared of all functions equals its expected value.
//! Second, a function may vary more than that. Two or three runs give a poor estimate for one function, but there are
//! hundreds of functions. So each estimate is moderated by all others (Smyth, same journal 3, 2004, section 6): the
//! factors of all functions follow a scaled F distribution, whose scale and degrees of freedom are estimated from the
//! mean and the variance of their logarithms. A function whose own estimate does not fit the others keeps it. A factor
//! below 1 is taken as 1.

use statrs::function::beta::beta_reg;
use statrs::function::gamma::{digamma, gamma_ur};

/// With fewer functions than this, the factors of the functions do not moderate each other.
const MIN_FUNCTIONS: usize = 10;
/// Chance at which any of the functions is wrongly taken for one that does not fit the others.
const OUTLIER: f64 = 0.1;
/// A function with fewer samples than this per run has no usable factor of its own.
const MIN_PER_RUN: f64 = 5.0;

/// The spread of one function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Its variance as a multiple of that of independent samples; at least 1.
    pub factor: f64,
    /// Degrees of freedom of the estimate `factor`. Infinite if the factor is taken as known: with one run on each
    /// side it is assumed to be 1.
    pub freedom: f64,
}

impl Default for Spread {
    fn default() -> Self {
        Self { factor: 1.0, freedom: f64::INFINITY }
    }
}

/// One side of one function: samples of the function and all samples, for each run.
pub type Runs = Vec<(u64, f64)>;

/// The spread of each function, given as its runs on both sides.
pub fn spreads(functions: &[[Runs; 2]]) -> Vec<Spread> {
    let freedom: usize = functions.first().map_or(0, |sides| sides.iter().map(|runs| runs.len().max(1) - 1).sum());
    if freedom == 0 {
        return vec![Spread::default(); functions.len()];
    }
    let freedom = freedom as f64;
    let used: Vec<&[Runs; 2]> = functions.iter().filter(|sides| has_enough(sides)).collect();
    let tau2 = common(&used, freedom);
    let raw = |sides: &[Runs; 2]| chi_squared(sides, tau2) / freedom;
    let factors: Vec<f64> = used.iter().map(|sides| raw(sides)).collect();
    let (scale, prior) = if factors.is_empty() { (1.0, 0.0) } else { prior(&factors, freedom) };
    let of_one = |sides: &[Runs; 2]| {
        let own = if has_enough(sides) { Some(raw(sides)) } else { None };
        let is_unlike = |own: f64| exceeds(own / scale, freedom, prior) * (factors.len() as f64) < OUTLIER;
        let (factor, freedom) = match own {
            Some(own) if is_unlike(own) => (own, freedom),
            Some(own) if prior.is_finite() => ((prior * scale + freedom * own) / (prior + freedom), prior + freedom),
            _ => (scale, prior + freedom),
        };
        Spread { factor: factor.max(1.0) * inflation(sides, tau2), freedom }
    };
    functions.iter().map(of_one).collect()
}

/// The chance that a variable of the F distribution is larger than `x`; with infinite `prior`, that of chi-squared by
/// its degrees of freedom.
fn exceeds(x: f64, freedom: f64, prior: f64) -> f64 {
    if prior > 1e6 {
        return gamma_ur(freedom / 2.0, (freedom * x / 2.0).max(1e-12));
    }
    if prior <= 0.0 {
        return 1.0;
    }
    beta_reg(prior / 2.0, freedom / 2.0, prior / (prior + freedom * x))
}

fn sum(runs: &Runs) -> (f64, f64) {
    runs.iter().fold((0.0, 0.0), |sum, run| (sum.0 + run.0 as f64, sum.1 + run.1))
}

/// Whether a function has enough samples to tell how much its runs differ.
fn has_enough(sides: &[Runs; 2]) -> bool {
    let is_enough = |runs: &Runs| {
        let (part, whole) = sum(runs);
        runs.len() < 2 || (part >= MIN_PER_RUN * runs.len() as f64 && part < whole)
    };
    sides.iter().all(is_enough)
}

/// Pearson's chi-squared of the runs against the share of their side.
fn chi_squared(sides: &[Runs; 2], tau2: f64) -> f64 {
    let side = |runs: &Runs| {
        let (part, whole) = sum(runs);
        let share = part / whole;
        let variance = |n: f64| n * share * (1.0 - share) + tau2 * (n * share).powi(2);
        runs.iter().map(|(k, n)| (*k as f64 - n * share).powi(2) / variance(*n)).sum::<f64>()
    };
    sides.iter().filter(|runs| runs.len() > 1).map(side).sum()
}

/// The square of tau, the relative amount by which all shares vary between runs.
fn common(functions: &[&[Runs; 2]], freedom: f64) -> f64 {
    let expected = freedom * functions.len() as f64;
    let is_too_small = |tau2: f64| functions.iter().map(|sides| chi_squared(sides, tau2)).sum::<f64>() > expected;
    if functions.is_empty() || !is_too_small(0.0) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 100.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if is_too_small(middle) { low = middle } else { high = middle }
    }
    high
}

/// By what factor `tau2` enlarges the variance of the difference of both shares.
fn inflation(sides: &[Runs; 2], tau2: f64) -> f64 {
    let variances = sides.iter().map(|runs| {
        let (part, whole) = sum(runs);
        let whole = whole.max(1.0);
        // A function without samples on one side has the variance of about one sample there.
        let share = (part.max(1.0) / whole).min(1.0);
        let squares: f64 = runs.iter().map(|(_, n)| n * n).sum();
        (share * (1.0 - share) / whole, tau2 * share * share * squares / (whole * whole))
    });
    let (chance, more) = variances.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    if chance > 0.0 { 1.0 + more / chance } else { 1.0 }
}

/// The scale of the factors of all functions, and its degrees of freedom.
fn prior(factors: &[f64], freedom: f64) -> (f64, f64) {
    let mean = factors.iter().sum::<f64>() / factors.len() as f64;
    if factors.len() < MIN_FUNCTIONS {
        return (mean, 0.0);
    }
    // A factor of 0 (equal runs) has no logarithm.
    let half = freedom / 2.0;
    let logs = factors.iter().map(|factor| factor.max(1e-6).ln() - digamma(half) + half.ln());
    let logs: Vec<f64> = logs.collect();
    let count = logs.len() as f64;
    let middle = logs.iter().sum::<f64>() / count;
    let variance = logs.iter().map(|log| (log - middle).powi(2)).sum::<f64>() / (count - 1.0);
    let rest = variance - trigamma(half);
    if rest <= 0.0 {
        return (mean, f64::INFINITY);
    }
    let prior_half = inverse_trigamma(rest);
    ((middle + digamma(prior_half) - prior_half.ln()).exp(), 2.0 * prior_half)
}

/// The derivative of the digamma function: its recurrence up to 10, then its asymptotic series.
fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 10.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    sum + 1.0 / x + y / 2.0 + y / x * (1.0 / 6.0 - y * (1.0 / 30.0 - y * (1.0 / 42.0 - y / 30.0)))
}

/// The argument at which the trigamma function has this value. There is only one, because the function always
/// decreases.
fn inverse_trigamma(value: f64) -> f64 {
    let (mut low, mut high) = (1e-3f64, 1e6f64);
    for _ in 0..200 {
        let middle = (low * high).sqrt();
        if trigamma(middle) > value { low = middle } else { high = middle }
    }
    (low * high).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trigamma_has_its_known_values() {
        let pi2 = std::f64::consts::PI.powi(2);
        for (x, value) in [(1.0, pi2 / 6.0), (0.5, pi2 / 2.0), (2.0, pi2 / 6.0 - 1.0)] {
            assert!((trigamma(x) - value).abs() < 1e-10, "{x}");
            assert!((inverse_trigamma(value) - x).abs() < 1e-8, "{x}");
        }
    }

    #[test]
    fn the_tails_of_f_and_chi_squared_are_those_of_the_tables() {
        for (x, freedom, prior, chance) in
            [(2.866, 4.0, 20.0, 0.05), (4.431, 4.0, 20.0, 0.01), (9.488 / 4.0, 4.0, f64::INFINITY, 0.05)]
        {
            assert!((exceeds(x, freedom, prior) - chance).abs() < 1e-4, "{x} {freedom} {prior}");
        }
    }

    #[test]
    fn one_run_on_each_side_has_the_spread_of_chance() {
        assert_eq!(spreads(&[[vec![(5, 100.0)], vec![(9, 100.0)]]]), [Spread::default()]);
        assert_eq!(spreads(&[]), []);
    }

    #[test]
    fn equal_runs_are_not_taken_for_better_than_chance() {
        let runs = || vec![(50, 1000.0), (50, 1000.0), (50, 1000.0)];
        for functions in [1, 20] {
            let spreads = spreads(&vec![[runs(), runs()]; functions]);
            assert!(spreads.iter().all(|spread| spread.factor == 1.0 && spread.freedom >= 4.0), "{spreads:?}");
        }
    }

    #[test]
    fn the_common_part_and_that_of_one_function_are_told_apart() {
        // Three runs with shares of 10, 20 and 10 % vary by 43 % of their mean. 1000 samples vary by 8 %.
        let wild = || vec![(100, 1000.0), (200, 1000.0), (100, 1000.0)];
        let calm = || vec![(92, 1000.0), (108, 1000.0), (100, 1000.0)];
        let alike = vec![[wild(), wild()]; 30];
        let tau = common(&alike.iter().collect::<Vec<_>>(), 4.0).sqrt();
        assert!((0.35..0.5).contains(&tau), "{tau}");
        let mut functions = vec![[calm(), calm()]; 60];
        functions.push([wild(), wild()]);
        let spreads = spreads(&functions);
        assert!(spreads[60].factor > 10.0 && spreads[60].freedom == 4.0, "{:?}", spreads[60]);
        assert!(spreads[0].factor < 1.5 && spreads[0].freedom > 100.0, "{:?}", spreads[0]);
    }
}
