//! Tests the aliasing check by simulation: how often it raises a false alarm, and whether it finds real aliasing.

use kprof_fold::aliasing::{Verdict, check};

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ z >> 31) * u128::from(end)) >> 64) as u64
    }
}

const PERIOD: u64 = 1_000_000;
const SAMPLES: usize = 5_000;
const RUNS: usize = if cfg!(debug_assertions) { 40 } else { 1000 };

/// Times of ticks with random intervals of +-25 %.
fn random_times(random: &mut Random) -> Vec<u64> {
    let mut tsc = 0;
    let mut next = || {
        tsc += PERIOD * 3 / 4 + random.below(PERIOD / 2);
        tsc
    };
    (0..SAMPLES).map(|_| next()).collect()
}

/// Times of ticks with fixed intervals and a little noise, as from a real machine.
fn fixed_times(random: &mut Random) -> Vec<u64> {
    (0..SAMPLES as u64).map(|tick| tick * PERIOD + random.below(PERIOD / 500)).collect()
}

/// The place that is running at a time: a loop over blocks that take 1, 2, 3, ... parts of its length.
fn place_in_loop(tsc: u64, loop_length: u64) -> u64 {
    let mut phase = tsc % loop_length * 36 / loop_length;
    let mut block = 0;
    while phase > block {
        phase -= block + 1;
        block += 1;
    }
    0xffff_ffff_8000_0000 + block * 4096
}

fn sampled(times: &[u64], place: impl FnMut(u64) -> u64) -> Verdict {
    let mut place = place;
    check(&[times.iter().map(|tsc| (*tsc, place(*tsc))).collect()])
}

fn is_found(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::InStep { .. } | Verdict::Rhythm { .. } | Verdict::Avoiding { .. })
}

fn alarms(seed: u64, mut run: impl FnMut(&mut Random) -> Verdict) -> usize {
    let mut random = Random(seed);
    (0..RUNS).filter(|_| is_found(&run(&mut random))).count()
}

#[test]
fn work_without_a_rhythm_raises_an_alarm_in_at_most_one_run_of_a_thousand() {
    // Functions with weights of 1/n.
    let skewed = |random: &mut Random| 300 / (1 + random.below(300)) * 4096;
    let by_chance = alarms(1, |random| {
        let times = random_times(random);
        sampled(&times, |_| skewed(random))
    });
    let fixed = alarms(2, |random| {
        let times = fixed_times(random);
        sampled(&times, |_| skewed(random))
    });
    // Work that stays at a place for many ticks and then changes to another one.
    let goes_on = |random: &mut Random, times: &[u64]| {
        let mut now = 0;
        sampled(times, |_| {
            if random.below(30) == 0 {
                now = skewed(random);
            }
            now
        })
    };
    let runs = alarms(3, |random| {
        let times = random_times(random);
        goes_on(random, &times)
    });
    let fixed_runs = alarms(7, |random| {
        let times = fixed_times(random);
        goes_on(random, &times)
    });
    println!("alarms in {RUNS} runs: {by_chance}, {fixed}, {runs}, {fixed_runs}");
    let all = [by_chance, fixed, runs, fixed_runs];
    assert!(all.iter().all(|alarms| alarms * 1000 <= RUNS), "{all:?}");
}

#[test]
fn work_with_a_rhythm_raises_none_where_intervals_are_random() {
    let lengths = [PERIOD / 7, PERIOD / 2, PERIOD, PERIOD * 3 / 2, PERIOD * 20];
    let alarms = alarms(4, |random| {
        let times = random_times(random);
        let length = lengths[random.below(lengths.len() as u64) as usize];
        sampled(&times, |tsc| place_in_loop(tsc, length))
    });
    assert!(alarms * 500 <= RUNS, "{alarms} of {RUNS}");
}

#[test]
fn a_sampler_in_step_with_the_work_is_caught() {
    let mut random = Random(5);
    // The work's period is n/m of the ticks' period, so every m-th tick sees the same phase.
    for (n, m) in [(1, 2), (3, 2), (1, 3), (2, 3), (4, 3), (1, 4), (3, 4), (2, 5), (5, 6), (3, 7), (7, 8)] {
        let times = fixed_times(&mut random);
        let length = PERIOD * m / n;
        let verdict = sampled(&times, |tsc| place_in_loop(tsc, length));
        assert!(
            matches!(verdict, Verdict::InStep { parts } if parts % m == 0 || m % parts == 0),
            "{n}/{m}: {verdict:?}"
        );
    }
    // The work's period is slightly different from a multiple, so each tick sees the work a little later than the tick
    // before.
    for (times, thousandths) in [(1, 31), (2, 33), (4, 120), (4, 32), (20, 77), (1, 239), (3, 333)] {
        let times_of_ticks = fixed_times(&mut random);
        let length = PERIOD * 1000 / (1000 * times + thousandths);
        let verdict = sampled(&times_of_ticks, |tsc| place_in_loop(tsc, length));
        assert!(is_found(&verdict), "{times}.{thousandths:03}: {verdict:?}");
    }
    // If each tick sees the same phase, all parts of the samples agree. The fixed intervals are then reported.
    for times in [1, 2, 5, 100] {
        let ticks = fixed_times(&mut random);
        let verdict = sampled(&ticks, |tsc| place_in_loop(tsc + PERIOD / 3, PERIOD / times));
        assert!(matches!(verdict, Verdict::FixedInterval { part } if part > 0.99), "{times}: {verdict:?}");
    }
}

#[test]
fn ticks_that_were_left_out_change_nothing() {
    let mut random = Random(6);
    let mut times = fixed_times(&mut random);
    times.retain(|_| random.below(3) > 0);
    assert!(matches!(sampled(&times, |tsc| place_in_loop(tsc, PERIOD * 3)), Verdict::InStep { parts: 3 | 6 }));
    assert!(matches!(sampled(&times, |_| random.below(9) << 12), Verdict::FixedInterval { .. }));
    assert_eq!(sampled(&times[..100], |_| 0), Verdict::TooFew);
}
