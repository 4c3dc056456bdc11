//! Applies each metadata line to the state. Stage: read.
//!
//! In: `#` lines, at most a few for every batch. Out: what the lines say: boots and their facts, batches (opened,
//! closed or dropped), counters, task names, images, marks, settings, events. A line that cannot be parsed is reported
//! and skipped. In the text form the lines of a batch are applied only after the checksum of the batch was found right
//! ([`super::checked`]). [`super::damage`] decides what becomes of batches of the serial form that lack lines.

use super::batch::{self, Doubt, Open, Position};
use super::consumer::Consumer;
use super::ingest::{Ingest, Region};
use super::metadata;
use super::seal::Seal;
use super::unsampled::last_gap;
use crate::lockups;
use crate::problems::{Kind, shown};
use crate::profile::{Boot, Counters};
use kprof_format::fact::Fact;
use kprof_format::line::{self, Batch, Corrupt, End, Header, Line, Name, Stream};

impl<C: Consumer> Ingest<C> {
    /// Reads a line that begins with `#`.
    #[cold]
    pub(super) fn metadata(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line.get(1..).unwrap_or_default());
        match Line::parse(&text) {
            Ok(Line::Profile(profile)) => self.new_header(profile.version),
            Ok(Line::Batch(batch)) if !self.is_of_present_boot(&batch) => {
                self.unended(None, None);
                self.end_free();
                self.is_in_header = false;
                self.region = Region::Damaged;
                let (file, number) = (&self.file, self.line);
                let boot = batch.boot.map(|boot| boot.to_string()).unwrap_or_default();
                self.problems.add(Kind::VoidBatch, || {
                    format!("{file}:{number}: a batch of boot {boot} without the header of this boot; batch left out")
                });
            }
            Ok(Line::Batch(batch)) => {
                self.begin(batch.cpu, (batch.from, batch.to), metadata::batch_counters(&batch));
                if let Region::Batch(open) = &mut self.region
                    && self.is_text
                {
                    open.line = line.to_vec();
                }
            }
            Ok(Line::End(end)) if self.is_text => self.end_checked(&end),
            Ok(Line::End(End { cpu, to, samples, .. })) => self.end(cpu, to, samples),
            Ok(Line::Account(account)) => {
                if self.is_text {
                    self.drop_open("an account follows before its end");
                }
                self.account(account.cpu.0, metadata::counters(account.counters));
            }
            // In the text form facts are in headers only, so this may have been the first line of a batch.
            Ok(Line::Unknown { .. }) if self.only_batches && !self.is_in_header && self.is_free() => {
                self.end_free();
                self.region = self.doubtful(line);
            }
            Ok(parsed) => match &mut self.region {
                Region::Batch(open) if self.is_text => open.held.push((self.line, line.to_vec())),
                _ => self.apply(parsed),
            },
            Err(why) => {
                let (file, number) = (&self.file, self.line);
                self.problems
                    .add(Kind::Metadata, || format!("{file}:{number}: {why} in {}; line skipped", shown(line)));
                match text.split_ascii_whitespace().next() {
                    Some(Batch::WORD) => {
                        self.unended(None, None);
                        self.end_free();
                        self.is_in_header = false;
                        self.region = if self.is_text { self.doubtful(line) } else { Region::Free };
                    }
                    Some(End::WORD) => {
                        self.drop_open("its last line is damaged");
                        self.end_free();
                        self.is_in_header = false;
                        self.region = Region::Free;
                    }
                    _ => {}
                }
            }
        }
    }

    /// Applies a line that neither begins nor ends anything.
    fn apply(&mut self, line: Line<'_>) {
        let is_fact = matches!(line, Line::Header(_) | Line::Unknown { .. } | Line::Anchor(_));
        match line {
            // In the text form facts are in headers only. Elsewhere such a line is the rest of a damaged line.
            _ if is_fact && self.only_batches && !self.is_in_header => self.stray_line(),
            Line::Header(Header { fact, value }) => self.header(fact.name(), value),
            // A newer kernel may write facts that this version does not know.
            Line::Unknown { word, rest } => self.header(word, rest),
            Line::Anchor(anchor) => self.present_boot().anchors.push((anchor.name.to_owned(), anchor.address)),
            _ if matches!(self.region, Region::Repeated | Region::Damaged) => {}
            _ if matches!(self.region, Region::Free) && self.only_batches => self.stray_line(),
            other => self.apply_of_batch(other),
        }
    }

    /// Applies a line of a batch.
    pub(super) fn apply_of_batch(&mut self, line: Line<'_>) {
        match line {
            Line::Task(task) => drop(self.present_boot().tasks.insert(task.id.0, metadata::bytes(task.name))),
            Line::Corrupt(Corrupt { cpu, words, .. }) => {
                let boot = self.present_boot();
                // Counts that were overwritten before the first read were not read by anybody: the kernel writes them
                // again.
                if cpu == Stream::Meta && boot.has_meta {
                    boot.missing_meta_words = boot.missing_meta_words.saturating_add(words);
                }
                let (file, number) = (&self.file, self.line);
                self.problems.add(Kind::Note, || format!("{file}:{number}: {words} words of the ring were no record"));
            }
            Line::Mark(mark) => self.present_boot().marks.push(mark.into()),
            Line::Setting(setting) => self.present_boot().settings.push(setting.into()),
            Line::Events(events) => {
                let counts = metadata::counters(events.counters);
                self.present_boot().add_events(metadata::bytes(events.task), &counts);
            }
            Line::PointAccount(account) => {
                let name = account.point.to_string();
                self.present_boot().points.entry(name).or_default().add_line(&account);
            }
            Line::Point(point) => {
                let (name, unit) = (point.name.to_string(), point.unit.to_string());
                self.present_boot().points.entry(name).or_default().unit = unit;
            }
            Line::TaskTimes(times) => {
                let name = metadata::bytes(times.task);
                self.present_boot().task_times.entry((times.id.0, name)).or_default().add(&times);
            }
            Line::PointValues(values) => {
                let words = values.values.to_string().split(',').map(str::to_owned).collect();
                let name = values.point.to_string();
                self.present_boot().points.entry(name).or_default().values = words;
            }
            Line::Lockup(lockup) => lockups::add(&mut self.present_boot().lockups, &lockup),
            Line::LockupStack(stack) => lockups::add_stack(&mut self.present_boot().lockups, &stack),
            Line::Image(image) => {
                self.present_boot().add_image(image.into());
            }
            // These lines are handled by the caller.
            Line::Profile(_) | Line::Header(_) | Line::Unknown { .. } | Line::Anchor(_) => {}
            Line::Batch(_) | Line::End(_) | Line::Account(_) => {}
        }
    }

    /// Closes the open batch. Its chunk was complete, so the batch is complete.
    pub(super) fn end_of_chunk(&mut self) {
        if let Region::Batch(open) = &self.region {
            let (stream, to) = (open.stream(), open.positions.1);
            self.end(stream, to, None);
        }
        self.region = Region::Free;
    }

    /// Called at the end of the stream.
    pub fn finish(&mut self) {
        self.drop_open("the file ends before its end");
        self.tell_stray();
        self.flush_free();
        self.note_beginnings();
        // Only the account contains the ticks after the last batch.
        for (index, boot) in self.profile.boots.iter().enumerate() {
            let end = boot.last_tsc();
            let late = boot.cpus.iter().filter_map(|(number, cpu)| last_gap(boot, index, *number, cpu, end));
            self.profile.gaps.extend(late);
        }
        self.count_missing();
        if let Some(only) = self.only {
            let chosen = self.profile.boots.drain(..).enumerate().filter(|(boot, _)| *boot == only);
            self.profile.boots = chosen.map(|(_, boot)| boot).collect();
            self.profile.gaps.retain(|gap| gap.boot == only);
            self.profile.gaps.iter_mut().for_each(|gap| gap.boot = 0);
        }
        self.profile.boots.iter_mut().for_each(Boot::raise_low_code);
        self.profile.lines = self.line;
    }

    fn new_header(&mut self, version: u32) {
        self.drop_open("a new header begins before its end");
        self.end_free();
        self.is_in_header = true;
        self.boot = self.profile.boots.len();
        self.profile.boots.push(Boot { version: Some(version), ..Boot::default() });
        if version > line::VERSION {
            let (file, number) = (&self.file, self.line);
            self.problems.add(Kind::Note, || {
                let known = line::VERSION;
                format!(
                    "{file}:{number}: form version {version}; this kprof-fold knows up to {known}, take a newer one"
                )
            });
        }
    }

    /// Reads a header value. The same boot id as in an earlier header means that the daemon was restarted and continued
    /// the file.
    fn header(&mut self, key: &str, value: &str) {
        let present = self.boot;
        let _ = self.present_boot();
        let is_boot = key == Fact::Boot.name();
        if is_boot {
            // A batch contains no header, so a batch that is still open has lost its end.
            self.unended(None, None);
            self.end_free();
        }
        if is_boot && !self.profile.boots[present].cpus.is_empty() {
            // The present counts belong to the boot that was named before.
            return;
        }
        if is_boot && !value.is_empty() {
            let known =
                self.profile.boots[..present].iter().position(|boot| boot.version.is_some() && boot.id() == value);
            if let (Some(known), true) = (known, present + 1 == self.profile.boots.len()) {
                return self.continue_boot(known);
            }
        }
        self.present_boot().header.insert(key.to_owned(), value.to_owned());
    }

    /// The newest boot turns out to be the earlier boot `known`, so everything that was read of the newest boot is
    /// added to `known`. The newest boot has no samples yet, so its index is only in the profile and in the fields that
    /// are changed here.
    fn continue_boot(&mut self, known: usize) {
        let newest = self.profile.boots.len() - 1;
        let newer = self.profile.boots.remove(newest);
        self.profile.boots[known].extend(newer);
        self.boot = known;
        self.begins.iter_mut().filter(|begin| begin.0 == newest).for_each(|begin| begin.0 = known);
        if self.relocation == newest {
            self.relocation = known;
            let shown = self.shown_boot();
            self.stacks.begin_era(shown, self.profile.boots[known].low_text());
        }
    }

    pub(super) fn begin(&mut self, stream: Stream, positions: (u64, u64), counters: Counters) {
        let (cpu, events) = batch::cpus_of(stream);
        self.unended(cpu, Some(positions.0));
        self.end_free();
        self.is_in_header = false;
        if self.is_left_out() {
            self.region = Region::Repeated;
            return;
        }
        let (has_cr, is_text) = (self.has_cr, self.is_text);
        let boot = self.present_boot();
        // Names and marks of the meta stream may be repeated without harm, so its positions are not kept.
        boot.is_from_its_start |= stream == Stream::Meta && positions.0 == 0 && positions.1 > 0;
        let seal = Seal::of(boot.id(), has_cr);
        let position = boot.positions(stream).map_or(Position::New, |known| batch::position(known, positions));
        match position {
            Position::Repeated => {
                if let Some(cpu) = cpu.and_then(|cpu| boot.cpus.get_mut(&cpu)) {
                    cpu.repeated_batches += 1;
                }
                if let Some(stream) = events.and_then(|cpu| boot.event_streams.get_mut(&cpu)) {
                    stream.repeated_batches += 1;
                }
                self.region = Region::Repeated;
            }
            Position::Overlap if !is_text => {
                self.say_overlap(self.line, cpu.or(events), positions);
                self.region = Region::Damaged;
            }
            _ => {
                let place = self.line;
                let doubt = (position == Position::Overlap).then_some(Doubt::Overlap);
                let open = Open { place, cpu, events, positions, counters, seal, doubt, ..Open::default() };
                self.region = Region::Batch(Box::new(open));
            }
        }
    }

    /// Whether a batch that names its boot follows the header of this boot.
    fn is_of_present_boot(&self, batch: &Batch<'_>) -> bool {
        let present = self.profile.boots.get(self.boot).map_or("", Boot::id).trim();
        batch.boot.is_none_or(|boot| boot == Name::Raw(present.as_bytes()))
    }

    pub(super) fn say_overlap(&mut self, line: u64, cpu: Option<u32>, (from, to): (u64, u64)) {
        let (file, cpu) = (&self.file, cpu.unwrap_or_default());
        self.problems.add(Kind::Overlap, || {
            format!("{file}:{line}: positions {from} to {to} of CPU {cpu} were seen in part before; batch left out")
        });
    }

    pub(super) fn end(&mut self, stream: Stream, to: u64, samples: Option<u64>) {
        match std::mem::replace(&mut self.region, Region::Free) {
            Region::Batch(open) if open.stream() == stream && open.positions.1 == to => self.close(&open, samples),
            Region::Batch(open) => {
                self.region = Region::Batch(open);
                self.drop_open("the next end belongs to another batch");
            }
            Region::Free => self.end_of_none(batch::cpus_of(stream).0, to),
            Region::Repeated | Region::Damaged => {}
        }
    }

    /// Adds a complete batch to the profile, and counts its unreadable samples as missing.
    pub(super) fn close(&mut self, open: &Open, samples: Option<u64>) {
        if let Some(cpu) = open.events {
            return self.close_events(cpu, open, samples);
        }
        let used = open.seen.samples();
        let missing = samples.map_or(0, |samples| samples.saturating_sub(used));
        if let Some(samples) = samples.filter(|samples| *samples != used && open.cpu.is_some()) {
            let (file, line) = (&self.file, self.line);
            self.problems.add(Kind::BatchCount, || {
                format!("{file}:{line}: the batch says {samples} samples and {used} can be read")
            });
        }
        if let Some((line, cpu, samples)) = open.strangers {
            let file = &self.file;
            self.problems.add_lines(Kind::Note, samples, || {
                format!("{file}:{line}: {samples} samples of CPU {cpu} or others in the batch of another CPU; counted")
            });
        }
        let boot = self.boot;
        self.profile.boots[boot].has_meta |= open.stream() == Stream::Meta;
        let gaps = batch::commit(&mut self.profile.boots[boot], boot, open, missing);
        self.profile.gaps.extend(gaps.into_iter().flatten());
        self.consumer.commit();
    }

    /// Notes where the first batch of each CPU begins, also if that batch was left out. A CPU that only a damaged line
    /// names is ignored.
    fn note_beginnings(&mut self) {
        for (boot, cpu, from) in std::mem::take(&mut self.begins) {
            if let Some(cpu) = self.profile.boots[boot].cpus.get_mut(&cpu) {
                cpu.begins_at = Some(cpu.begins_at.map_or(from, |before| before.min(from)));
            }
        }
    }

    fn account(&mut self, cpu: u32, counters: Counters) {
        self.present_boot().cpus.entry(cpu).or_default().account = Some(counters);
    }

    /// Drops the open batch, if there is one, as void.
    pub(super) fn drop_open(&mut self, because: &str) {
        if let Region::Batch(open) = std::mem::replace(&mut self.region, Region::Free) {
            let _ = self.present_boot();
            let begin = open.cpu.filter(|_| open.doubt.is_none()).map(|cpu| (self.boot, cpu, open.positions.0));
            self.begins.extend(begin);
            self.consumer.discard();
            let file = &self.file;
            self.problems.add_lines(Kind::VoidBatch, open.lines, || {
                format!("{file}:{}: batch of {} samples left out: {because}", open.place, open.lines)
            });
        }
    }
}
