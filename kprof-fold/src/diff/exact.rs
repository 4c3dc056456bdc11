//! The exact test of a change in small counts. Stage: diff.
//!
//! In: samples of a function and all samples, on both sides. Out: the probability that chance alone divides the
//! function's samples among the sides like this, or less evenly. If the share is the same on both sides, then of all
//! ways to choose the function's samples from those of both sides each is as probable as any other, so the number on
//! one side has the hypergeometric distribution (Fisher's exact test; Agresti, Categorical Data Analysis, 2013, section
//! 3.5). No approximation is in this, so it also holds where one side has much fewer samples than the other one.

use statrs::function::gamma::ln_gamma;

/// Probabilities that differ by this factor are the same number, computed in different ways.
const SAME: f64 = 1e-7;

/// The probabilities of chance alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exact {
    /// Of a share that grew as much or more.
    pub grew: f64,
    /// Of a share that shrank as much or more.
    pub shrank: f64,
    /// Of a division that is as improbable or more, in either direction.
    pub changed: f64,
}

/// Tests (samples of the function, all samples) of OLD and NEW.
pub fn test((old, old_all): (u64, f64), (new, new_all): (u64, f64)) -> Exact {
    let [old_all, new_all] = [old_all, new_all].map(|all| all.round().max(0.0) as u64);
    let (old_all, new_all) = (old_all.max(old), new_all.max(new));
    let both = old + new;
    let (first, last) = (both.saturating_sub(old_all), both.min(new_all));
    let whole = choose(old_all + new_all, both);
    let probability = |k: u64| (choose(new_all, k) + choose(old_all, both - k) - whole).exp();
    // The sum of the probabilities from `k` on, away from the middle: each is smaller than the one before it.
    let tail = |from: Option<u64>, step: &dyn Fn(u64) -> Option<u64>| {
        let (mut sum, mut next) = (0.0f64, from);
        while let Some(k) = next {
            let one = probability(k);
            sum += one;
            next = step(k).filter(|_| one > sum * f64::EPSILON);
        }
        sum.min(1.0)
    };
    let up = |k: u64| (k < last).then(|| k + 1);
    let down = |k: u64| (k > first).then(|| k - 1);
    let middle = ((both + 1) as f64 * (new_all + 1) as f64 / (old_all + new_all + 2) as f64).floor() as u64;
    let middle = middle.clamp(first, last);
    let beyond = probability(new) * (1.0 + SAME);
    let (grew, shrank) = match new >= middle {
        true => (tail(Some(new), &up), 1.0 - tail(up(new), &up)),
        false => (1.0 - tail(down(new), &down), tail(Some(new), &down)),
    };
    // The first number on the other side of the middle that is as improbable.
    let opposite = if new >= middle {
        let (mut low, mut high) = (first, middle.min(new.saturating_sub(1)).max(first));
        while low < high {
            let at = low + (high - low).div_ceil(2);
            if probability(at) <= beyond { low = at } else { high = at - 1 }
        }
        tail(Some(low).filter(|at| *at < new && probability(*at) <= beyond), &down)
    } else {
        let (mut low, mut high) = (middle, last);
        while low < high {
            let at = low + (high - low) / 2;
            if probability(at) <= beyond { high = at } else { low = at + 1 }
        }
        tail(Some(low).filter(|at| *at > new && probability(*at) <= beyond), &up)
    };
    let own = if new >= middle { grew } else { shrank };
    Exact { grew, shrank, changed: (own + opposite).min(1.0) }
}

/// The logarithm of the number of ways to choose `k` of `n`.
fn choose(n: u64, k: u64) -> f64 {
    let of = |number: u64| ln_gamma(number as f64 + 1.0);
    of(n) - of(k) - of(n - k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probabilities_are_those_of_tables() {
        // One sample of thirty beside none of three thousand: 30 of 3030 ways.
        let one = test((1, 30.0), (0, 3000.0));
        assert!((one.changed - 30.0 / 3030.0).abs() < 1e-9 && (one.shrank - one.changed).abs() < 1e-9, "{one:?}");
        assert!((one.grew - 1.0).abs() < 1e-9, "{one:?}");
        // Fisher's tea: three of four cups of each kind.
        let tea = test((1, 4.0), (3, 4.0));
        assert!((tea.grew - 17.0 / 70.0).abs() < 1e-9 && (tea.changed - 34.0 / 70.0).abs() < 1e-9, "{tea:?}");
        // Agresti's Table 3.6 the other way round, and nothing at all.
        assert!((test((3, 4.0), (1, 4.0)).shrank - 17.0 / 70.0).abs() < 1e-9);
        assert_eq!(test((0, 0.0), (0, 0.0)).changed, 1.0);
        assert_eq!(test((0, 10.0), (0, 0.0)).changed, 1.0);
        assert!((test((500, 1000.0), (500, 1000.0)).changed - 1.0).abs() < 1e-6);
    }

    #[test]
    fn all_ways_together_are_certain_and_each_test_keeps_its_promise() {
        // Over all divisions of twelve samples, a p-value of at most a is no more frequent than a.
        for (old, new) in [(30u64, 3000u64), (300, 300), (20, 15)] {
            let both = 12u64;
            let ways: Vec<(f64, f64)> = (0..=both)
                .map(|k| {
                    let probability = (choose(new, k) + choose(old, both - k) - choose(old + new, both)).exp();
                    (probability, test((both - k, old as f64), (k, new as f64)).changed)
                })
                .collect();
            assert!((ways.iter().map(|way| way.0).sum::<f64>() - 1.0).abs() < 1e-9);
            for limit in [0.5, 0.1, 0.01, 1e-4] {
                let found: f64 = ways.iter().filter(|way| way.1 <= limit).map(|way| way.0).sum();
                assert!(found <= limit * (1.0 + 1e-6), "{old} {new} {limit}: {found}");
            }
        }
    }
}
