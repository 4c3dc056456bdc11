//! Tests the comparison of profiles by simulation: how often it reports a change by chance, and how often it finds a
//! real change.
//!
//! Profiles are drawn from a distribution of 300 functions with weights of 1/n, which is typical of profiles. Self and
//! total time are compared, in 600 rows or more. The seed is fixed, so that a failure can be reproduced.
#![forbid(unsafe_code)]

mod random;

use kprof_fold::diff::claim::Claim;
use kprof_fold::diff::{Counts, Diff, Kind, Method, Run, compare};
use random::Random;

const FUNCTIONS: usize = 300;
const SAMPLES: u64 = 5_000;

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
        *counts.entry((Kind::SelfSamples, format!("f{function}"))).or_default() += 1;
        *counts.entry((Kind::Total, format!("f{function}"))).or_default() += 1;
        *counts.entry((Kind::Total, format!("caller{}", function % 10))).or_default() += 1;
    }
    counts
}

fn run(counts: &Counts, samples: u64) -> Run {
    Run { counts: counts.clone(), samples, ..Run::default() }
}

/// Compares one run with one run.
fn compare_counts(old: &Counts, old_samples: u64, new: &Counts, new_samples: u64, confidence: f64) -> Diff {
    let method = Method { confidence, is_same_work: false };
    compare(&[run(old, old_samples)], &[run(new, new_samples)], method)
}

/// Compares one run with one run of the same work.
fn compare_work(old: &Counts, old_samples: u64, new: &Counts, new_samples: u64, confidence: f64) -> Diff {
    let method = Method { confidence, is_same_work: true };
    compare(&[run(old, old_samples)], &[run(new, new_samples)], method)
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
fn runs_of_very_unequal_lengths_raise_no_more_alarms_than_promised() {
    let (mut random, weights) = (Random(11), weights());
    let runs = if cfg!(debug_assertions) { 100 } else { 500 };
    for (short, long) in [(30, 3_000), (300, 30_000), (20, 20_000), (2_155, 64_650)] {
        let false_alarms = (0..runs)
            .filter(|run| {
                let (old, new) = (draw(&mut random, &weights, short), draw(&mut random, &weights, long));
                // Either side may be the short one.
                match run % 2 {
                    0 => alarms(&compare_counts(&old, short, &new, long, 0.99)),
                    _ => alarms(&compare_counts(&new, long, &old, short, 0.99)),
                }
            })
            .count();
        println!("{short} and {long} samples: {false_alarms} false alarms in {runs} runs");
        assert!(false_alarms * 50 <= runs, "{short} and {long} samples: {false_alarms} of {runs} runs");
    }
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
            f4(Kind::SelfSamples).change.low > 0.0 && f4(Kind::Total).change.low > 0.0
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
            let alone: Counts =
                [((Kind::SelfSamples, "f0".to_owned()), old[&(Kind::SelfSamples, "f0".to_owned())])].into();
            let alone_new: Counts =
                [((Kind::SelfSamples, "f0".to_owned()), new[&(Kind::SelfSamples, "f0".to_owned())])].into();
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
        let own = diff.rows.iter().filter(|row| row.kind == Kind::SelfSamples && row.is_significant());
        let names: Vec<&str> = own.map(|row| row.name.as_str()).collect();
        found += usize::from(names.contains(&"f0"));
        others += usize::from(names.iter().any(|name| *name != "f0"));
    }
    assert!(found * 100 >= runs * 95, "found in {found} of {runs} runs");
    assert!(others * 100 <= runs, "another function blamed in {others} of {runs} runs");
}

/// A change that the table of hundreds of rows nearly always misses is found by a claim, which is tested for itself.
#[test]
fn a_claim_finds_three_percent_points_that_the_table_misses() {
    let (mut random, before) = (Random(5), weights());
    let mut after = before.clone();
    after[0] = (before[0] + 0.03) / (1.0 - 0.03 - before[0]) * (1.0 - before[0]);
    let (runs, samples) = (100, 2_900);
    let claim: Claim = "self f0 > +0%".parse().expect("is a claim");
    let (mut by_table, mut by_claim, mut false_alarms) = (0, 0, 0);
    let is_held = |diff: &Diff| {
        let rows = claim.rows(diff, &[]).expect("is there");
        claim.test(&rows, 0.99).iter().any(|tested| tested.holds)
    };
    for _ in 0..runs {
        let (old, new) = (draw(&mut random, &before, samples), draw(&mut random, &after, samples));
        let diff = compare_counts(&old, samples, &new, samples, 0.99);
        by_table += usize::from(diff.rows.iter().any(|row| row.name == "f0" && row.change.low > 0.0));
        by_claim += usize::from(is_held(&diff));
        let same = draw(&mut random, &before, samples);
        false_alarms += usize::from(is_held(&compare_counts(&old, samples, &same, samples, 0.99)));
    }
    println!("planted +3 %: the table found {by_table}, the claim {by_claim} of {runs}; {false_alarms} false alarms");
    assert!(by_claim >= 65 && by_table <= 30, "claim {by_claim}, table {by_table} of {runs}");
    assert!(false_alarms <= 4, "{false_alarms} of {runs}");
}

/// The standard normal distribution (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let (radius, angle) = ((-2.0 * (1.0 - random.unit()).ln()).sqrt(), std::f64::consts::TAU * random.unit());
    radius * angle.cos()
}

/// Runs whose shares differ from each other by more than chance: each weight by some percent.
fn differing_runs(random: &mut Random, weights: &[f64], count: usize, spread: f64) -> Vec<Run> {
    let one = |_| {
        let weights: Vec<f64> = weights.iter().map(|weight| weight * (spread * normal(random)).exp()).collect();
        run(&draw(random, &weights, SAMPLES), SAMPLES)
    };
    (0..count).map(one).collect()
}

#[test]
fn runs_that_differ_by_more_than_chance_raise_no_more_alarms_than_promised() {
    let (mut random, weights) = (Random(6), weights());
    let pairs = if cfg!(debug_assertions) { 20 } else { 1000 };
    let method = Method { confidence: 0.99, is_same_work: false };
    for (runs, spread) in [(3, 0.0), (3, 0.15), (5, 0.3)] {
        let (mut alarms_with, mut alarms_without) = (0, 0);
        for _ in 0..pairs {
            let [old, new] = [(); 2].map(|()| differing_runs(&mut random, &weights, runs, spread));
            alarms_with += usize::from(alarms(&compare(&old, &new, method)));
            alarms_without += usize::from(alarms(&compare(&old[..1], &new[..1], method)));
        }
        println!("{runs} runs, spread {spread}: {alarms_with} alarms in {pairs} pairs, {alarms_without} with one run");
        assert!(
            alarms_with * 1000 <= 19 * pairs || (cfg!(debug_assertions) && alarms_with <= 2),
            "{runs} runs, spread {spread}: {alarms_with} of {pairs}"
        );
        // This test can fail: a comparison of single runs, which does not know the spread, reports a change.
        assert!(spread == 0.0 || alarms_without * 10 > pairs, "{alarms_without} of {pairs}");
    }
}

#[test]
fn a_change_is_found_although_the_runs_differ() {
    let (mut random, before) = (Random(7), weights());
    let mut after = before.clone();
    after[2] *= 2.0;
    let pairs = if cfg!(debug_assertions) { 20 } else { 300 };
    let method = Method { confidence: 0.99, is_same_work: false };
    let found = (0..pairs).filter(|_| {
        let [old, new] = [&before, &after].map(|weights| differing_runs(&mut random, weights, 4, 0.1));
        let diff = compare(&old, &new, method);
        diff.rows.iter().any(|row| row.name == "f2" && row.kind == Kind::SelfSamples && row.change.low > 0.0)
    });
    let found = found.count();
    println!("{found} of {pairs} found");
    assert!(found * 100 >= pairs * 90, "{found} of {pairs}");
}

/// Bootstrap of a real profile: both sides are drawn, with replacement, from the samples of one recording.
#[test]
fn bootstrap_pairs_of_a_real_profile_raise_alarms_in_at_most_one_percent() {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/redox");
    let file = |name: &str| data.join(name).display().to_string();
    let mut fold = std::process::Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(["-q", &file("profiling.txt"), &file("syms.txt")]).output().expect("kprof-fold runs");
    let text = String::from_utf8(done.stdout).expect("is text");
    let mut samples: Vec<Vec<&str>> = Vec::new();
    for line in text.lines() {
        let (stack, count) = line.rsplit_once(' ').expect("is a folded line");
        let count: usize = count.parse().expect("is a number");
        samples.extend(std::iter::repeat_n(stack.split(';').collect::<Vec<_>>(), count));
    }
    assert!(samples.len() > 1000, "{}", samples.len());
    let mut random = Random(8);
    let mut drawn = || {
        let mut counts = Counts::new();
        for _ in 0..samples.len() {
            let stack = &samples[(random.unit() * samples.len() as f64) as usize];
            let last = stack.last().expect("has a frame");
            *counts.entry((Kind::SelfSamples, (*last).to_owned())).or_default() += 1;
            let names: std::collections::BTreeSet<&&str> = stack.iter().collect();
            names.into_iter().for_each(|name| *counts.entry((Kind::Total, (*name).to_owned())).or_default() += 1);
        }
        run(&counts, samples.len() as u64)
    };
    let pairs = if cfg!(debug_assertions) { 20 } else { 1000 };
    let method = Method { confidence: 0.99, is_same_work: false };
    let found = (0..pairs).filter(|_| alarms(&compare(&[drawn()], &[drawn()], method))).count();
    println!("{found} alarms in {pairs} bootstrap pairs");
    assert!(found * 1000 <= 19 * pairs || (cfg!(debug_assertions) && found <= 2), "{found} of {pairs}");
}

/// Samples that come in bursts: after a sample the function stays the same, so that a burst has `length` samples on
/// average. Only with blocks of time does the run say so.
fn in_bursts(random: &mut Random, weights: &[f64], samples: u64, length: f64, with_blocks: bool) -> Run {
    const BLOCKS: u64 = 24;
    let (mut whole, mut blocks, mut left) = (Counts::new(), Vec::new(), (Counts::new(), 0u64));
    let mut burst = draw(random, weights, 1);
    for at in 0..samples {
        if random.unit() * length < 1.0 {
            burst = draw(random, weights, 1);
        }
        for (key, count) in &burst {
            *whole.entry(key.clone()).or_default() += count;
            *left.0.entry(key.clone()).or_default() += count;
        }
        left.1 += 1;
        if (at + 1) * BLOCKS / samples > at * BLOCKS / samples {
            blocks.push(std::mem::take(&mut left));
        }
    }
    Run { counts: whole, samples, blocks: if with_blocks { blocks } else { Vec::new() }, ..Run::default() }
}

#[test]
fn samples_in_bursts_raise_few_alarms_because_the_blocks_of_a_run_show_them() {
    let (mut random, weights) = (Random(12), weights());
    let pairs = if cfg!(debug_assertions) { 40 } else { 1000 };
    let method = Method { confidence: 0.99, is_same_work: false };
    let claim: Claim = "self f0 > +0%".parse().expect("is a claim");
    let holds = |diff: &Diff| {
        let rows = claim.rows(diff, &[]).expect("is there");
        claim.test(&rows, 0.99).iter().any(|tested| tested.holds)
    };
    for length in [1.0, 5.0, 20.0] {
        let mut found = [[0; 2]; 2];
        for _ in 0..pairs {
            for (with_blocks, found) in [false, true].into_iter().zip(&mut found) {
                let [old, new] = [(); 2].map(|()| in_bursts(&mut random, &weights, 3_000, length, with_blocks));
                let diff = compare(&[old], &[new], method);
                found[0] += usize::from(alarms(&diff));
                found[1] += usize::from(holds(&diff));
            }
        }
        let [[tables, claims], [with_tables, with_claims]] = found;
        println!(
            "bursts of {length}: {tables} of {pairs} tables and {claims} claims alarm without blocks, {with_tables} \
             and {with_claims} with them"
        );
        assert!(with_tables * 100 <= 5 * pairs && with_claims * 100 <= 5 * pairs, "bursts of {length}: {found:?}");
        // This test can fail: without blocks, bursts are taken for changes.
        assert!(length < 20.0 || tables * 2 > pairs, "{found:?}");
    }
}

/// The same work, phase by phase: its blocks are unlike each other in both runs alike, and hide no change.
#[test]
fn phases_of_the_same_work_do_not_hide_a_slower_function() {
    let phases = |slower: f64| {
        let count = |phase: usize| if phase == 7 { (1000.0 * slower) as u64 } else { 1000 };
        let block = |phase| (Counts::from([((Kind::SelfSamples, format!("f{phase}")), count(phase))]), count(phase));
        let blocks: Vec<(Counts, u64)> = (0..24).map(block).collect();
        let counts = blocks.iter().flat_map(|(counts, _)| counts.clone()).collect();
        Run { counts, samples: (0..24).map(count).sum(), blocks, ..Run::default() }
    };
    let changed = |is_same_work| {
        let diff = compare(&[phases(1.0)], &[phases(1.25)], Method { confidence: 0.99, is_same_work });
        diff.rows.into_iter().filter(|row| row.is_significant()).map(|row| row.name).collect::<Vec<_>>()
    };
    assert_eq!(changed(true), ["f7"]);
    // As shares of a run, of which only one is there, it could be chance.
    assert!(changed(false).is_empty());
}
