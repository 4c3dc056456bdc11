//! Ticks without a sample: when they came. Stage: read.
//!
//! In: the counters, the tick numbers and the samples of each batch of a CPU. Out: gaps: intervals of time, each with
//! the number of its ticks that were filtered, coalesced or lost. The counters of a batch are those of the moment when
//! the ring was read, which may be long after the batch's last sample. But the tick numbers say how many ticks without
//! a sample came before the first sample of the batch, and how many between its first and its last one. All other ticks
//! that were counted came later, and belong to the next gap. The reason of a single tick is not known, so the counts of
//! each reason are divided in proportion. Never loses a count: the sum over all gaps is what the counters say.

use super::batch::Open;
use crate::profile::{Boot, Counters, Cpu, Gap, Unsampled};
use kprof_format::counter::Counter;
use kprof_format::line::{FIRST_TICK, LAST_TICK};

/// By how much the counters of ticks without a sample have grown since the newest batch of this CPU that is in the
/// profile.
pub fn grown(known: &Cpu, newer: &Counters) -> Unsampled {
    let of = |name: &str| {
        let before = known.batch.get(name).copied().unwrap_or(0);
        newer.get(name).map_or(0, |value| value.saturating_sub(before))
    };
    let losses = newer.keys().filter(|name| Counter::names_a_loss(name));
    let counters = [Counter::User, Counter::Idle, Counter::Kernel, Counter::Coalesced];
    let [user, idle, kernel, coalesced] = counters.map(|counter| of(counter.name()));
    Unsampled { user, idle, kernel, coalesced, lost: losses.fold(0, |sum: u64, name| sum.saturating_add(of(name))) }
}

/// The gaps before and within a batch, called before the batch is added to its CPU. `missing` of its samples cannot be
/// read.
pub fn gaps(boot: &mut Boot, boot_index: usize, open: &Open, missing: u64) -> [Option<Gap>; 2] {
    let Some(number) = open.cpu else { return [None; 2] };
    let begins_here = boot.is_from_its_start && open.positions.0 == 0;
    let cpu = boot.cpus.entry(number).or_default();
    let gap = |from, to, ticks| Gap { boot: boot_index, cpu: number, from, to, ticks, missing: 0 };
    let (first, last) = (open.seen.tsc_min(), open.seen.tsc_max());
    let mut counted = grown(cpu, &open.counters);
    let mut earlier = std::mem::take(&mut cpu.unplaced);
    let tick = |name: &str| open.counters.get(name).copied();
    let (Some(first_tick), Some(last_tick), Some(_)) = (tick(FIRST_TICK), tick(LAST_TICK), first) else {
        // Without tick numbers it is only known that these ticks came between the last samples of the two batches.
        earlier.add(&counted);
        let from = cpu.batch_tsc.or(first);
        return [Some(Gap { missing, ..gap(from, last.or(cpu.batch_tsc), earlier) }).filter(Gap::is_any), None];
    };
    let tick_before = cpu.batch.get(LAST_TICK).copied().or(begins_here.then_some(0));
    let before = tick_before.map_or(0, |tick| first_tick.saturating_sub(tick).saturating_sub(1));
    let within = last_tick.saturating_sub(first_tick).saturating_add(1);
    let within = within.saturating_sub(open.seen.samples()).saturating_sub(missing);

    let mut in_first = earlier.take(before);
    counted.add(&earlier);
    let rest = before - in_first.sum();
    let mut in_both = counted.take(rest.saturating_add(within));
    // If records are missing, fewer ticks were counted than the tick numbers show. Both gaps then have too few.
    let part = u128::from(in_both.sum()) * u128::from(within) / u128::from(rest.saturating_add(within)).max(1);
    let in_second = in_both.take(part as u64);
    in_first.add(&in_both);
    if tick_before.is_none() {
        // The file begins later than the counters. Of the ticks before it only losses are kept, for the account.
        let later = [Counter::Taken, Counter::Coalesced].map(|counter| tick(counter.name()).unwrap_or(0));
        let later = later[0].saturating_add(later[1]).saturating_sub(last_tick);
        let after = counted.take(later);
        in_first.add(&Unsampled { user: 0, idle: 0, kernel: 0, ..counted });
        counted = after;
    }
    cpu.unplaced = counted;
    let within = Gap { missing, ..gap(first, last, in_second) };
    [gap(cpu.batch_tsc, first, in_first), within].map(|gap| Some(gap).filter(Gap::is_any))
}

/// The gap after the newest batch of a CPU, with the ticks that were counted since then. Only the account has these.
/// `end` is the last known time of the boot.
pub fn last_gap(boot: &Boot, boot_index: usize, number: u32, cpu: &Cpu, end: Option<u64>) -> Option<Gap> {
    let mut ticks = cpu.unplaced;
    ticks.add(&cpu.account.as_ref().map(|account| grown(cpu, account)).unwrap_or_default());
    if cpu.batch.is_empty() && !boot.is_from_its_start {
        (ticks.user, ticks.idle, ticks.kernel) = (0, 0, 0);
    }
    // `end` may be too early, because the other CPUs may have had no sample for a long time. So the length of the gap
    // is also computed from the number of its ticks.
    let lasted = cpu.ticks.period().map(|period| (period * ticks.sum() as f64) as u64);
    let from = cpu.batch_tsc.or(cpu.seen.tsc_max());
    let to = from.zip(lasted).map(|(from, lasted)| from.saturating_add(lasted)).max(end).max(from);
    Some(Gap { boot: boot_index, cpu: number, from, to, ticks, missing: 0 }).filter(Gap::is_any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Seen;
    use crate::read::batch::commit;
    use crate::stacks::Traits;

    /// A batch of CPU 1 from one position to the next, with samples at these ticks, each 10 TSC ticks after the one
    /// before it. Its counters: user, idle, lost, and all ticks taken.
    fn open(from: u64, ticks: &[u64], [user, idle, lost, taken]: [u64; 4]) -> Open {
        let mut seen = Seen::default();
        ticks.iter().for_each(|tick| seen.add(10 * tick, Traits::of(&[1 << 63])));
        let counters = [("user", user), ("idle", idle), ("lost-full", lost), ("taken", taken)];
        let ends = [FIRST_TICK, LAST_TICK].into_iter().zip([ticks.first(), ticks.last()]);
        let ends = ends.filter_map(|(name, tick)| Some((name, *tick?)));
        let counters = ends.chain(counters).map(|(name, value)| (name.to_owned(), value)).collect();
        let lines = seen.samples();
        Open { cpu: Some(1), positions: (from, from + 10), counters, seen, lines, ..Open::default() }
    }

    /// From, to, user, idle, lost of each gap.
    fn shown(gaps: impl IntoIterator<Item = Gap>) -> Vec<(Option<u64>, Option<u64>, [u64; 3])> {
        gaps.into_iter().map(|gap| (gap.from, gap.to, [gap.ticks.user, gap.ticks.idle, gap.ticks.lost])).collect()
    }

    fn from_start() -> Boot {
        Boot { is_from_its_start: true, ..Boot::default() }
    }

    #[test]
    fn ticks_counted_after_the_last_sample_of_a_batch_belong_to_the_next_gap() {
        let mut boot = from_start();
        let mut add = |open: Open| shown(commit(&mut boot, 0, &open, 0).into_iter().flatten());
        // Ticks 3 and 4 were user code. The ring was read at tick 105, after 100 idle ticks.
        assert_eq!(add(open(0, &[1, 2, 5], [0, 0, 0, 5])), []);
        assert_eq!(add(open(10, &[6, 7, 10], [2, 0, 0, 10])), [(Some(60), Some(100), [2, 0, 0])]);
        assert_eq!(add(open(20, &[11, 12], [2, 100, 0, 112])), []);
        // They came before tick 113.
        assert_eq!(
            add(open(30, &[113, 115], [3, 100, 0, 115])),
            [(Some(120), Some(1130), [0, 100, 0]), (Some(1130), Some(1150), [1, 0, 0])]
        );
    }

    #[test]
    fn what_is_lost_because_the_ring_is_full_is_lost_after_its_last_sample() {
        let mut boot = from_start();
        let first = commit(&mut boot, 0, &open(0, &[1, 2, 3], [0, 0, 40, 43]), 0);
        let second = commit(&mut boot, 0, &open(10, &[44, 45], [0, 0, 40, 45]), 0);
        assert_eq!(first, [None; 2]);
        assert_eq!(shown(second.into_iter().flatten()), [(Some(30), Some(440), [0, 0, 40])]);
    }

    #[test]
    fn the_account_says_what_came_after_the_last_batch() {
        let mut boot = from_start();
        commit(&mut boot, 0, &open(0, &(1..=21).collect::<Vec<_>>(), [0, 7, 0, 28]), 0);
        let counters = [("user", 4), ("idle", 26), ("lost-full", 0)];
        let account = Some(counters.map(|(name, value)| (name.to_owned(), value)).into());
        let cpu = boot.cpus.get_mut(&1).unwrap();
        cpu.account = account;
        let last = |end| shown(last_gap(&boot, 0, 1, &boot.cpus[&1], end));
        assert_eq!(last(None), [(Some(210), Some(510), [4, 26, 0])], "as long as 30 ticks take");
        assert_eq!(last(Some(900)), [(Some(210), Some(900), [4, 26, 0])]);
    }

    #[test]
    fn a_file_that_begins_later_has_only_the_losses_from_before_it() {
        let mut boot = Boot::default();
        let gaps = commit(&mut boot, 0, &open(500, &[1000, 1003], [400, 100, 30, 1007]), 0);
        let [before, within] = gaps.map(Option::unwrap);
        let later = boot.cpus[&1].unplaced;
        assert_eq!((before.from, before.to, before.ticks.user, before.ticks.idle), (None, Some(10_000), 0, 0));
        // Ticks 1001 and 1002 lie within the batch, and at most four after it. All others came before the file.
        assert_eq!((within.ticks.sum(), later.sum()), (2, 4));
        assert_eq!(before.ticks.lost + within.ticks.lost + later.lost, 30);
    }

    #[test]
    fn samples_that_cannot_be_read_are_not_taken_for_filtered_ticks() {
        let mut boot = from_start();
        // Ten ticks: three samples, two samples that cannot be read, and five idle ticks.
        let [before, within] = commit(&mut boot, 0, &open(0, &[1, 2, 10], [0, 5, 0, 10]), 2);
        let within = within.unwrap();
        assert_eq!((before, within.missing, within.ticks.idle), (None, 2, 5));
        commit(&mut boot, 0, &open(10, &[12, 13, 20], [0, 9, 0, 20]), 2);
        assert_eq!(boot.cpus[&1].unplaced.sum(), 0);
        let [before, within] = commit(&mut boot, 0, &open(20, &[21, 30], [0, 12, 0, 30]), 5);
        assert_eq!((before, within.unwrap().ticks.idle, boot.cpus[&1].unplaced.sum()), (None, 3, 0));
    }

    #[test]
    fn of_a_cpu_without_a_batch_the_account_has_what_came_before_a_later_file_too() {
        let last = |boot: &mut Boot| {
            let counters = [("user", 4), ("idle", 26), ("lost-full", 3)];
            let cpu = boot.cpus.entry(1).or_default();
            cpu.account = Some(counters.map(|(name, value)| (name.to_owned(), value)).into());
            shown(last_gap(boot, 0, 1, &boot.cpus[&1], Some(900)))
        };
        assert_eq!(last(&mut from_start()), [(None, Some(900), [4, 26, 3])]);
        assert_eq!(last(&mut Boot::default()), [(None, Some(900), [0, 0, 3])]);
    }

    #[test]
    fn no_count_is_lost_or_invented() {
        // A CPU whose ticks are kept or filtered in an order that a small generator chooses. The ring is read late.
        let mut state = 12_345u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let (mut boot, mut counts, mut waiting) = (from_start(), [0, 0, 0, 0], Vec::new());
            let (mut sum, mut from) = (Unsampled::default(), 0);
            let mut truth = Vec::new();
            for tick in 1..=300 {
                counts[3] += 1;
                match random(8) {
                    0 => counts[0] += 1,
                    1 | 2 => counts[1] += 1,
                    3 => counts[2] += 1,
                    _ => waiting.push(tick),
                }
                if random(20) == 0 && waiting.len() > 1 {
                    let taken = waiting.len() - random(waiting.len() as u64 / 2) as usize;
                    let ticks: Vec<u64> = waiting.drain(..taken).collect();
                    truth.push((ticks[0], *ticks.last().unwrap(), ticks.len() as u64));
                    for gap in commit(&mut boot, 0, &open(from, &ticks, counts), 0).into_iter().flatten() {
                        sum.add(&gap.ticks);
                        let (from, to) = (gap.from.unwrap_or(0) / 10, gap.to.unwrap() / 10);
                        // A gap before a batch has all ticks between two samples, one in a batch has all without one.
                        let samples = truth.last().filter(|last| last.0 == from).map_or(1, |last| last.2 - 1);
                        assert_eq!(gap.ticks.sum() + samples, to - from, "{gap:?}");
                    }
                    from += 10;
                }
            }
            let cpu = &boot.cpus[&1];
            sum.add(&cpu.unplaced);
            let names = ["user", "idle", "lost-full"];
            assert_eq!([sum.user, sum.idle, sum.lost], names.map(|name| cpu.batch[name]));
        }
    }
}
