//! Tests the comparison of profiles by simulation: how often it reports a change by chance, and how often it finds a
//! real change.
//!
//! Profiles are drawn from a distribution of 300 functions with weights of 1/n, which is typical of profiles. Self and
//! total time are compared, in 600 rows or more. The seed is fixed, so that a failure can be reproduced.
#![forbid(unsafe_code)]

use kprof_fold::diff::{Counts, Diff, Kind, compare_counts, compare_work};

const FUNCTIONS: usize = 300;
const SAMPLES: u64 = 5_000;

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn weights() -> Vec<f64> {
    let weights: Vec<f64> = (0..FUNCTIONS).map(|number| 1.0 / (number + 1) as f64).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Draws a profile: each sample is in one function, which was called from one of ten others.
fn draw(random: &mut Random, weights: &[f64], samples: u64) -> Counts {
    let mut sums = vec![0.0; weights.len()];
    let mut sum = 0.0;
    for (place, weight) in sums.iter_mut().zip(weights) {
        sum += weight;
        *place = sum;
    }
    let mut counts = Counts::new();
    for _ in 0..samples {
        let at = random.unit() * sum;
        let function = sums.partition_point(|end| *end <= at).min(weights.len() - 1);
        *counts.entry((Kind::Own, format!("f{function}"))).or_default() += 1;
        *counts.entry((Kind::Total, format!("f{function}"))).or_default() += 1;
        *counts.entry((Kind::Total, format!("caller{}", function % 10))).or_default() += 1;
    }
    counts
}

fn alarms(diff: &Diff) -> bool {
    diff.rows.iter().any(|row| row.is_significant())
}

#[test]
fn the_same_behaviour_raises_an_alarm_in_at_most_one_percent_of_runs() {
    let (mut random, weights) = (Random(1), weights());
    let runs = if cfg!(debug_assertions) { 200 } else { 1000 };
    // The two profiles differ in length, so shares are compared instead of counts.
    let false_alarms = (0..runs)
        .filter(|run| {
            let longer = SAMPLES * (1 + run % 3);
            let (old, new) = (draw(&mut random, &weights, SAMPLES), draw(&mut random, &weights, longer));
            alarms(&compare_counts(&old, SAMPLES, &new, longer, 0.99))
        })
        .count();
    assert!(false_alarms * 100 <= runs as usize, "{false_alarms} of {runs} runs");
    println!("{false_alarms} false alarms in {runs} runs");
}

#[test]
fn a_change_of_three_percent_points_is_found_in_at_least_95_percent_of_runs() {
    let (mut random, before) = (Random(2), weights());
    // f4 has 3.2 % before and 6.2 % after; the shares of all others shrink by the same factor.
    let mut after = before.clone();
    after[4] = (before[4] + 0.03) / (1.0 - 0.03 - before[4]) * (1.0 - before[4]);
    let runs = if cfg!(debug_assertions) { 60 } else { 300 };
    let found = (0..runs)
        .filter(|_| {
            let (old, new) = (draw(&mut random, &before, SAMPLES), draw(&mut random, &after, SAMPLES));
            let diff = compare_counts(&old, SAMPLES, &new, SAMPLES, 0.99);
            let f4 = |kind| diff.rows.iter().find(|row| row.kind == kind && row.name == "f4").expect("is compared");
            f4(Kind::Own).change.low > 0.0 && f4(Kind::Total).change.low > 0.0
        })
        .count();
    assert!(found * 100 >= runs * 95, "{found} of {runs} runs");
    println!("{found} of {runs} changes found");
}

#[test]
fn the_interval_holds_the_true_change() {
    let (mut random, weights) = (Random(3), weights());
    let runs = if cfg!(debug_assertions) { 60 } else { 300 };
    let held = (0..runs)
        .filter(|_| {
            let (old, new) = (draw(&mut random, &weights, SAMPLES), draw(&mut random, &weights, SAMPLES));
            let diff = compare_counts(&old, SAMPLES, &new, SAMPLES, 0.5);
            // A single row, at a confidence that is low enough to give some false alarms, which must be seen.
            let alone: Counts = [((Kind::Own, "f0".to_owned()), old[&(Kind::Own, "f0".to_owned())])].into();
            let alone_new: Counts = [((Kind::Own, "f0".to_owned()), new[&(Kind::Own, "f0".to_owned())])].into();
            assert!(!diff.rows.is_empty());
            let row = &compare_counts(&alone, SAMPLES, &alone_new, SAMPLES, 0.5).rows[0];
            !row.is_significant()
        })
        .count();
    assert!(
        (0.4..0.6).contains(&(held as f64 / runs as f64)),
        "{held} of {runs}: a 50 % interval must miss half the time"
    );
}

#[test]
fn of_the_same_work_only_the_slower_function_changes() {
    let (mut random, before) = (Random(4), weights());
    let sum: f64 = before.iter().sum();
    let runs = if cfg!(debug_assertions) { 60 } else { 300 };
    let samples = 10 * SAMPLES;
    let (mut found, mut others) = (0, 0);
    for _ in 0..runs {
        // f0 has a sixth of the time and now takes a fifth longer. All others take as long as before.
        let mut after = before.clone();
        after[0] *= 1.2;
        let longer = (samples as f64 * after.iter().sum::<f64>() / sum) as u64;
        let (old, new) = (draw(&mut random, &before, samples), draw(&mut random, &after, longer));
        let diff = compare_work(&old, samples, &new, longer, 0.99);
        let own = diff.rows.iter().filter(|row| row.kind == Kind::Own && row.is_significant());
        let names: Vec<&str> = own.map(|row| row.name.as_str()).collect();
        found += usize::from(names.contains(&"f0"));
        others += usize::from(names.iter().any(|name| *name != "f0"));
    }
    assert!(found * 100 >= runs * 95, "found in {found} of {runs} runs");
    assert!(others * 100 <= runs, "another function blamed in {others} of {runs} runs");
}
