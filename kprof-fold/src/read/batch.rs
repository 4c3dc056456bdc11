//! Batches: which samples of a file count. Stage: read.
//!
//! In: `# batch` and `# end` lines, taken apart. Out: the decision to keep, skip or drop what stands between them, and
//! the losses that each complete batch reports. A batch without its end is void; one whose positions were seen before
//! for that boot and CPU is skipped; counters are cumulative, so a void batch loses none of them.

use crate::profile::{self, Boot, Counters, Gap, Seen};

/// A batch whose end has not come yet.
#[derive(Clone, Debug)]
pub struct Open {
    /// The line or chunk where it began.
    pub place: u64,
    /// Its CPU; `None` for the meta stream.
    pub cpu: Option<u32>,
    /// Positions: from and one past the end, in words since boot.
    pub positions: (u64, u64),
    /// Counters at its end.
    pub counters: Counters,
    /// Samples so far.
    pub seen: Seen,
    /// Sample lines so far, malformed ones included.
    pub lines: u64,
    /// Lines of it are known to be missing (serial form): its number of lines proves nothing.
    pub has_holes: bool,
}

/// How the positions of a batch stand to those of earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// None was seen before.
    New,
    /// All were seen before.
    Repeated,
    /// Some were seen before.
    Overlap,
}

/// Looks `range` up among disjoint ascending ranges. An empty range is always new.
pub fn position(seen: &[(u64, u64)], range: (u64, u64)) -> Position {
    let mut touching = seen.iter().filter(|(from, to)| range.0 < *to && *from < range.1);
    match touching.next() {
        _ if range.0 >= range.1 => Position::New,
        None => Position::New,
        Some((from, to)) if *from <= range.0 && range.1 <= *to => Position::Repeated,
        Some(_) => Position::Overlap,
    }
}

/// Adds a new range and joins it with neighbours that it touches.
pub fn remember(seen: &mut Vec<(u64, u64)>, range: (u64, u64)) {
    if range.0 >= range.1 {
        return;
    }
    let at = seen.partition_point(|(from, _)| *from < range.0);
    seen.insert(at, range);
    if at + 1 < seen.len() && seen[at + 1].0 <= seen[at].1 {
        seen[at].1 = seen[at].1.max(seen.remove(at + 1).1);
    }
    if at > 0 && seen[at].0 <= seen[at - 1].1 {
        seen[at - 1].1 = seen[at - 1].1.max(seen.remove(at).1);
    }
}

/// Books a complete batch of a CPU. Returns the gap that it reports, if it reports one.
pub fn commit(boot: &mut Boot, boot_index: usize, open: &Open) -> Option<Gap> {
    let number = open.cpu?;
    let cpu = boot.cpus.entry(number).or_default();
    cpu.seen.merge(&open.seen);
    remember(&mut cpu.positions, open.positions);
    let gap = gap(boot_index, number, cpu, &open.counters, open.seen.tsc_max());
    for (name, value) in &open.counters {
        // Counters only grow; a smaller one is damage, and must not make the next one count twice.
        let known = cpu.batch.entry(name.clone()).or_default();
        *known = value.max(known).to_owned();
    }
    cpu.batch_tsc = open.seen.tsc_max().or(cpu.batch_tsc);
    gap
}

/// What `newer` counters report beyond those of the last batch.
pub fn gap(boot: usize, cpu: u32, known: &profile::Cpu, newer: &Counters, to: Option<u64>) -> Option<Gap> {
    let lost = profile::LOST.iter().map(|name| grown(known, newer, name)).sum();
    let merged = grown(known, newer, "merged");
    (lost > 0 || merged > 0).then_some(Gap {
        boot,
        cpu,
        from: known.batch_tsc,
        to: to.or(known.batch_tsc),
        lost,
        merged,
    })
}

fn grown(known: &profile::Cpu, newer: &Counters, name: &str) -> u64 {
    let before = known.batch.get(name).copied().unwrap_or(0);
    newer.get(name).map_or(0, |value| value.saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_new_repeated_or_overlapping() {
        let mut seen = Vec::new();
        for range in [(100, 200), (300, 400), (200, 250), (0, 50)] {
            assert_eq!(position(&seen, range), Position::New);
            remember(&mut seen, range);
        }
        assert_eq!(seen, [(0, 50), (100, 250), (300, 400)]);
        assert_eq!(position(&seen, (120, 250)), Position::Repeated);
        assert_eq!(position(&seen, (240, 260)), Position::Overlap);
        assert_eq!(position(&seen, (250, 300)), Position::New);
        assert_eq!(position(&seen, (120, 120)), Position::New);
        remember(&mut seen, (250, 300));
        assert_eq!(seen, [(0, 50), (100, 400)]);
    }

    #[test]
    fn a_void_batch_loses_no_losses_because_counters_are_cumulative() {
        let open = |lost: u64, from| Open {
            place: 1,
            cpu: Some(1),
            positions: (from, from + 10),
            counters: Counters::from([("lost-full".to_owned(), lost), ("merged".to_owned(), 2)]),
            seen: Seen::default(),
            lines: 0,
            has_holes: false,
        };
        let mut boot = Boot::default();
        let first = commit(&mut boot, 0, &open(5, 0)).map(|gap| (gap.lost, gap.merged));
        let third = commit(&mut boot, 0, &open(12, 20)).map(|gap| (gap.lost, gap.merged));
        assert_eq!((first, third), (Some((5, 2)), Some((7, 0))));
        assert_eq!(commit(&mut boot, 0, &open(12, 30)), None);
        // A counter that falls is not believed.
        assert_eq!(commit(&mut boot, 0, &open(3, 40)), None);
        assert_eq!(commit(&mut boot, 0, &open(12, 50)), None);
    }
}
