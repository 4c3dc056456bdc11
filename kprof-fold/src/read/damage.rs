//! Damaged batches: what becomes of samples whose `# batch` or `# end` line cannot be read. Stage: read.
//!
//! In: the damaged lines, and the lines around them. Out: which batches count. If the other line or the samples
//! themselves tell CPU and positions, the batch counts as far as it can be read. All other damaged batches are dropped.
//! Missing samples count as lost; their number is computed from the neighbouring batches and from the account. Never
//! guesses which CPU or which positions a batch had.

use super::batch::{self, Open, Position};
use super::ingest::{Consumer, Ingest, Region};
use super::metadata::torn_batch;
use crate::problems::Kind;
use kprof_format::line::Torn;

impl<C: Consumer> Ingest<C> {
    /// Handles a `# batch` line that cannot be fully parsed.
    pub(super) fn begin_torn(&mut self, line: &str) {
        let (cpu, positions, counters) = torn_batch(&Torn::read(line));
        if let (Some(cpu), (Some(from), Some(to))) = (cpu, positions) {
            return self.begin(Some(cpu), (from, to), counters);
        }
        self.unended(None, None);
        self.flush_free();
        let (place, positions) = (self.line, (positions.0.unwrap_or(0), positions.1.unwrap_or(0)));
        let open = Open { place, positions, counters, is_nameless: true, ..Open::default() };
        self.region = Region::Batch(Box::new(open));
    }

    /// Handles an `# end` line that cannot be fully parsed.
    pub(super) fn end_torn(&mut self, line: &str) {
        match std::mem::replace(&mut self.region, Region::Free) {
            Region::Batch(open) if !open.is_nameless => {
                let samples = Torn::read(line).samples.filter(|samples| *samples >= open.lines);
                self.used(&open, "its last line is damaged");
                self.close(&open, samples);
            }
            other => {
                self.region = other;
                self.drop_open("its first and its last line are damaged");
                self.region = Region::Free;
            }
        }
    }

    /// Handles the end of a batch whose first line is damaged. CPU and positions are taken from the samples and the end
    /// line.
    pub(super) fn end_nameless(&mut self, mut open: Open, cpu: Option<u32>, to: u64, samples: Option<u64>) {
        let Some(number) = cpu else { return self.consumer.discard() };
        if open.of_other_cpus > 0 || open.named_cpu.is_some_and(|named| named != number) {
            self.region = Region::Batch(Box::new(open));
            return self.drop_open("its first line is damaged, and its samples are not those of its last line");
        }
        let known = self.present_boot().cpus.entry(number).or_default();
        let told = Some(open.positions.0).filter(|from| *from > 0 && *from < to);
        let from = told.unwrap_or(to.saturating_sub(open.words)).max(batch::end_before(&known.positions, to));
        (open.cpu, open.positions) = (cpu, (from, to));
        match batch::position(&known.positions, (from, to)) {
            Position::New if from < to => {
                self.used(&open, "its first line is damaged");
                self.close(&open, samples);
            }
            Position::Overlap => {
                self.region = Region::Batch(Box::new(open));
                self.drop_open("its first line is damaged, and its positions were seen in part before");
            }
            _ => {
                known.repeated_batches += 1;
                self.consumer.discard();
            }
        }
    }

    /// Handles an end line that does not fit the open batch. If the number of samples fits, one number of the two lines
    /// is damaged, and the samples tell which CPU is right.
    pub(super) fn end_of_another(&mut self, mut open: Open, cpu: Option<u32>, to: u64, samples: Option<u64>) {
        let one_fits = open.cpu == cpu || open.positions.1 == to;
        let from_other = open.of_other_cpus;
        let is_whole = samples == Some(open.lines) && open.lines > 0 && open.cpu.is_some() && cpu.is_some();
        if !one_fits || !is_whole || (from_other > 0 && from_other < open.lines) {
            self.region = Region::Batch(Box::new(open));
            return self.drop_open("the next end belongs to another batch");
        }
        if from_other > 0 {
            open.cpu = cpu;
        }
        let (from, end) = open.positions;
        // The smaller of the two ends is used, because the range must not include positions of the next batch.
        open.positions.1 = if to > from { to.min(end) } else { end };
        let known = open.cpu.map(|cpu| &self.present_boot().cpus.entry(cpu).or_default().positions[..]);
        if batch::position(known.unwrap_or_default(), open.positions) == Position::New {
            self.used(&open, "its first and its last line differ");
            self.close(&open, samples);
        } else {
            self.region = Region::Batch(Box::new(open));
            self.drop_open("its first and its last line differ, and its positions were seen before");
        }
    }

    /// Handles an end line without a batch. Samples outside any batch already count; here their positions are marked as
    /// seen.
    pub(super) fn end_of_none(&mut self, cpu: Option<u32>, to: u64) {
        let (file, line) = (&self.file, self.line);
        self.problems.add(Kind::Metadata, || format!("{file}:{line}: an end without a batch; line skipped"));
        if let (Some(cpu), true) = (cpu, self.has_free_samples()) {
            let positions = &mut self.present_boot().cpus.entry(cpu).or_default().positions;
            let range = (batch::end_before(positions, to), to);
            if batch::position(positions, range) == Position::New {
                batch::remember(positions, range);
            }
        }
    }

    /// Handles a new batch that begins before the end of the open one was read. The open batch counts as far as it
    /// goes. It is dropped if the new one repeats it, which happens after a writer was killed.
    pub(super) fn unended(&mut self, cpu: Option<u32>, from: Option<u64>) {
        match std::mem::replace(&mut self.region, Region::Free) {
            Region::Batch(open) => {
                let is_again = cpu == open.cpu && from.is_some_and(|from| from <= open.positions.0);
                if open.is_nameless || open.cpu.is_none() || is_again {
                    self.region = Region::Batch(open);
                    return self.drop_open("another batch begins");
                }
                self.used(&open, "it has no end (another batch begins)");
                self.close(&open, None);
            }
            other => self.region = other,
        }
    }

    fn used(&mut self, open: &Open, why: &str) {
        let (file, place, used) = (&self.file, open.place, open.seen.samples());
        self.problems.add(Kind::BatchLine, || format!("{file}:{place}: batch of {used} samples: {why}; they are used"));
    }

    /// Counts samples that were delivered but are not in the file.
    pub(super) fn count_missing(&mut self) {
        for (index, boot) in self.profile.boots.iter().enumerate() {
            // If a damaged end line names too many samples, the account corrects the number.
            for (number, cpu) in &boot.cpus {
                let mut excess = batch::not_here(boot, cpu).map_or(0, |exact| cpu.missing.saturating_sub(exact));
                for gap in self.profile.intervals.iter_mut().filter(|gap| (gap.boot, gap.cpu) == (index, *number)) {
                    let part = gap.missing.min(excess);
                    gap.missing -= part;
                    excess -= part;
                }
            }
        }
        for (index, boot) in self.profile.boots.iter().enumerate() {
            for (number, cpu) in &boot.cpus {
                for (gap, positions) in batch::missing(boot, *number, cpu, index) {
                    let (file, missing) = (&self.file, gap.missing);
                    self.problems.add(Kind::Hole, || {
                        let place = positions.map_or_else(String::new, |(from, to)| {
                            format!(" (no batch that can be read has the positions {from} to {to})")
                        });
                        format!("{file}: CPU {number}: {missing} samples are missing{place}; they count as lost")
                    });
                    self.profile.intervals.push(gap);
                }
            }
        }
    }
}
