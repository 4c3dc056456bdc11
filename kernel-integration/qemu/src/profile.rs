//! Writes the profile: kprof's text form, with its account. Stage: capture.
//!
//! In: messages of the plugin. Out: a header, batches with checksums, and an account for each vCPU. Every tick ends in
//! exactly one counter. Addresses in kernel mode that are not the kernel's (firmware, boot loaders) are written as
//! unknown.

mod about;
mod counts;
#[cfg(test)]
mod tests;

pub use about::{About, Code};
pub use counts::Counts;
use counts::KINDS;

use crate::message::{Message, Sample};
use crate::walk::half::UPPER;
use anyhow::{Result, bail};
use kprof_format::checksum::Crc32;
use kprof_format::counter::Counter;
use kprof_format::fact::Fact;
use kprof_format::line::{self, Checksum, Cpu, Header, Stream};
use kprof_format::marker::{Facts, Marker, TruncationReason};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

/// Samples of a batch.
const BATCH: u64 = 512;
/// Stands for code that is not the kernel's. It is not canonical, so no code can be there.
const UNKNOWN: u64 = UPPER;
/// The lowest address in the upper half that is canonical: those below are of kernel code in the lower half.
const CANONICAL: u64 = 3 << 62;
/// The interrupt flag, where RFLAGS has it.
const INTERRUPT_FLAG: u64 = 1 << 9;
/// The task of all samples: tasks are not known from outside.
const TASK: &str = "guest";

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    /// Whether a tick found user code, or the upper half of the address space: firmware has neither.
    has_booted: bool,
    /// Words of all samples, and of those in written batches.
    position: u64,
    written: u64,
    /// The open batch: its lines, and the tick numbers of its first and last sample.
    lines: String,
    samples: u64,
    ticks: (u64, u64),
}

/// A profile that is being written.
pub struct Profile<W> {
    out: W,
    about: About,
    cpus: BTreeMap<u32, State>,
    /// Whether the kernel of the given file runs.
    has_kernel: bool,
    /// What became of the ticks before the guest rebooted.
    earlier: BTreeMap<u32, Counts>,
}

impl<W: Write> Profile<W> {
    /// Begins a profile.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(out: W, about: &About) -> Result<Self> {
        let (cpus, earlier) = (BTreeMap::new(), BTreeMap::new());
        let mut profile = Self { out, about: about.clone(), cpus, has_kernel: false, earlier };
        profile.write_header()?;
        Ok(profile)
    }

    /// Begins a boot with what is known of it.
    fn write_header(&mut self) -> Result<()> {
        let about = &self.about;
        writeln!(self.out, "{}", line::Profile { version: line::VERSION })?;
        let facts = [
            (Fact::TscHz, Some("1000000000".to_owned())),
            (Fact::Boot, Some(about.boot_id())),
            (Fact::Arch, Some(about.arch.to_owned())),
            (Fact::Trigger, Some("outside".to_owned())),
            (Fact::Clock, Some(if about.hz.is_some() { "tsc" } else { "instructions" }.to_owned())),
            (Fact::Precision, Some(about.precision.name().to_owned())),
            (Fact::Hz, about.hz.map(|hz| hz.to_string())),
            (Fact::Interval, Some("random 50".to_owned())),
            (Fact::Seed, Some(about.seed.to_string())),
            (Fact::Include, Some(if about.code.has_user() { "user" } else { "-" }.to_owned())),
            (Fact::Exclude, (!about.code.has_kernel()).then(|| "kernel".to_owned())),
            (Fact::Mode, Some("drop".to_owned())),
        ];
        for (fact, value) in facts {
            if let Some(value) = value {
                writeln!(self.out, "{}", Header { fact, value })?;
            }
        }
        Ok(())
    }

    /// The machine was reset: ends this boot with its account, and begins another one. False if there are only samples
    /// of firmware in this boot: some firmware resets the machine itself, and that is no other boot of the kernel.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn reset(&mut self) -> Result<bool> {
        if !self.has_kernel && !self.cpus.values().any(|state| state.has_booted) {
            return Ok(false);
        }
        self.has_kernel = false;
        self.end_boot()?;
        self.about.boot = self.about.boot.wrapping_add(1);
        self.write_header()?;
        Ok(true)
    }

    /// The kernel of the given file was found: this boot has one.
    pub fn found_kernel(&mut self) {
        self.has_kernel = true;
    }

    /// Takes a message.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn take(&mut self, message: &Message) -> Result<()> {
        match message {
            Message::Sample(sample) => return self.sample(sample),
            Message::Idle { cpu } => self.count(*cpu, |counts| counts.idle += 1),
            Message::Coalesced { cpu } => self.count(*cpu, |counts| counts.coalesced += 1),
            Message::Pending { cpu } => self.count(*cpu, |counts| counts.pending += 1),
            _ => bail!("the plugin counts, and was not asked to"),
        }
        Ok(())
    }

    /// How many samples there are.
    pub fn recorded(&self) -> u64 {
        let earlier: u64 = self.earlier.values().map(|counts| counts.recorded).sum();
        self.cpus.values().map(|state| state.counts.recorded).sum::<u64>() + earlier
    }

    fn count(&mut self, cpu: u32, add: impl Fn(&mut Counts)) {
        let counts = &mut self.cpus.entry(cpu).or_default().counts;
        counts.sent += 1;
        add(counts);
    }

    fn sample(&mut self, sample: &Sample) -> Result<()> {
        let (is_user, code) = (sample.is_user(), self.about.code);
        let state = self.cpus.entry(sample.cpu).or_default();
        state.has_booted |= is_user || sample.rip >= CANONICAL;
        let is_filtered = if is_user { !code.has_user() } else { !code.has_kernel() };
        state.counts.sent += 1;
        match (is_filtered, is_user) {
            (false, _) => state.counts.recorded += 1,
            (true, true) => state.counts.user += 1,
            (true, false) => state.counts.kernel += 1,
        }
        if is_filtered {
            return Ok(());
        }
        state.counts.unknown += u64::from(!is_user && sample.rip < UPPER);
        let words = words(sample);
        let kind = KINDS.iter().position(|kind| *kind == kind_of(is_user, &words));
        kind.into_iter().for_each(|kind| state.counts.kinds[kind] += 1);
        // Writing to a string cannot fail.
        let _ = write!(state.lines, "{TASK} {:x} {:x}", sample.cpu, sample.time);
        for word in &words {
            let _ = write!(state.lines, " {word:x}");
        }
        state.lines.push('\n');
        state.position += 3 + words.len() as u64;
        if state.samples == 0 {
            state.ticks.0 = state.counts.sent;
        }
        state.ticks.1 = state.counts.sent;
        state.samples += 1;
        if state.samples == BATCH { self.close(sample.cpu) } else { Ok(()) }
    }

    /// Writes the open batch of a vCPU.
    fn close(&mut self, cpu: u32) -> Result<()> {
        let Some(state) = self.cpus.get_mut(&cpu).filter(|state| state.samples > 0) else { return Ok(()) };
        let counters = state.counts.list();
        let list = |each: &mut dyn FnMut(&str, u64) -> std::fmt::Result| {
            let of_batches = counters.iter().filter(|(counter, _)| Counter::BATCH.contains(counter));
            of_batches.map(|(counter, value)| (counter.name(), *value)).try_for_each(|(name, value)| each(name, value))
        };
        let first = line::Batch {
            cpu: Stream::Cpu(cpu),
            from: state.written,
            to: state.position,
            first_tick: Some(state.ticks.0),
            last_tick: Some(state.ticks.1),
            counters: line::Counters::List(&list),
            snapshot: None,
            boot: None,
        };
        let text = format!("{first}\n{}", state.lines);
        let crc = Crc32::of_batch(&self.about.boot_id()).with(text.as_bytes()).end();
        let (to, samples, crc) = (state.position, Some(state.samples), Some(Checksum(crc)));
        self.out.write_all(text.as_bytes())?;
        writeln!(self.out, "{}", line::End { cpu: Stream::Cpu(cpu), to, samples, crc })?;
        state.written = state.position;
        state.samples = 0;
        state.lines.clear();
        Ok(())
    }

    /// Ends a profile some of whose samples may be missing: without an account. Returns the number of its samples.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn cut_off(mut self) -> Result<u64> {
        self.close_all()?;
        self.out.flush()?;
        Ok(self.recorded())
    }

    fn close_all(&mut self) -> Result<()> {
        let cpus: Vec<u32> = self.cpus.keys().copied().collect();
        cpus.into_iter().try_for_each(|cpu| self.close(cpu))
    }

    /// Ends the profile, and says what each vCPU's ticks have become.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> Result<BTreeMap<u32, Counts>> {
        self.end_boot()?;
        self.out.flush()?;
        Ok(self.earlier)
    }

    fn end_boot(&mut self) -> Result<()> {
        self.close_all()?;
        for (cpu, State { counts, .. }) in std::mem::take(&mut self.cpus) {
            let counters = counts.list();
            let list = |each: &mut dyn FnMut(&str, u64) -> std::fmt::Result| {
                counters.iter().try_for_each(|(counter, value)| each(counter.name(), *value))
            };
            writeln!(self.out, "{}", line::Account { cpu: Cpu(cpu), counters: line::Counters::List(&list) })?;
            self.earlier.entry(cpu).or_default().add(&counts);
        }
        Ok(())
    }
}

/// The kind of a sample: what kprof-fold takes it for, too.
fn kind_of(is_user: bool, words: &[u64]) -> Counter {
    let mut markers = words.iter().filter_map(|word| Marker::decode(*word));
    let is_off = |word: &u64| *word == Marker::Facts(Facts(Facts::INTERRUPTS_OFF)).encode();
    match () {
        () if is_user => Counter::RecordedUser,
        () if markers.any(|it| matches!(it, Marker::Interrupt(_) | Marker::Exception(_))) => Counter::Interrupt,
        () if words.get(1).is_some_and(is_off) => Counter::IrqOff,
        () => Counter::IrqOn,
    }
}

/// The words of a stack, innermost first.
fn words(sample: &Sample) -> Vec<u64> {
    if sample.is_user() {
        return vec![sample.rip];
    }
    let is_known = sample.rip >= UPPER;
    let mut words = vec![if is_known { sample.rip } else { UNKNOWN }];
    if sample.rflags & INTERRUPT_FLAG == 0 {
        words.push(Marker::Facts(Facts(Facts::INTERRUPTS_OFF)).encode());
    }
    if !is_known {
        return words;
    }
    if sample.candidate != 0 {
        words.extend([Marker::Candidate.encode(), sample.candidate]);
    }
    words.extend(&sample.callers);
    if sample.end != 0 {
        let reason = TruncationReason::from_low(sample.end as u8).ok_or(sample.end as u8);
        words.push(Marker::Truncated(reason).encode());
    }
    words
}
