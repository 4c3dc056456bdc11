//! Batches: which samples of a file count. Stage: read.
//!
//! In: parsed `# batch` and `# end` lines. Out: the decision to keep, skip or drop the samples between the two lines,
//! the losses that each batch reports, and the number of missing samples. A batch that does not match its checksum, or
//! that is interrupted by the end of the file or by a new header, is void. A batch whose positions were seen before for
//! that boot and CPU is skipped. Counters are cumulative, so a void batch loses none of them.

use super::seal::Seal;
use super::unsampled;
use crate::profile::{self, Boot, Counters, Gap, Hole, Seen, Unsampled, counted};
use kprof_format::counter::Counter;
use kprof_format::line::{FIRST_TICK, LAST_TICK, Stream};

/// A batch whose end has not been read yet.
#[derive(Clone, Debug, Default)]
pub struct Open {
    /// The line or chunk where it began.
    pub place: u64,
    /// Its CPU; `None` for the meta stream and event streams.
    pub cpu: Option<u32>,
    /// The CPU whose events it has, if it is a batch of an event stream.
    pub events: Option<u32>,
    /// Its positions in words since boot: the first one, and one past the last.
    pub positions: (u64, u64),
    /// The counters at its end.
    pub counters: Counters,
    /// Samples so far.
    pub seen: Seen,
    /// Sample lines so far, malformed ones included.
    pub lines: u64,
    /// The line and the CPU of its first sample of another CPU, and how many such samples it has.
    pub strangers: Option<(u64, u32, u64)>,
    /// In the text form, its checksum so far.
    pub seal: Seal,
    /// In the text form, its first line.
    pub line: Vec<u8>,
    /// Why the batch does not count, unless its checksum shows that only its first line is damaged.
    pub doubt: Option<Doubt>,
    /// In the text form, its `#` lines so far and their numbers. They are applied when the batch is known to be whole.
    pub held: Vec<(u64, Vec<u8>)>,
    /// The lines of an event stream so far and their numbers.
    pub event_lines: Vec<(u64, Vec<u8>)>,
}

/// The CPU of a stream of samples, and that of an event stream.
pub fn cpus_of(stream: Stream) -> (Option<u32>, Option<u32>) {
    match stream {
        Stream::Meta => (None, None),
        Stream::Cpu(cpu) => (Some(cpu), None),
        Stream::Event(cpu) => (None, Some(cpu)),
    }
}

impl Open {
    /// Its stream.
    pub fn stream(&self) -> Stream {
        self.cpu.map(Stream::Cpu).or(self.events.map(Stream::Event)).unwrap_or(Stream::Meta)
    }

    /// Whether it is a batch of an event stream.
    pub fn is_of_events(&self) -> bool {
        self.events.is_some()
    }

    /// Keeps a line of an event stream until the batch is known to be whole.
    pub fn hold_event(&mut self, number: u64, line: &[u8]) {
        self.lines += 1;
        self.event_lines.push((number, line.to_vec()));
    }
}

/// Why a batch of the text form does not count if its first line is as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The line cannot be parsed.
    Line,
    /// Some of its positions were seen before.
    Overlap,
}

/// How the positions of a batch relate to those of earlier batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// None of them was seen before.
    New,
    /// All of them were seen before.
    Repeated,
    /// Some of them were seen before.
    Overlap,
}

/// Looks up `range` among disjoint ascending ranges. An empty range is always new.
pub fn position(seen: &[(u64, u64)], range: (u64, u64)) -> Position {
    let mut touching = seen.iter().filter(|(from, to)| range.0 < *to && *from < range.1);
    match touching.next() {
        _ if range.0 >= range.1 => Position::New,
        None => Position::New,
        Some((from, to)) if *from <= range.0 && range.1 <= *to => Position::Repeated,
        Some(_) => Position::Overlap,
    }
}

/// Adds a new range and joins it with the neighbours that it touches.
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

/// The end of the last batch before a position; 0 if there is none.
pub fn end_before(seen: &[(u64, u64)], position: u64) -> u64 {
    seen.iter().map(|(_, to)| *to).filter(|to| *to <= position).max().unwrap_or(0)
}

/// Adds a CPU's batch to the profile; `missing` of its samples cannot be read. Returns the gaps before it and in it.
pub fn commit(boot: &mut Boot, boot_index: usize, open: &Open, missing: u64) -> [Option<Gap>; 2] {
    let gaps = unsampled::gaps(boot, boot_index, open, missing);
    let Some(number) = open.cpu else { return gaps };
    let cpu = boot.cpus.entry(number).or_default();
    cpu.begins_at = Some(cpu.begins_at.map_or(open.positions.0, |before| before.min(open.positions.0)));
    let hole = hole(cpu, open, missing);
    cpu.holes.extend(hole);
    let tick = |name: &str| open.counters.get(name).copied();
    let ends = tick(FIRST_TICK).zip(open.seen.tsc_min()).zip(tick(LAST_TICK).zip(open.seen.tsc_max()));
    // The tick numbers belong to the first and the last sample, so both must have been read.
    if let Some((first, last)) = ends.filter(|_| missing == 0 && open.lines == open.seen.samples()) {
        cpu.ticks.add(first, last);
    }
    let is_next = cpu.positions.last().is_some_and(|(_, to)| *to <= open.positions.0);
    let before = cpu.batch_tsc.filter(|_| is_next).zip(open.seen.tsc_min());
    cpu.went_back |= open.seen.went_back() || before.is_some_and(|(before, first)| first < before);
    cpu.seen.merge(&open.seen);
    cpu.missing += missing;
    remember(&mut cpu.positions, open.positions);
    cpu.last_batch = (open.positions.0, open.seen.samples());
    for (name, value) in &open.counters {
        // Counters only grow. A smaller value is damage; if it were kept, the next difference would count some events
        // twice.
        let known = cpu.batch.entry(name.clone()).or_default();
        *known = value.max(known).to_owned();
    }
    cpu.batch_tsc = open.seen.tsc_max().or(cpu.batch_tsc);
    gaps
}

/// The hole between the newest batch and this one, if this one begins at a later position than that one ended.
///
/// Each tick between the last ticks of the two batches is one of these: counted as coalesced, filtered or lost, a
/// sample of this batch, or a sample in the hole.
fn hole(known: &profile::Cpu, open: &Open, missing: u64) -> Option<Hole> {
    let end = known.positions.last().map_or(0, |(_, to)| *to);
    let positions = (end, open.positions.0);
    let ticks = open.counters.get(LAST_TICK).copied().unwrap_or(0);
    let ticks = ticks.saturating_sub(known.batch.get(LAST_TICK).copied().unwrap_or(0));
    let counted = unsampled::grown(known, &open.counters).sum();
    let here = open.seen.samples() + missing;
    let samples = ticks.saturating_sub(counted).saturating_sub(here);
    let tsc = (known.batch_tsc, open.seen.tsc_max());
    (positions.0 < positions.1).then_some(Hole { positions, tsc, samples })
}

/// How many samples of a CPU were delivered but are not in the file. `None` without a final account, and if the file
/// does not begin with the boot.
pub fn not_here(boot: &Boot, cpu: &profile::Cpu) -> Option<u64> {
    let delivered = counted(cpu.account.as_ref()?, Counter::Delivered)?;
    (!boot.overwrites() && !boot.begins_later(cpu)).then(|| delivered.saturating_sub(cpu.seen.samples()))
}

/// The missing samples of a CPU that its damaged batches do not report. Each gap comes with the positions of the hole
/// that it is in.
///
/// If the account says how many samples were delivered, the holes together hold exactly those that are not in the file.
/// Otherwise the number in each hole follows from the batches beside it.
pub fn missing(boot: &Boot, number: u32, cpu: &profile::Cpu, boot_index: usize) -> Vec<(Gap, Option<(u64, u64)>)> {
    if boot.overwrites() {
        return Vec::new();
    }
    let begins_later = boot.begins_later(cpu);
    let is_hole = |hole: &&Hole| {
        let was_before = begins_later && hole.positions.0 == 0;
        !was_before && position(&cpu.positions, hole.positions) == Position::New
    };
    let holes: Vec<&Hole> = cpu.holes.iter().filter(is_hole).collect();
    let exact = not_here(boot, cpu).map(|exact| exact.saturating_sub(cpu.missing));
    let guessed: u64 = holes.iter().fold(0, |sum, hole| sum.saturating_add(hole.samples));
    let ticks = Unsampled::default();
    let gap = |missing, (from, to)| Gap { boot: boot_index, cpu: number, from, to, ticks, missing };
    let mut rest = exact.unwrap_or(guessed);
    let mut intervals = Vec::new();
    for (at, hole) in holes.iter().enumerate() {
        let part = match exact {
            None => hole.samples,
            Some(_) if at + 1 == holes.len() => rest,
            Some(exact) => (u128::from(exact) * u128::from(hole.samples) / u128::from(guessed.max(1))) as u64,
        };
        let part = part.min(rest);
        rest -= part;
        if part > 0 {
            intervals.push((gap(part, hole.tsc), Some(hole.positions)));
        }
    }
    if rest > 0 {
        // Samples that are missing at the end have no batch after them.
        intervals.push((gap(rest, (cpu.batch_tsc, cpu.batch_tsc)), None));
    }
    intervals
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
            counters: Counters::from([("lost-full".to_owned(), lost), ("coalesced".to_owned(), 2)]),
            ..Open::default()
        };
        let mut boot = Boot::default();
        let mut of = |open| commit(&mut boot, 0, &open, 0)[0].map(|gap| (gap.ticks.lost, gap.ticks.coalesced));
        let (first, third) = (of(open(5, 0)), of(open(12, 20)));
        assert_eq!((first, third), (Some((5, 2)), Some((7, 0))));
        assert_eq!(of(open(12, 30)), None);
        // A counter that gets smaller is damaged, so it is ignored.
        assert_eq!(of(open(3, 40)), None);
        assert_eq!(of(open(12, 50)), None);
    }

    #[test]
    fn what_was_overtaken_before_it_was_copied_is_lost_and_not_missing_too() {
        let missing_of = |overtaken, delivered| {
            let mut seen = Seen::default();
            (0..4).for_each(|tsc| seen.add(tsc, crate::stacks::Traits::of(&[1 << 63])));
            let account = [("lost-overtaken", overtaken), ("delivered", delivered)];
            let account = account.map(|(name, value)| (name.to_owned(), value)).into();
            // The counters beside the hole are of a later moment than the ticks, so they do not explain all of it.
            let holes = vec![Hole { positions: (60, 70), tsc: (Some(1), Some(2)), samples: 2 }];
            let positions = vec![(40, 60), (70, 90)];
            let cpu = profile::Cpu {
                seen,
                account: Some(account),
                holes,
                positions,
                begins_at: Some(40),
                ..Default::default()
            };
            missing(&Boot::default(), 1, &cpu, 0).iter().map(|(gap, _)| gap.missing).sum::<u64>()
        };
        assert_eq!(missing_of(3, 4), 0);
        assert_eq!(missing_of(3, 6), 2, "delivered, and not in the file");
        assert_eq!(missing_of(0, 4), 2, "a hole that nothing explains");
    }

    #[test]
    fn a_hole_holds_the_ticks_that_its_neighbours_do_not_explain() {
        let open = |from, ticks: u64, idle: u64, samples: u64| {
            let mut seen = Seen::default();
            (0..samples).for_each(|tsc| seen.add(tsc, crate::stacks::Traits::of(&[1 << 63])));
            Open {
                place: 1,
                cpu: Some(1),
                positions: (from, from + 10),
                counters: Counters::from([("last-tick".to_owned(), ticks), ("idle".to_owned(), idle)]),
                seen,
                lines: samples,
                ..Open::default()
            }
        };
        let mut boot = Boot { is_from_its_start: true, ..Boot::default() };
        commit(&mut boot, 0, &open(0, 10, 4, 6), 0);
        commit(&mut boot, 0, &open(30, 40, 9, 8), 0);
        let of = |boot: &Boot| missing(boot, 1, &boot.cpus[&1], 0);
        // Ticks 11 to 40: five were idle, and eight are in the file.
        let intervals = of(&boot);
        assert_eq!((intervals.len(), intervals[0].0.missing, intervals[0].1), (1, 17, Some((10, 30))));
        // The account is more exact.
        let delivered = |samples| Some(Counters::from([("delivered".to_owned(), samples)]));
        boot.cpus.get_mut(&1).unwrap().account = delivered(29);
        assert_eq!(of(&boot)[0].0.missing, 15);
        boot.cpus.get_mut(&1).unwrap().account = delivered(14);
        assert_eq!(of(&boot), []);
        // A batch that comes late is no longer missing.
        boot.cpus.get_mut(&1).unwrap().account = None;
        remember(&mut boot.cpus.get_mut(&1).unwrap().positions, (10, 30));
        assert_eq!(of(&boot), []);
    }
}
