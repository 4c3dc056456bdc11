//! Applies each metadata line to the state. Stage: read.
//!
//! In: `#` lines, at most a few for every batch. Out: boots, batches opened, closed or dropped, counters, names. A line
//! that cannot be parsed is reported and skipped. [`super::damage`] decides what becomes of the batch of a damaged
//! line.

use super::batch::{self, Open, Position};
use super::ingest::{Consumer, Ingest, Region};
use super::metadata::{self, Line};
use crate::problems::{Kind, shown};
use crate::profile::{Boot, Counters};

/// The newest version of the profile format that this reader knows.
pub const KNOWN_VERSION: u32 = 1;

impl<C: Consumer> Ingest<C> {
    /// Reads a line that begins with `#`.
    #[cold]
    pub(super) fn metadata(&mut self, line: &[u8]) {
        match metadata::parse(line) {
            Ok(Line::Profile(version)) => self.new_header(version),
            Ok(Line::Batch { cpu, positions, counters }) => self.begin(cpu, positions, counters),
            Ok(Line::End { cpu, to, samples }) => self.end(cpu, to, samples),
            Ok(Line::Account { cpu, counters }) => self.account(cpu, counters),
            Ok(Line::Header(key, value)) => self.header(key, value),
            Ok(Line::Anchor(name, address)) => self.present_boot().anchors.push((name, address)),
            Ok(Line::Task(id, name)) => drop(self.present_boot().tasks.insert(id, name)),
            Ok(other) if matches!(self.region, Region::Repeated | Region::Damaged) => drop(other),
            Ok(Line::Corrupt(words)) => {
                let (file, number) = (&self.file, self.line);
                self.problems.add(Kind::Note, || format!("{file}:{number}: {words} words of the ring were no record"));
            }
            Ok(Line::Mark(mark)) => self.present_boot().marks.push(mark),
            Ok(Line::Setting(setting)) => self.present_boot().settings.push(setting),
            Ok(Line::Events(task, counts)) => self.present_boot().add_events(task, &counts),
            Ok(Line::Image(image)) => {
                // The kernel reports its images again to each new reader, so repeated ones are ignored.
                let images = &mut self.present_boot().images;
                if !images.contains(&image) {
                    images.push(image);
                }
            }
            Err(why) => {
                let (file, number) = (&self.file, self.line);
                self.problems
                    .add(Kind::Metadata, || format!("{file}:{number}: {why} in {}; line skipped", shown(line)));
                if line.starts_with(b"# batch") {
                    self.begin_torn(line);
                } else if line.starts_with(b"# end") {
                    self.end_torn(line);
                }
            }
        }
    }

    /// Closes the open batch: its chunk was complete, so the batch is.
    pub(super) fn end_of_chunk(&mut self) {
        if let Region::Batch(open) = &self.region {
            let (cpu, to) = (open.cpu, open.positions.1);
            self.end(cpu, to, None);
        }
        self.region = Region::Free;
    }

    /// Called at the end of the stream.
    pub fn finish(&mut self) {
        self.drop_open("the file ends");
        self.flush_free();
        // Only the account contains the losses after the last batch.
        for (index, boot) in self.profile.boots.iter().enumerate() {
            let late = boot.cpus.iter().filter_map(|(number, cpu)| {
                cpu.account.as_ref().and_then(|account| batch::gap(index, *number, cpu, account, None, 0))
            });
            self.profile.intervals.extend(late);
        }
        self.count_missing();
        self.profile.lines = self.line;
    }

    fn new_header(&mut self, version: u32) {
        self.drop_open("a new header begins");
        self.flush_free();
        self.boot = self.profile.boots.len();
        self.profile.boots.push(Boot { version: Some(version), ..Boot::default() });
        if version > KNOWN_VERSION {
            let (file, line) = (&self.file, self.line);
            self.problems.add(Kind::Note, || {
                format!("{file}:{line}: form version {version}; this kprof-fold knows up to {KNOWN_VERSION}, take a newer one")
            });
        }
    }

    /// Reads a header value. The same boot id as in an earlier header means that the daemon was restarted and continued
    /// the file.
    fn header(&mut self, key: String, value: String) {
        let present = self.boot;
        let _ = self.present_boot();
        if key == "boot" && !matches!(self.region, Region::Batch(_)) {
            self.flush_free();
        }
        if key == "boot" && !self.profile.boots[present].cpus.is_empty() {
            // The present counts belong to the boot that was named before.
            return;
        }
        if key == "boot" && !value.is_empty() {
            let known =
                self.profile.boots[..present].iter().position(|boot| boot.version.is_some() && boot.id() == value);
            if let (Some(known), true) = (known, present + 1 == self.profile.boots.len()) {
                let newer = self.profile.boots.remove(present);
                self.boot = known;
                self.profile.boots[known].header.extend(newer.header);
                return;
            }
        }
        self.present_boot().header.insert(key, value);
    }

    pub(super) fn begin(&mut self, cpu: Option<u32>, positions: (u64, u64), counters: Counters) {
        self.unended(cpu, Some(positions.0));
        self.flush_free();
        let boot = self.present_boot();
        // Names and marks of the meta stream may be repeated without harm, so its positions are not kept.
        boot.is_from_its_start |= cpu.is_none() && positions.0 == 0 && positions.1 > 0;
        let known = cpu.map(|cpu| boot.cpus.entry(cpu).or_default());
        let position = known.as_ref().map_or(Position::New, |cpu| batch::position(&cpu.positions, positions));
        match (position, known) {
            (Position::Repeated, Some(cpu)) => {
                cpu.repeated_batches += 1;
                self.region = Region::Repeated;
            }
            (Position::Overlap, _) => {
                let (file, line) = (&self.file, self.line);
                self.problems.add(Kind::Overlap, || {
                    let (from, to) = positions;
                    let cpu = cpu.unwrap_or_default();
                    format!(
                        "{file}:{line}: positions {from} to {to} of CPU {cpu} were seen in part before; batch left out"
                    )
                });
                self.region = Region::Damaged;
            }
            _ => {
                let place = self.line;
                self.region = Region::Batch(Box::new(Open { place, cpu, positions, counters, ..Open::default() }));
            }
        }
    }

    fn end(&mut self, cpu: Option<u32>, to: u64, samples: Option<u64>) {
        match std::mem::replace(&mut self.region, Region::Free) {
            Region::Batch(open) if open.is_nameless => self.end_nameless(*open, cpu, to, samples),
            Region::Batch(open) if open.cpu == cpu && open.positions.1 == to => self.close(&open, samples),
            Region::Batch(open) => self.end_of_another(*open, cpu, to, samples),
            Region::Free => self.end_of_none(cpu, to),
            Region::Repeated | Region::Damaged => {}
        }
    }

    /// Adds a complete batch to the profile, and counts its unreadable samples as missing.
    pub(super) fn close(&mut self, open: &Open, samples: Option<u64>) {
        let used = open.seen.samples();
        let missing = samples.map_or(0, |samples| samples.saturating_sub(used));
        if let Some(samples) = samples.filter(|samples| *samples != used && open.cpu.is_some()) {
            let (file, line) = (&self.file, self.line);
            self.problems.add(Kind::BatchCount, || {
                format!("{file}:{line}: the batch says {samples} samples and {used} can be read")
            });
        }
        self.began(open);
        let boot = self.boot;
        self.profile.intervals.extend(batch::commit(&mut self.profile.boots[boot], boot, open, missing));
        self.consumer.commit();
    }

    /// Notes where the first batch of a CPU begins, whether that batch is complete or not.
    fn began(&mut self, open: &Open) {
        if let Some(cpu) = open.cpu {
            let begins_at = &mut self.present_boot().cpus.entry(cpu).or_default().begins_at;
            *begins_at = Some(begins_at.map_or(open.positions.0, |before| before.min(open.positions.0)));
        }
    }

    fn account(&mut self, cpu: u32, counters: Counters) {
        self.present_boot().cpus.entry(cpu).or_default().account = Some(counters);
    }

    /// Drops the open batch, if there is one, as void.
    pub(super) fn drop_open(&mut self, because: &str) {
        if let Region::Batch(open) = std::mem::replace(&mut self.region, Region::Free) {
            self.began(&open);
            self.consumer.discard();
            let file = &self.file;
            self.problems.add(Kind::VoidBatch, || {
                format!("{file}:{}: batch of {} lines has no end ({because}); left out", open.place, open.lines)
            });
        }
    }
}
