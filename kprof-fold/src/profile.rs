//! What a profile contains besides its samples: header, counters, task names, images, marks, settings, events by task,
//! gaps. Stage: read, its second result.
//!
//! In: metadata that the readers have parsed. Out: one [`Boot`] per boot of the kernel, in file order. Redox's old
//! texts have one boot without a header. No counter is computed from others here; [`crate::account`] does that.

mod gap;
mod low;
pub mod rates;

use crate::lockups::{self, Lockup};
use crate::points::Point;
use crate::stacks::Traits;
use crate::task_times::TaskTimes;
pub use gap::{Gap, Spent, Unsampled};
use kprof_format::counter::Counter;
use kprof_format::fact::Fact;
use kprof_format::line::Stream;
use kprof_format::precision::Precision;
use kprof_format::record::OTHER_TASKS_NAME;
use std::collections::BTreeMap;

/// The counters of one CPU by the names that ctl gives them, cumulative since boot.
pub type Counters = BTreeMap<String, u64>;

/// The names and values of a set of counters.
pub fn named(counters: &Counters) -> impl Iterator<Item = (&str, u64)> {
    counters.iter().map(|(name, value)| (name.as_str(), *value))
}

/// A counter, if the set has it.
pub fn counted(counters: &Counters, counter: Counter) -> Option<u64> {
    counters.get(counter.name()).copied()
}

/// The samples of one CPU that are in the file, counted by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The number of samples of each kind: user, kernel, idle user, idle kernel. Only well-formed samples count, and
    /// only those in a complete batch or outside of all batches. Idle samples are there if they were not filtered.
    kinds: [u64; 4],
    /// Smallest and largest TSC. Without samples the first is greater than the second.
    tsc: (u64, u64),
    /// The TSC of the newest sample, and whether any sample has a smaller TSC than the one before it.
    newest: u64,
    went_back: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self { kinds: [0; 4], tsc: (u64::MAX, 0), newest: 0, went_back: false }
    }
}

impl Seen {
    /// Counts one sample.
    #[inline(always)]
    pub fn add(&mut self, tsc: u64, traits: Traits) {
        self.kinds[usize::from(traits.is_kernel()) + 2 * usize::from(traits.is_idle())] += 1;
        self.tsc = (self.tsc.0.min(tsc), self.tsc.1.max(tsc));
        self.went_back |= tsc < self.newest;
        self.newest = tsc;
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.kinds.iter_mut().zip(other.kinds).for_each(|(kind, more)| *kind += more);
        self.tsc = (self.tsc.0.min(other.tsc.0), self.tsc.1.max(other.tsc.1));
        self.newest = self.newest.max(other.newest);
        self.went_back |= other.went_back;
    }

    /// Whether any of these samples has a smaller TSC than the one before it. Where parts of a file are in another
    /// order than they were written in, only the order within each part counts.
    pub fn went_back(&self) -> bool {
        self.went_back
    }

    /// All samples.
    pub fn samples(&self) -> u64 {
        self.kinds.iter().sum()
    }

    /// Samples whose first address is in the kernel.
    pub fn kernel(&self) -> u64 {
        self.kinds[1] + self.kinds[3]
    }

    /// Samples of the idle task that were not filtered.
    pub fn idle(&self) -> u64 {
        self.kinds[2] + self.kinds[3]
    }

    /// Smallest TSC.
    pub fn tsc_min(&self) -> Option<u64> {
        (self.samples() > 0).then_some(self.tsc.0)
    }

    /// Largest TSC.
    pub fn tsc_max(&self) -> Option<u64> {
        (self.samples() > 0).then_some(self.tsc.1)
    }
}

/// Fewer ticks than this give no rate, because intervals are random and a few of them say little about the average.
const FEW_TICKS: u64 = 20;

/// When the ticks of one CPU came: numbers and times of the first and the last sample of its batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    ends: Option<[(u64, u64); 2]>,
    /// Ticks, and TSC ticks, from the first to the last sample of each batch, summed over all batches.
    within: (u64, u64),
}

impl Ticks {
    /// Adds a batch from one tick to another, each with its number and TSC.
    pub fn add(&mut self, first: (u64, u64), last: (u64, u64)) {
        if first.0 > last.0 || first.1 > last.1 {
            return;
        }
        let ends = self.ends.get_or_insert([first, last]);
        *ends = [ends[0].min(first), ends[1].max(last)];
        self.within.0 += last.0 - first.0;
        self.within.1 += last.1 - first.1;
    }

    /// The first and the last tick that are known, each with its number and TSC.
    pub fn ends(&self) -> Option<[(u64, u64); 2]> {
        self.ends
    }

    /// TSC ticks from one tick to the next, on average within batches.
    pub fn period(&self) -> Option<f64> {
        (self.within.0 >= FEW_TICKS).then(|| self.within.1 as f64 / self.within.0 as f64)
    }

    /// Ticks per second. The time between batches is included, unless a setting was changed in between: then sampling
    /// may have been slower or stopped for a while, and only the time within batches is used.
    pub fn rate(&self, tsc_hz: f64, settings: &[Mark]) -> Option<f64> {
        let [first, last] = self.ends?;
        let changes = settings.iter().any(|setting| first.1 < setting.tsc && setting.tsc < last.1);
        let (ticks, tsc) = if changes { self.within } else { (last.0 - first.0, last.1.saturating_sub(first.1)) };
        (ticks >= FEW_TICKS && tsc > 0).then(|| ticks as f64 * tsc_hz / tsc as f64)
    }
}

/// Positions that no batch of the file has, between two batches that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The first position and one past the last, in words.
    pub positions: (u64, u64),
    /// The TSC of the last sample before the hole, and of the last sample of the batch after the hole, if known.
    pub tsc: (Option<u64>, Option<u64>),
    /// How many samples were in the hole, computed from the tick numbers and counters of the batches before and after
    /// it.
    pub samples: u64,
}

/// What is known of one CPU.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    /// Its samples.
    pub seen: Seen,
    /// Position ranges of complete batches: disjoint and ascending; adjacent ranges are merged.
    pub positions: Vec<(u64, u64)>,
    /// Where its first batch begins, complete or not. Earlier positions were never meant for this file.
    pub begins_at: Option<u64>,
    /// Counters of the newest complete batch.
    pub batch: Counters,
    /// TSC of the last sample of the newest complete batch.
    pub batch_tsc: Option<u64>,
    /// Ticks without a sample that the newest complete batch has counted and that came after its last sample.
    pub unplaced: Unsampled,
    /// Counters of the newest `# account` line.
    pub account: Option<Counters>,
    /// Tick numbers and times, for the rate.
    pub ticks: Ticks,
    /// Ranges of ring positions, in words, between the end of the newest batch and the beginning of the next one
    /// read. A batch further on in the file may have filled some of them.
    pub holes: Vec<Hole>,
    /// Samples of damaged batches that cannot be read.
    pub missing: u64,
    /// Where the newest complete batch begins, and its samples.
    pub last_batch: (u64, u64),
    /// Complete batches that were skipped because their positions had already been read.
    pub repeated_batches: u64,
    /// Whether the TSC went back, within a batch or from one to the next.
    pub went_back: bool,
}

impl Cpu {
    /// Samples that were written but not delivered, as by `export_last` in a panic handler. They are recognised by the
    /// account that follows them: in it the reader's position is not past the beginning of their batch.
    pub fn dumped(&self) -> u64 {
        let get = |counter| counted(self.account.as_ref()?, counter);
        let is_dump = |position| position <= self.last_batch.0 && get(Counter::Delivered) != Some(self.seen.samples());
        get(Counter::PositionOut).filter(|position| is_dump(*position)).map_or(0, |_| self.last_batch.1)
    }
}

/// What was read of the event stream of a CPU.
#[derive(Clone, Debug, Default)]
pub struct EventStream {
    /// Position ranges of complete batches: disjoint and ascending; adjacent ranges are merged.
    pub positions: Vec<(u64, u64)>,
    /// Complete batches that were skipped because their positions had already been read.
    pub repeated_batches: u64,
    /// The times of its first and its last recorded hit.
    pub tsc: Option<(u64, u64)>,
}

/// A name with a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// TSC.
    pub tsc: u64,
    /// `mark NAME`, or the ctl command for a setting.
    pub name: Vec<u8>,
}

/// A code image: a module or the kernel itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// When it was reported.
    pub tsc: u64,
    /// Where it is loaded.
    pub load: u64,
    /// First and one past the last address of its code.
    pub text: (u64, u64),
    /// Its build id in hex, or `-`.
    pub build_id: String,
    /// Its name.
    pub name: Vec<u8>,
}

impl Image {
    /// Whether it is the same image in the same place.
    pub fn is(&self, other: &Self) -> bool {
        Self { tsc: other.tsc, ..self.clone() } == *other
    }

    /// Whether both have an address of code in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.text.0 < other.text.1 && other.text.0 < self.text.1
    }

    /// Whether it is a program: each task may have another one at the same addresses.
    pub fn is_program(&self) -> bool {
        self.text.0 >> 63 == 0
    }
}

/// One boot of the kernel.
#[derive(Clone, Debug, Default)]
pub struct Boot {
    /// Version of the profile form; `None` for Redox's old texts.
    pub version: Option<u32>,
    /// `# key value` lines; a later line replaces an earlier one of the same key.
    pub header: BTreeMap<String, String>,
    /// Symbols with the addresses that the kernel itself has reported.
    pub anchors: Vec<(String, u64)>,
    /// Known tasks: id and name.
    pub tasks: BTreeMap<u64, Vec<u8>>,
    /// Whether the file has the meta stream from its first word on, so that it is the first recording of this boot.
    pub is_from_its_start: bool,
    /// Marks, in file order.
    pub marks: Vec<Mark>,
    /// Settings changed, in file order.
    pub settings: Vec<Mark>,
    /// Images, in file order.
    pub images: Vec<Image>,
    /// Events of each task, summed over all CPUs. At most [`Boot::MAX_COUNTED`] tasks have their own entry; the others
    /// are counted together under `[other]`.
    pub events: BTreeMap<Vec<u8>, Counters>,
    /// What was counted of each point, by its name.
    pub points: BTreeMap<String, Point>,
    /// Words of the meta stream that the file lacks after its first batch: a reader may have been given them.
    pub missing_meta_words: u64,
    /// Whether the file has a batch of the meta stream.
    pub has_meta: bool,
    /// What each task did with its time, by its id and name.
    pub task_times: BTreeMap<(u64, Vec<u8>), TaskTimes>,
    /// CPUs that were locked up, in file order.
    pub lockups: Vec<Lockup>,
    /// What was read of the event streams, by CPU.
    pub event_streams: BTreeMap<u32, EventStream>,
    /// CPUs by number.
    pub cpus: BTreeMap<u32, Cpu>,
}

impl Boot {
    /// Maximum number of tasks whose events are counted separately.
    pub const MAX_COUNTED: usize = 16_384;

    /// The positions of the complete batches of a stream; none for the meta stream.
    pub fn positions(&self, stream: Stream) -> Option<&[(u64, u64)]> {
        match stream {
            Stream::Meta => None,
            Stream::Cpu(cpu) => Some(&self.cpus.get(&cpu)?.positions),
            Stream::Event(cpu) => Some(&self.event_streams.get(&cpu)?.positions),
        }
    }

    /// Adds the events of a task.
    pub fn add_events(&mut self, task: Vec<u8>, counts: &Counters) {
        let has_room = self.events.len() < Self::MAX_COUNTED || self.events.contains_key(&task);
        let row = self.events.entry(if has_room { task } else { OTHER_TASKS_NAME.to_vec() }).or_default();
        for (name, count) in counts {
            let sum = row.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// Adds what a later header of the same boot and the lines after it say. `newer` has no CPUs yet.
    pub fn extend(&mut self, newer: Self) {
        self.header.extend(newer.header);
        self.anchors.extend(newer.anchors);
        self.tasks.extend(newer.tasks);
        self.is_from_its_start |= newer.is_from_its_start;
        self.has_meta |= newer.has_meta;
        self.missing_meta_words = self.missing_meta_words.saturating_add(newer.missing_meta_words);
        self.marks.extend(newer.marks);
        self.settings.extend(newer.settings);
        newer.images.into_iter().for_each(|image| self.add_image(image));
        lockups::extend(&mut self.lockups, newer.lockups);
        newer.points.into_iter().for_each(|(name, point)| self.points.entry(name).or_default().add(&point));
        newer.task_times.into_iter().for_each(|(task, times)| {
            let mine = self.task_times.entry(task).or_default();
            let goes_on = mine.covered.zip(times.covered).is_none_or(|((_, end), (from, _))| end == from);
            mine.add_times(&times);
            mine.faults += u64::from(!goes_on);
        });
        newer.events.into_iter().for_each(|(task, counts)| self.add_events(task, &counts));
    }

    /// Adds an image. The kernel reports its images again to each new reader: one that still has its place is ignored.
    pub fn add_image(&mut self, image: Image) {
        let mut before = self.images.iter().rev().filter(|one| one.overlaps(&image) || one.is(&image));
        let is_known = if image.is_program() {
            before.any(|one| one.is(&image))
        } else {
            before.next().is_some_and(|one| one.is(&image))
        };
        if !is_known {
            self.images.push(image);
        }
    }

    /// Whether a module had its place at some time of the range: from its time until another one covers it.
    pub fn has_in_force(&self, image: &Image, (from, to): (u64, u64)) -> bool {
        let covers = |one: &&Image| one.tsc > image.tsc && one.overlaps(image) && !one.is(image);
        let until = self.images.iter().filter(covers).map(|one| one.tsc).min().unwrap_or(u64::MAX);
        image.is_program() || (image.tsc < to && from < until)
    }

    /// Whether samples of this CPU were delivered to an earlier file.
    pub fn begins_later(&self, cpu: &Cpu) -> bool {
        // A recording of copies counts from its own beginning on. What was overwritten before it was copied leaves
        // holes between its positions, but is counted.
        let lost = |counters: &Counters| counted(counters, Counter::LostOvertaken).unwrap_or(0);
        if cpu.account.as_ref().is_some_and(|account| lost(account) > 0) {
            return false;
        }
        // A file that only has a dump begins at the reader's position, so all samples before it were delivered.
        let is_dump = cpu.dumped() > 0 && cpu.dumped() == cpu.seen.samples();
        // A CPU without any batch in this file has had no sample since the earlier file ended.
        let reader_is_at = || cpu.account.as_ref().and_then(|account| counted(account, Counter::PositionOut));
        (is_dump || !self.is_from_its_start) && cpu.begins_at.or_else(reader_is_at).is_some_and(|position| position > 0)
    }

    /// Whether records may have been overwritten, so that fewer samples were delivered than recorded.
    pub fn overwrites(&self) -> bool {
        self.fact(Fact::Mode) == Some("overwrite")
    }

    /// The times of the first and the last sample or recorded hit of this boot that the file has, of whatever CPU, task
    /// or point. The first of them is time 0 of every output, so that the same moment has the same time in all of them.
    pub fn span(&self) -> Option<(u64, u64)> {
        let samples = self.cpus.values().filter_map(|cpu| cpu.seen.tsc_min().zip(cpu.seen.tsc_max()));
        let hits = self.event_streams.values().filter_map(|stream| stream.tsc);
        samples.chain(hits).reduce(|(first, last), (from, to)| (first.min(from), last.max(to)))
    }

    /// The TSC of the newest sample, mark or change of a setting of this boot.
    pub fn last_tsc(&self) -> Option<u64> {
        let marks = self.marks.iter().chain(&self.settings).map(|mark| mark.tsc);
        self.cpus.values().filter_map(|cpu| cpu.seen.tsc_max()).chain(marks).max()
    }

    /// The id of the boot; empty if the header has none.
    pub fn id(&self) -> &str {
        self.fact(Fact::Boot).unwrap_or_default()
    }

    /// A fact of the header.
    pub fn fact(&self, fact: Fact) -> Option<&str> {
        self.header.get(fact.name()).map(String::as_str)
    }

    /// The trigger of the sampler. A header that is written before the sampler runs has the one that is used until
    /// then, `timer`; when the sampler starts, a setting in the profile says so.
    pub fn trigger(&self) -> Option<&str> {
        let changed = self.settings.iter().rev().find_map(|setting| setting.name.strip_prefix(b"trigger "));
        changed.and_then(|name| str::from_utf8(name).ok()).or_else(|| self.fact(Fact::Trigger))
    }

    /// A fact of the header as a decimal number.
    pub fn number(&self, fact: Fact) -> Option<u64> {
        self.fact(fact)?.trim().parse().ok()
    }

    /// TSC ticks in a second, if the header has the clock.
    pub fn tsc_hz(&self) -> Option<u64> {
        self.number(Fact::TscHz).filter(|hz| *hz > 0)
    }

    /// What ticks are caused by, if it is not time: the name of a counted event, and after how many of them one comes.
    pub fn event(&self) -> Option<(&str, u64)> {
        let (name, period) = self.fact(Fact::Event)?.split_once(" every ")?;
        Some((name, period.parse().ok()?))
    }

    /// Whether the addresses of samples are only exact to a translated block. This is the case in QEMU with a thread
    /// per CPU, which takes interrupts only at the start of a block.
    pub fn has_rough_places(&self) -> bool {
        self.fact(Fact::Precision) == Some(Precision::Block.name())
    }

    /// Whether the clock counts instructions, as QEMU's `-icount` does, instead of time.
    pub fn counts_instructions(&self) -> bool {
        self.fact(Fact::Clock) == Some("instructions")
    }
}

/// Everything that a file contains besides its stacks.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Boots in file order; at least one as soon as anything was read.
    pub boots: Vec<Boot>,
    /// Parts of time with ticks that have no sample, and samples that cannot be read.
    pub gaps: Vec<Gap>,
    /// Lines (or chunks) read.
    pub lines: u64,
    /// Bytes read.
    pub bytes: u64,
    /// The rate, per second and CPU, of which each counted sample is a period, if there is one such rate. Samples that
    /// were taken at a lower rate count several times ([`crate::weighed`]).
    pub rate: Option<u64>,
    /// How much the weights of these samples differ, if they do.
    pub unequal: Option<rates::Unequal>,
    /// What the chosen CPUs did in the chosen time, where the account does not say it.
    pub spent: Option<Spent>,
    /// Why what is shown of this profile may be wrong, in sentences: every output that is shared has them.
    pub doubts: Vec<String>,
}

impl Profile {
    /// Samples that count, all CPUs and boots.
    pub fn samples(&self) -> u64 {
        self.boots.iter().flat_map(|boot| boot.cpus.values()).map(|cpu| cpu.seen.samples()).sum()
    }

    /// Whether there are samples, and all are of user code.
    pub fn is_user_only(&self) -> bool {
        let kernel: u64 = self.boots.iter().flat_map(|boot| boot.cpus.values()).map(|cpu| cpu.seen.kernel()).sum();
        kernel == 0 && self.samples() > 0
    }

    /// Samples lost or missing, all CPUs and boots.
    pub fn lost(&self) -> u64 {
        self.gaps.iter().fold(0, |sum, gap| sum.saturating_add(gap.samples()))
    }

    /// Samples that count and lost ones. If ticks have weights, each is counted as often as it counts in the output, of
    /// the chosen CPUs and time.
    pub fn kept_and_lost(&self) -> (u64, u64) {
        match &self.spent {
            Some(spent) if self.unequal.is_some() => (spent.states.iter().sum(), spent.unsampled.lost),
            _ => (self.samples(), self.lost()),
        }
    }

    /// Samples that were delivered but cannot be read, all CPUs and boots.
    pub fn missing(&self) -> u64 {
        self.gaps.iter().fold(0, |sum, gap| sum.saturating_add(gap.missing))
    }
}
