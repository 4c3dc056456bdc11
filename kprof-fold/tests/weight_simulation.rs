//! Tests the comparison of weights by simulation: how often its intervals hold the true change of a function, when hits
//! are chosen by weight, as one of N, or all of them.
//!
//! The hits of two profiles are fixed, on two CPUs, in functions whose hits have very different weights. Which of them
//! are recorded is drawn again for each seed, as the kernel does it. The file is read, folded and compared as `diff
//! --event` does it. An interval for a chance of 5 % must hold the true change in about 95 % of seeds. The seeds are
//! fixed, so that a failure can be reproduced.
#![forbid(unsafe_code)]

mod random;

use kprof_fold::diff::significance::Interval;
use kprof_fold::diff::weights::{Run, compare};
use kprof_fold::diff::{self, Diff, Kind, Method};
use kprof_fold::events::EventTally;
use kprof_fold::events::parts::Part;
use kprof_fold::fold::Folder;
use kprof_fold::points::Point;
use kprof_fold::problems::Problems;
use kprof_fold::read::{self, Source};
use kprof_fold::select::Select;
use kprof_fold::symbols::Symbols;
use kprof_fold::tally::By;
use kprof_format::checksum::Crc32;
use random::Random;
use std::fmt::Write as _;

const FUNCTIONS: usize = 6;
const METHOD: Method = Method { confidence: 0.95, is_same_work: false };
const SAME_WORK: Method = Method { is_same_work: true, ..METHOD };

/// A hit: its CPU, its function, its weight.
type Hit = (u32, usize, u64);

/// How the kernel chooses hits.
#[derive(Clone, Copy, Debug)]
enum How {
    All,
    /// Each CPU has its own mean distance.
    ByWeight(u64),
    /// Each CPU records every N-th of its hits.
    Every(u64),
}

/// The hits of a profile. `weights` are the means of the weights of the functions; single weights differ tenfold.
fn hits(random: &mut Random, count: usize, weights: [f64; FUNCTIONS]) -> Vec<Hit> {
    let one = |_| {
        let function = (random.unit() * FUNCTIONS as f64) as usize;
        let weight = weights[function] * 10f64.powf(random.unit() - 0.5);
        (1 + u32::from(random.unit() < 0.3), function, weight.ceil() as u64)
    };
    (0..count).map(one).collect()
}

/// The profile of the hits, as the kernel writes it.
fn profile(random: &mut Random, hits: &[Hit], how: How) -> String {
    let mut accounts = String::new();
    let mut batches = String::new();
    for cpu in [1, 2] {
        let (mut weight, mut all, mut events) = (0, 0, Vec::new());
        let mut next = (random.unit() * 1000.0) as u64;
        for (_, function, one) in hits.iter().filter(|hit| hit.0 == cpu) {
            weight += one;
            all += 1;
            let (is_chosen, state) = match how {
                How::All => (true, String::new()),
                How::ByWeight(mean) => {
                    let mean = mean * u64::from(cpu);
                    (random.unit() < -(-(*one as f64) / mean as f64).exp_m1(), format!("~{mean}"))
                }
                How::Every(count) => {
                    next += 1;
                    (next.is_multiple_of(count), format!("x{count}"))
                }
            };
            if is_chosen {
                let address = 0xffff_ffff_8000_2000_u64 + 0x100 * *function as u64 + 0x10;
                events.push(format!("!p t {cpu} {} {one}{state} - {address:x} ffffffff80001020\n", all + 1));
            }
        }
        let (recorded, unsampled) = (events.len(), all - events.len());
        let _ = writeln!(
            accounts,
            "# point-account tsc=9 cpu={cpu} weight={weight} recorded={recorded} filtered={unsampled} \
             unsampled={unsampled} asked-weight={weight} unit=ns point=p"
        );
        let batch = format!("# batch cpu=event-{cpu} from=0 to=60\n{}", events.concat());
        batches += &sealed(&batch, &format!("cpu=event-{cpu} to=60 samples={recorded}"));
    }
    let meta = sealed(&format!("# batch cpu=meta from=0 to=60\n{accounts}"), "cpu=meta to=60");
    format!("# kprof-profile 1\n# boot 7\n{meta}{batches}")
}

/// A batch with its end and its checksum.
fn sealed(batch: &str, end: &str) -> String {
    format!("{batch}# end {end} crc={:08x}\n", Crc32::of_batch("7").with(batch.as_bytes()).end())
}

/// Reads a profile as `diff --event` does. `change` may falsify how exactly its weights are known.
fn run(text: &str, of_hits: bool, change: fn(&mut Part)) -> (Run, diff::Run) {
    let mut nm = "ffffffff80001000 0000000000000100 T kmain\n".to_owned();
    for function in 0..FUNCTIONS {
        let _ =
            writeln!(nm, "{:x} 0000000000000100 t f{function}", 0xffff_ffff_8000_2000_u64 + 0x100 * function as u64);
    }
    let mut problems = Problems::default();
    let symbols = Symbols::read("syms", nm.into_bytes(), std::io::empty(), &mut problems).expect("are symbols");
    let select = Select::default();
    let source = Source { file: "profile", form: None, boot: None, progress: &mut |_| {} };
    let reading = read::read_from(text.as_bytes(), source, EventTally::new(select.clone(), "p", By::None));
    let reading = reading.expect("is a profile");
    let mut point = Point::default();
    reading.profile.boots.iter().for_each(|boot| point.add(&boot.points["p"]));
    let folder = Folder { symbols: &symbols, stacks: &reading.stacks, select: &select, by: By::None, groups: &[] };
    let scaled = reading.consumer.scaled(&point, of_hits);
    assert_eq!((scaled.lost, scaled.only_counted), (0, 0));
    let folded = folder.fold(&scaled.counts);
    let mut parts = reading.consumer.parts(&point, of_hits);
    parts.iter_mut().for_each(change);
    (Run::of(&folded, &parts, &folder, false), diff::Run::of(&folded, false))
}

/// The true change of the share of each function, or of its weight as a part of OLD.
fn truth(old: &[Hit], new: &[Hit], of_hits: bool, is_same_work: bool) -> [f64; FUNCTIONS] {
    let sum = |hits: &[Hit], function: Option<usize>| {
        let of = hits.iter().filter(|hit| function.is_none_or(|function| function == hit.1));
        of.map(|hit| if of_hits { 1.0 } else { hit.2 as f64 }).sum::<f64>()
    };
    let (all_old, all_new) = (sum(old, None), sum(if is_same_work { old } else { new }, None));
    std::array::from_fn(|function| sum(new, Some(function)) / all_new - sum(old, Some(function)) / all_old)
}

/// In which part of `seeds` an interval for a chance of 5 % holds the true change, for each function.
fn coverage(how: How, of_hits: bool, method: Method, change: fn(&mut Part), seeds: u64) -> [f64; FUNCTIONS] {
    let mut random = Random(11);
    let old = hits(&mut random, 3000, [40.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0]);
    let new = hits(&mut random, 4000, [80.0, 100.0, 300.0, 1000.0, 2000.0, 14_000.0]);
    let truth = truth(&old, &new, of_hits, method.is_same_work);
    let mut held = [0.0; FUNCTIONS];
    for seed in 0..seeds {
        let mut random = Random(1000 + seed);
        let [(old, _), (new, _)] = [&old, &new].map(|hits| run(&profile(&mut random, hits, how), of_hits, change));
        let diff = compare(&[old], &[new], ("p", "ns"), method);
        for (function, held) in held.iter_mut().enumerate() {
            let name = format!("f{function}");
            let row = diff.rows.iter().find(|row| row.kind == Kind::SelfSamples && row.name == name);
            // Without a hit on either side there is no row, so nothing false is said.
            let interval = row.map(|row| row.interval(0.05));
            let is_held = |end: Interval| end.low <= truth[function] + 1e-9 && truth[function] <= end.high + 1e-9;
            *held += f64::from(u8::from(interval.is_none_or(is_held)));
        }
    }
    held.map(|held| held / seeds as f64)
}

const SEEDS: u64 = if cfg!(debug_assertions) { 300 } else { 1000 };

#[test]
fn intervals_of_sampled_weights_hold_the_true_change_as_often_as_they_say() {
    let (far, near, every) = (How::ByWeight(100_000), How::ByWeight(20_000), How::Every(10));
    let of_weight = [far, near, every].into_iter().flat_map(|how| [(how, false, METHOD), (how, false, SAME_WORK)]);
    // Hits much lighter than the mean distance are rarely drawn, and then stand for so many that no interval is good.
    let of_hits = [(How::ByWeight(1000), true, METHOD), (every, true, METHOD), (every, true, SAME_WORK)];
    for (how, of_hits, method) in of_weight.chain(of_hits) {
        let held = coverage(how, of_hits, method, |_| {}, SEEDS);
        println!("{how:?}, hits {of_hits}, same work {}: {held:.3?}", method.is_same_work);
        let mean = held.iter().sum::<f64>() / FUNCTIONS as f64;
        assert!(held.iter().all(|held| *held >= 0.9), "{how:?} {of_hits} {method:?}: {held:?}");
        assert!((0.93..0.99).contains(&mean), "{how:?} {of_hits} {method:?}: {held:?}");
    }
}

/// With several runs the runs differ too, even if every hit is recorded. The intervals must hold the change of means.
#[test]
fn runs_that_differ_raise_few_alarms_and_a_change_of_all_runs_is_found() {
    let means = [40.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0];
    let mut random = Random(8);
    let mut side = |factor: f64, count: usize, how: How| -> Vec<Run> {
        let one = |_| {
            let differing =
                means.map(|mean| mean * factor.powf(f64::from(mean == 3000.0)) * (0.8 + 0.4 * random.unit()));
            let hits = hits(&mut random, 400, differing);
            run(&profile(&mut random, &hits, how), false, |_| {}).0
        };
        (0..count).map(one).collect()
    };
    let pairs = SEEDS / 6;
    for (how, method) in [(How::All, METHOD), (How::All, SAME_WORK), (How::ByWeight(3000), METHOD)] {
        let (mut rows, mut alarms, mut found) = (0, 0, 0);
        for _ in 0..pairs {
            let [old, new, grown] = [1.0, 1.0, 6.0].map(|factor| side(factor, 4, how));
            let own = |diff: &Diff| {
                let own = diff.rows.iter().filter(|row| row.kind == Kind::SelfSamples);
                own.map(|row| (row.name.clone(), row.interval(0.05))).collect::<Vec<_>>()
            };
            let same = own(&compare(&old, &new, ("p", "ns"), method));
            rows += same.len();
            alarms += same.iter().filter(|(_, change)| change.low > 0.0 || change.high < 0.0).count();
            let more = own(&compare(&old, &grown, ("p", "ns"), method));
            found += usize::from(more.iter().any(|(name, change)| name == "f4" && change.low > 0.0));
        }
        println!("{how:?}, same work {}: {alarms} alarms of {rows}, {found} of {pairs} found", method.is_same_work);
        assert!(alarms * 100 <= 8 * rows && found as u64 * 100 >= 95 * pairs, "{how:?}: {alarms} of {rows}, {found}");
        assert!(alarms > 0, "{how:?}: intervals that are never wrong are too wide");
    }
}

#[test]
fn of_nothing_no_share_is_known_and_every_number_stays_in_its_bounds() {
    let mut random = Random(9);
    let some = hits(&mut random, 100, [100.0; FUNCTIONS]);
    let sides = [(&some[..], &[][..]), (&[], &some), (&[], &[]), (&some, &some)];
    for ((old, new), how) in sides.into_iter().flat_map(|sides| [(sides, How::All), (sides, How::Every(10))]) {
        for (lost, method) in [(0, METHOD), (50_000, METHOD), (0, SAME_WORK), (50_000, SAME_WORK)] {
            let [old, new] = [old, new].map(|hits| {
                let mut run = run(&profile(&mut random, hits, how), false, |_| {}).0;
                run.lost = lost;
                run
            });
            let diff = compare(&[old], &[new], ("p", "ns"), method);
            for row in &diff.rows {
                let Interval { low, middle, high } = row.change;
                assert!(low <= middle && middle <= high && (0.0..=1.0).contains(&row.p_value), "{row:?}");
                assert!(method.is_same_work || (!row.is_significant() && low >= -1.0 && high <= 1.0), "{row:?}");
            }
        }
    }
}

/// The weight of all hits is known exactly, so a function that is in every stack is known better than each other one.
#[test]
fn a_function_in_every_stack_has_a_narrow_interval_because_the_total_is_exact() {
    let mut random = Random(6);
    let work = hits(&mut random, 3000, [40.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0]);
    let how = How::ByWeight(20_000);
    let [(old, _), (new, _)] = [(); 2].map(|()| run(&profile(&mut random, &work, how), false, |_| {}));
    let diff = compare(&[old], &[new], ("p", "ns"), SAME_WORK);
    let width = |name: &str| {
        let row = diff.rows.iter().find(|row| row.kind == Kind::Total && row.name == name).expect("is compared");
        assert!(!row.is_exact(), "{row:?}");
        let interval = row.interval(0.05);
        interval.high - interval.low
    };
    assert!(width("kmain") < width("f5") / 2.0, "{} {}", width("kmain"), width("f5"));
}

/// The test of coverage can fail: with the variance of other estimates the intervals do not hold the truth.
#[test]
fn intervals_of_a_wrong_variance_do_not_hold_it() {
    let of = |change: fn(&mut Part)| {
        let held = coverage(How::ByWeight(100_000), false, METHOD, change, SEEDS);
        held.iter().sum::<f64>() / FUNCTIONS as f64
    };
    // The variance of counts: each hit as if it weighed 1.
    let of_counts = of(|part| {
        part.most = 0.0;
        part.counts.iter_mut().for_each(|(_, amount)| amount.variance = amount.sum);
        (part.all.variance, part.all.unseen) = (part.all.sum, part.all.sum);
    });
    // Half of the standard error.
    let of_half = of(|part| {
        part.most = 0.0;
        part.counts.iter_mut().for_each(|(_, amount)| amount.variance /= 4.0);
        part.all.variance /= 4.0;
    });
    println!("counts {of_counts:.3}, half {of_half:.3}");
    assert!(of_counts < 0.6 && of_half < 0.85, "counts {of_counts}, half {of_half}");
}

#[test]
fn if_every_hit_is_recorded_the_differences_are_the_true_ones_without_an_interval() {
    let mut random = Random(3);
    let old = hits(&mut random, 500, [40.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0]);
    let new = hits(&mut random, 700, [40.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0]);
    let compared = |old: &[Hit], new: &[Hit], method| -> Diff {
        let mut random = Random(4);
        let [(old, _), (new, _)] = [old, new].map(|hits| run(&profile(&mut random, hits, How::All), false, |_| {}));
        compare(&[old], &[new], ("p", "ns"), method)
    };
    for method in [METHOD, SAME_WORK] {
        let diff = compared(&old, &new, method);
        let truth = truth(&old, &new, false, method.is_same_work);
        for (function, truth) in truth.into_iter().enumerate() {
            let name = format!("f{function}");
            let row =
                diff.rows.iter().find(|row| row.kind == Kind::SelfSamples && row.name == name).expect("is compared");
            assert!(row.is_exact() && (row.change.middle - truth).abs() < 1e-12, "{row:?}");
            assert!(row.change.low == row.change.high && row.is_significant() == (truth != 0.0), "{row:?}");
        }
    }
    let same = compared(&old, &old, METHOD);
    assert!(same.rows.iter().all(|row| row.is_exact() && !row.is_significant() && row.p_value == 1.0));
}

#[test]
fn the_same_work_sampled_twice_raises_few_alarms_and_counting_samples_would_raise_many() {
    let mut random = Random(5);
    let work = hits(&mut random, 3000, [40.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0]);
    let (mut alarms, mut alarms_of_counts) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let [(old, old_counts), (new, new_counts)] =
            [(); 2].map(|()| run(&profile(&mut random, &work, How::ByWeight(100_000)), false, |_| {}));
        let is_alarm = |diff: &Diff| usize::from(diff.rows.iter().any(|row| row.is_significant()));
        alarms += is_alarm(&compare(&[old], &[new], ("p", "ns"), METHOD));
        alarms_of_counts += is_alarm(&diff::compare(&[old_counts], &[new_counts], METHOD));
    }
    println!("{alarms} alarms, {alarms_of_counts} if each ns were a sample, in {SEEDS} pairs");
    assert!(alarms as u64 * 100 <= 7 * SEEDS && alarms_of_counts as u64 * 10 > 9 * SEEDS);
}
