//! Profiles for other viewers. Stage: output.
//!
//! In: the samples of each CPU, symbols, ticks without a sample, marks, settings. Out: the Firefox Profiler's processed
//! form, speedscope's sampled form, Perfetto's trace packets, pprof's protocol buffer, Linux perf's file, or, with
//! cargo features, Parquet tables or OpenTelemetry's profiles. All are written piece by piece and are never all in
//! memory. Lost samples are the function `[lost]` in each of them, but in perf's file they are its own records of
//! losses.

pub mod firefox;
pub mod hits;
#[cfg(feature = "otlp")]
pub mod otlp;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod perf_data;
pub mod perfetto;
pub mod places;
pub mod pprof;
pub mod speedscope;
pub mod values;

use crate::intervals::Intervals;
use crate::output::{folded, lockups};
use crate::profile::{Gap, Profile};
use crate::select::Select;
use crate::stacks::{StackId, Stacks};
use crate::symbols::Symbols;
use crate::symbols::name::visible;
use crate::timeline::Clock;
use crate::tracks::Tracks;
use hits::Hits;
use kprof_format::fact::Fact;
use places::Places;

/// Ticks without a sample in a part of one CPU's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// Index of the boot.
    pub boot: u32,
    /// CPU.
    pub cpu: u32,
    /// Where that part of the time begins and ends.
    pub tsc: (u64, u64),
    /// Why they have none.
    pub reason: Reason,
    /// How many.
    pub count: u64,
}

/// Why a tick has no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its sample was lost.
    Lost,
    /// It hit user code, and was only counted.
    User,
    /// It hit the idle task, and was only counted.
    Idle,
    /// It hit kernel code that the recording left out, and was only counted.
    Filtered,
    /// It was coalesced with the next one.
    Coalesced,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 5] = [Self::Lost, Self::User, Self::Idle, Self::Filtered, Self::Coalesced];

    /// The name of the function that stands for these ticks. Of which tasks they are is not known.
    pub fn name(self, select: &Select) -> &'static str {
        let [name, of_any_task] = match self {
            Self::Lost => [folded::LOST, folded::LOST_ANYWHERE],
            Self::User => [folded::USER, folded::USER_ANYWHERE],
            Self::Idle => [folded::IDLE, folded::IDLE_ANYWHERE],
            Self::Filtered => ["[kernel, not recorded]", "[kernel, not recorded, of any task]"],
            Self::Coalesced => [folded::COALESCED, folded::COALESCED_ANYWHERE],
        };
        if select.tasks.is_empty() { name } else { of_any_task }
    }

    /// How many of the ticks of a gap have this reason.
    fn of(self, gap: &Gap) -> u64 {
        match self {
            Self::Lost => gap.samples(),
            Self::User => gap.ticks.user,
            Self::Idle => gap.ticks.idle,
            Self::Filtered => gap.ticks.kernel,
            Self::Coalesced => gap.ticks.coalesced,
        }
    }
}

/// A mark, or a setting that was changed.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Index of the boot.
    pub boot: u32,
    /// When.
    pub tsc: u64,
    /// What it says.
    pub name: String,
    /// Whether it is a setting.
    pub is_setting: bool,
}

/// The input of all exporters.
pub struct Input<'a> {
    /// The samples.
    pub tracks: &'a Tracks,
    /// Frames of each distinct stack.
    pub places: Places,
    /// The time that a sample stands for: the period of the rate, otherwise the median of the times between
    /// two samples of a CPU.
    pub period_ns: u64,
    /// The name of the profile.
    pub name: String,
    /// The file of the kernel's symbols.
    pub kernel: String,
    /// The processor, as the profile or the kernel's ELF file names it.
    pub arch: String,
    /// The build id of the kernel, in hex.
    pub build_id: Option<String>,
    /// The clock of the sample times.
    pub clock: Clock,
    /// Where the kernel's code begins.
    kernel_start: u64,
    /// Ticks without a sample, by boot, CPU and time.
    pub ticks: Vec<Ticks>,
    /// The choice of samples.
    pub select: &'a Select,
    /// Marks and settings, in file order.
    pub marks: Vec<Mark>,
}

impl<'a> Input<'a> {
    /// Looks up the names of all stacks.
    pub fn new(
        tracks: &'a Tracks,
        names: (&Stacks, &Symbols, &'a Select),
        profile: &Profile,
        about: (f64, &str, &str),
    ) -> Self {
        let given = tracks.tracks.iter().flat_map(|track| track.samples()).map(|sample| sample.stack);
        Self::with(tracks, given, unsampled(profile, names.2), names, profile, about)
    }

    /// The same for recorded hits. `tracks` has their tasks, and no samples. `more` are other stacks to look up.
    pub fn of_hits(
        tracks: &'a Tracks,
        (hits, more): (&Hits, &[StackId]),
        names: (&Stacks, &Symbols, &'a Select),
        profile: &Profile,
        about: (f64, &str, &str),
    ) -> Self {
        let given = hits.hits.iter().map(|hit| hit.stack).chain(more.iter().copied());
        Self::with(tracks, given, Vec::new(), names, profile, about)
    }

    fn with(
        tracks: &'a Tracks,
        given: impl Iterator<Item = StackId>,
        ticks: Vec<Ticks>,
        (stacks, symbols, select): (&Stacks, &Symbols, &'a Select),
        profile: &Profile,
        (tsc_hz, name, kernel): (f64, &str, &str),
    ) -> Self {
        let places = Places::new(given, stacks, symbols, select.user);
        let header_hz = || profile.boots.iter().find_map(|boot| boot.number(Fact::Hz)).filter(|hz| *hz > 0);
        let rate_hz = profile.rate.or_else(header_hz);
        let clock = Clock::new(profile, tsc_hz);
        let told = profile.boots.iter().find_map(|boot| boot.fact(Fact::BuildId)).filter(|id| *id != "-");
        let arch = profile.boots.iter().find_map(|boot| boot.fact(Fact::Arch));
        let arch = arch.or(symbols.elf.as_ref().and_then(|elf| elf.arch_name())).unwrap_or("x86_64");
        let own = symbols.elf.as_ref().and_then(|elf| elf.build_id.as_deref());
        let lowest = places.places.iter().filter(|place| place.image == 0).filter_map(|place| place.symbol).min();
        let file = symbols.elf.as_ref().map(|elf| elf.base.wrapping_add(symbols.slide));
        let kernel_start =
            file.or(symbols.kernel_text.map(|text| text.0)).or(lowest.map(|(start, _)| start)).unwrap_or(0);
        Self {
            tracks,
            places,
            period_ns: rate_hz.map_or_else(|| middle_interval_ns(tracks, tsc_hz), |hz| 1_000_000_000 / hz).max(1),
            name: visible(name).into_owned(),
            kernel: visible(kernel).into_owned(),
            arch: visible(arch).into_owned(),
            build_id: own.or(told).map(|id| visible(id).into_owned()),
            kernel_start,
            ticks,
            select,
            marks: marks(profile, &clock, tsc_hz),
            clock,
        }
    }

    /// Boots and CPUs that have samples or ticks without one, in their order.
    pub fn cpus(&self) -> Vec<(u32, u32)> {
        let of_tracks = self.tracks.tracks.iter().map(|track| (track.boot, track.cpu));
        let mut cpus: Vec<_> = of_tracks.chain(self.ticks.iter().map(|ticks| (ticks.boot, ticks.cpu))).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// How far an address is from the beginning of its image; the kernel is image 0.
    pub fn within_image(&self, image: u32, address: u64) -> u64 {
        let start = match image.checked_sub(1) {
            Some(image) => self.places.images[image as usize].start,
            None => self.kernel_start,
        };
        address.saturating_sub(start)
    }

    /// The ticks of one CPU that have no sample for this reason.
    pub fn ticks_of(&self, (boot, cpu): (u32, u32), reason: Reason) -> impl Iterator<Item = &Ticks> {
        self.ticks.iter().filter(move |ticks| (ticks.boot, ticks.cpu, ticks.reason) == (boot, cpu, reason))
    }

    /// The name of the function that stands for lost samples.
    pub fn lost(&self) -> &'static str {
        Reason::Lost.name(self.select)
    }

    /// `CPU n`, with the boot if there are several.
    pub fn cpu_name(&self, (boot, cpu): (u32, u32)) -> String {
        if self.clock.boots() > 1 { format!("boot {}, CPU {cpu}", boot + 1) } else { format!("CPU {cpu}") }
    }
}

/// The ticks without a sample within the selection.
pub fn unsampled(profile: &Profile, select: &Select) -> Vec<Ticks> {
    let mut all = Vec::new();
    for gap in profile.gaps.iter().filter(|gap| select.admits_cpu(gap.cpu)) {
        let seen = profile.boots.get(gap.boot).and_then(|boot| boot.cpus.get(&gap.cpu)).map(|cpu| cpu.seen);
        let first = seen.and_then(|seen| seen.tsc_min()).unwrap_or(0);
        let to = gap.to.or(gap.from).unwrap_or(first);
        let (begin, end) = select.between.unwrap_or((0, u64::MAX));
        let within = |tsc: u64| tsc.max(begin).min(end.saturating_sub(1).max(begin));
        let tsc = (within(gap.from.unwrap_or(to.min(first)).min(to)), within(to));
        for reason in Reason::ALL {
            let count = select.share(reason.of(gap), gap.from, gap.to);
            let ticks = Ticks { boot: gap.boot as u32, cpu: gap.cpu, tsc, reason, count };
            all.extend((count > 0).then_some(ticks));
        }
    }
    all.sort_by_key(|ticks| (ticks.boot, ticks.cpu, ticks.tsc));
    all
}

/// The marks, settings and lockups. One before time 0 is shown at time 0 and says how much earlier it was.
fn marks(profile: &Profile, clock: &Clock, tsc_hz: f64) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (boot, number) in profile.boots.iter().zip(0..) {
        let mut add = |tsc: u64, name: String, is_setting| {
            let zero = clock.zero(number);
            let early = zero.checked_sub(tsc).filter(|ticks| *ticks > 0).map(|ticks| ticks as f64 / tsc_hz);
            let name = early.map_or(name.clone(), |seconds| format!("{name} ({seconds:.6} s earlier)"));
            marks.push(Mark { boot: number, tsc: tsc.max(zero), name, is_setting });
        };
        for (list, is_setting) in [(&boot.marks, false), (&boot.settings, true)] {
            for mark in list {
                add(mark.tsc, visible(&String::from_utf8_lossy(&mark.name)).into_owned(), is_setting);
            }
        }
        for lockup in &boot.lockups {
            add(lockup.tsc, lockups::sentence(lockup, boot.tsc_hz().map(|hz| hz as f64)), false);
        }
    }
    marks
}

/// The bytes of a build id in hex.
fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect()
}

/// The median of the times between two samples of a CPU, for profiles that do not contain their rate.
fn middle_interval_ns(tracks: &Tracks, tsc_hz: f64) -> u64 {
    let mut intervals = Intervals::default();
    for track in &tracks.tracks {
        let mut before = None;
        for sample in track.samples() {
            before.replace(sample.tsc).into_iter().for_each(|before| intervals.add(sample.tsc - before));
        }
    }
    intervals.middle().map_or(1_000_000, |interval| (interval / tsc_hz * 1e9) as u64)
}
