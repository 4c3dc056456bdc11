//! Lines in, samples out: the part that all text forms share. Stage: read, the inner loop.
//!
//! In: lines of a text form, one at a time. Out: a [`Sample`] per well-formed line to a [`Consumer`], and the
//! [`Profile`]. Of a malformed line only that line is lost. For each line the loop finds three spaces, parses two
//! numbers and looks up one stack. Addresses are only parsed for a stack that was never seen before.

mod free;

use super::batch::Open;
use super::blocks::MAX_LINE_BYTES;
use super::consumer::{Consumer, Sample};
use super::form::Form;
use super::hex::{Addresses, BadNumber, hex32, hex64};
use super::lines::Lines;
use super::split::{BadField, Filled, Group, Parts, split};
use crate::problems::{Kind, Problems, shown};
use crate::profile::{Boot, Profile, Seen};
use crate::stacks::{self, Encoding, StackId, Stacks, Traits};
use kprof_format::fact::Fact;

/// Which fields a sample line has, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fields {
    /// `<task> <cpu> <tsc> <rip> <caller>...`: kprof, and Redox since 0.2.
    TaskFirst,
    /// `<cpu> <rip> <tsc> <caller>...`: Redox 0.1.0.
    CpuFirst,
}

/// The part of the file that the current line is in.
#[derive(Debug)]
pub(super) enum Region {
    /// Outside any batch.
    Free,
    /// In a batch. It counts when its end has been read; in the serial form also if the end is missing.
    Batch(Box<Open>),
    /// In a batch that was seen before.
    Repeated,
    /// After a batch line whose positions overlap earlier ones: nothing counts up to the next end line.
    Damaged,
}

/// The state between two lines.
pub struct Ingest<C> {
    pub(super) file: String,
    pub(super) consumer: C,
    pub(super) profile: Profile,
    pub(super) problems: Problems,
    pub(super) stacks: Stacks,
    pub(super) boot: usize,
    /// The only boot that is read, if one was chosen: nothing of the others counts.
    pub(super) only: Option<usize>,
    /// The boot to whose code the addresses of the stacks belong; [`usize::MAX`] before the first sample.
    pub(super) relocation: usize,
    pub(super) region: Region,
    pub(super) line: u64,
    /// Whether the current line ends in CR LF.
    pub(super) has_cr: bool,
    /// Samples outside any batch, by CPU, that are not in the profile yet.
    free: Vec<Seen>,
    /// Whether there are samples outside any batch from CPUs that `free` has no entry for.
    free_beyond: bool,
    /// Whether batches have checksums: in the text form. In the others, lines or chunks have their own.
    pub(super) is_text: bool,
    /// Whether a header or a batch has come in the text form: from then on a line outside any batch is damage.
    pub(super) only_batches: bool,
    /// Whether no batch has come since the last header began.
    pub(super) is_in_header: bool,
    /// The first of the lines outside any batch that have not been reported yet, and how many they are.
    stray: Option<(u64, u64)>,
    /// Boot, CPU and first position of each batch that was left out.
    pub(super) begins: Vec<(usize, u32, u64)>,
    fields: Fields,
    words: Vec<u64>,
    joined: Vec<u8>,
}

impl<C: Consumer> Ingest<C> {
    /// A new state at the beginning of the file named `file`.
    pub fn new(file: &str, form: Form, only: Option<usize>, consumer: C) -> Self {
        let fields = if form == Form::RedoxCpuFirst { Fields::CpuFirst } else { Fields::TaskFirst };
        let encoding = if form == Form::Binary { Encoding::Words } else { Encoding::Hex };
        Self {
            file: file.to_owned(),
            consumer,
            profile: Profile::default(),
            problems: Problems::default(),
            stacks: Stacks::new(encoding),
            boot: 0,
            only,
            relocation: usize::MAX,
            region: Region::Free,
            line: 0,
            has_cr: false,
            free: Vec::new(),
            free_beyond: false,
            is_text: !matches!(form, Form::Binary | Form::Serial),
            only_batches: false,
            is_in_header: true,
            stray: None,
            begins: Vec::new(),
            fields,
            words: Vec::new(),
            joined: Vec::new(),
        }
    }

    /// Reads one line without its LF.
    pub fn line(&mut self, line: &[u8]) {
        if line.len() > MAX_LINE_BYTES {
            return self.too_long(line.len() as u64);
        }
        self.line += 1;
        let stripped = line.strip_suffix(b"\r");
        self.has_cr = stripped.is_some();
        let line = stripped.unwrap_or(line);
        if line.first() == Some(&b'#') && self.is_metadata(line) {
            self.metadata(line);
            return;
        }
        let is_left_out = self.is_left_out();
        match &mut self.region {
            Region::Batch(open) if open.events.is_some() => return open.hold_event(self.line, line),
            Region::Repeated | Region::Damaged => return,
            Region::Free if self.only_batches => return self.stray_line(),
            Region::Free if is_left_out => return,
            Region::Free | Region::Batch(_) => {}
        }
        let result = match self.fields {
            Fields::TaskFirst => self.sample(line),
            Fields::CpuFirst => self.cpu_first(line),
        };
        if let Err((field, bad)) = result {
            self.malformed(line, field, bad);
        }
    }

    /// Reads one sample of a binary chunk. Its stack is innermost first.
    pub(super) fn binary(&mut self, task: &[u8], cpu: u32, tsc: u64, words: &[u64]) {
        if matches!(self.region, Region::Repeated | Region::Damaged) || self.is_left_out() {
            return;
        }
        self.check_era();
        let mut bytes = std::mem::take(&mut self.joined);
        bytes.clear();
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        let hash = stacks::hash(&bytes);
        let (stack, traits) = self.stacks.find(&bytes, hash).unwrap_or_else(|| self.stacks.insert(&bytes, hash, words));
        self.book(Parts { task, cpu, tsc, stack: &bytes, hash }, stack, traits);
        self.joined = bytes;
    }

    /// Counts a line that was too long to be read.
    pub fn too_long(&mut self, bytes: u64) {
        self.line += 1;
        if let Region::Batch(open) = &mut self.region {
            open.lines += 1;
        }
        let (file, line) = (&self.file, self.line);
        self.problems
            .add(Kind::LongLine, || format!("{file}:{line}: line of {bytes} bytes skipped (at most 4 MiB count)"));
    }

    /// In Redox's old texts, a task may begin with `#`: such a line is a sample if it is well-formed.
    fn is_metadata(&self, line: &[u8]) -> bool {
        if self.fields == Fields::CpuFirst
            || self.profile.boots.get(self.boot).is_some_and(|boot| boot.version.is_some())
        {
            return true;
        }
        let mut fields = line.split(|byte| *byte == b' ').skip(1);
        let cpu = fields.next().map(hex32);
        let rest_is_hex = fields.clone().count() >= 2 && fields.all(|field| hex64(field).is_ok());
        !(matches!(cpu, Some(Ok(_))) && rest_is_hex)
    }

    /// Processes the lines of `block`, which must end with an LF: bytes after the last LF are ignored. Sample lines of
    /// the usual form are processed in groups.
    pub fn lines(&mut self, block: &[u8]) {
        let mut group = Group::default();
        let mut lines = Lines::of(block);
        let mut summed = 0;
        loop {
            let line = if self.fields == Fields::TaskFirst && self.takes_samples() {
                let filled = group.fill(&mut lines);
                self.group(&group);
                match filled {
                    Filled::Full => continue,
                    Filled::End => break,
                    Filled::Odd(line) => line,
                }
            } else {
                match lines.next() {
                    Some(line) => line,
                    None => break,
                }
            };
            if line.first() == Some(&b'#') {
                // A batch begins and ends where such a line begins.
                let start = lines.taken() - line.len() - 1;
                self.sum(&block[summed..start]);
                summed = start;
            }
            self.line(line);
        }
        self.sum(&block[summed..lines.taken()]);
    }

    /// Whether another boot than the present one was chosen.
    #[inline]
    pub(super) fn is_left_out(&self) -> bool {
        self.only.is_some_and(|only| only != self.boot)
    }

    /// The number of the present boot among those that are read.
    #[inline]
    pub(super) fn shown_boot(&self) -> usize {
        if self.only.is_some() { 0 } else { self.boot }
    }

    /// Whether a sample line counts in the present part of the file.
    fn takes_samples(&self) -> bool {
        match &self.region {
            Region::Batch(open) => open.events.is_none(),
            Region::Free => !self.only_batches && !self.is_left_out(),
            Region::Repeated | Region::Damaged => false,
        }
    }

    /// Adds bytes to the checksum of the open batch.
    fn sum(&mut self, bytes: &[u8]) {
        if self.is_text
            && let Region::Batch(open) = &mut self.region
        {
            open.seal.add(bytes);
        }
    }

    /// Counts the lines of a group. All lookups of the group are done before anything is counted: their loads do not
    /// depend on each other, so the CPU can overlap them.
    fn group(&mut self, group: &Group<'_>) {
        if group.taken() == 0 {
            return;
        }
        self.check_era();
        let candidates = self.stacks.candidates(group.hashes());
        for (at, candidate) in candidates.into_iter().enumerate().take(group.taken()) {
            self.line += 1;
            match self.stacks.confirm(candidate, group.stack(at)) {
                Some((stack, traits)) => self.book(group.parts(at), stack, traits),
                None => self.unconfirmed(group, at),
            }
        }
    }

    /// Slow path: the stack found by the hash is a different one, or this stack is new.
    #[cold]
    fn unconfirmed(&mut self, group: &Group<'_>, at: usize) {
        if let Err((field, bad)) = self.parts(group.parts(at)) {
            self.malformed(group.line(at), field, bad);
        }
    }

    fn sample(&mut self, line: &[u8]) -> Result<(), BadField> {
        self.parts(split(line)?)
    }

    fn parts(&mut self, parts: Parts<'_>) -> Result<(), BadField> {
        self.check_era();
        let (id, traits) = match self.stacks.find(parts.stack, parts.hash) {
            Some(found) => found,
            None => self.new_stack(parts.stack, parts.hash)?,
        };
        self.book(parts, id, traits);
        Ok(())
    }

    fn cpu_first(&mut self, line: &[u8]) -> Result<(), BadField> {
        let mut fields = line.splitn(4, |byte| *byte == b' ');
        let mut next = |name| fields.next().ok_or((name, BadNumber::Empty));
        let cpu = hex32(next("cpu")?).map_err(|bad| ("cpu", bad))?;
        let address = next("first address")?;
        let tsc = hex64(next("tsc")?).map_err(|bad| ("tsc", bad))?;
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        joined.extend_from_slice(address);
        if let Some(callers) = fields.next() {
            joined.push(b' ');
            joined.extend_from_slice(callers);
        }
        let parts = Parts { task: b"-", cpu, tsc, stack: &joined, hash: stacks::hash(&joined) };
        let result = self.parts(parts);
        self.joined = joined;
        result
    }

    /// A boot whose code was loaded elsewhere has its own stacks.
    #[inline]
    pub(super) fn check_era(&mut self) {
        if self.boot != self.relocation {
            self.change_era();
        }
    }

    #[cold]
    fn change_era(&mut self) {
        let boots = &self.profile.boots;
        let place = |boot: usize| boots.get(boot).map(|boot| (boot.fact(Fact::Load), boot.low_text(), &boot.images));
        if place(self.boot) != place(self.relocation) {
            self.stacks.begin_era(self.shown_boot(), boots.get(self.boot).and_then(Boot::low_text));
        }
        self.relocation = self.boot;
    }

    #[cold]
    fn new_stack(&mut self, stack: &[u8], hash: u64) -> Result<(StackId, Traits), BadField> {
        self.words.clear();
        for address in Addresses::of(stack) {
            self.words.push(address.map_err(|bad| ("address", bad))?);
        }
        Ok(self.stacks.insert_parsed(stack, hash, &self.words))
    }

    #[inline(always)]
    fn book(&mut self, parts: Parts<'_>, stack: StackId, traits: Traits) {
        let Parts { task, cpu, tsc, .. } = parts;
        match &mut self.region {
            Region::Batch(open) if open.cpu == Some(cpu) => {
                open.lines += 1;
                open.seen.add(tsc, traits);
            }
            Region::Batch(_) => {
                if !self.counts_in_batch(cpu, tsc, traits) {
                    return;
                }
            }
            _ => match self.free.get_mut(cpu as usize) {
                Some(seen) => seen.add(tsc, traits),
                None => self.first_on_cpu(cpu, tsc, traits),
            },
        }
        self.consumer.sample(&Sample { boot: self.shown_boot(), task, cpu, tsc, stack, traits });
    }

    /// Counts a sample in the open batch if its CPU is not known to be that of the batch. Returns whether the sample
    /// counts.
    #[cold]
    fn counts_in_batch(&mut self, cpu: u32, tsc: u64, traits: Traits) -> bool {
        let Region::Batch(open) = &mut self.region else { return false };
        open.lines += 1;
        if open.cpu.is_none() && open.doubt.is_none() {
            // A batch of the meta stream has names and marks but no CPU, and it may be repeated.
            let (file, line) = (&self.file, self.line);
            self.problems.add(Kind::Sample, || format!("{file}:{line}: a sample in the batch of meta; line skipped"));
            return false;
        }
        open.seen.add(tsc, traits);
        open.strangers.get_or_insert((self.line, cpu, 0)).2 += 1;
        true
    }

    #[cold]
    fn malformed(&mut self, line: &[u8], field: &str, bad: BadNumber) {
        if let Region::Batch(open) = &mut self.region {
            open.lines += 1;
        }
        let (file, number) = (&self.file, self.line);
        self.problems.add(Kind::Sample, || format!("{file}:{number}: {field} {bad} in {}; line skipped", shown(line)));
    }

    /// The boot that the next line belongs to. Creates a boot without an id for Redox's old text forms.
    pub(super) fn present_boot(&mut self) -> &mut Boot {
        if self.profile.boots.is_empty() {
            self.profile.boots.push(Boot::default());
        }
        &mut self.profile.boots[self.boot]
    }
}
