//! Damaged batches of a serial log: what becomes of samples whose `# batch` or `# end` line is missing. Stage: read.
//!
//! In: the lines before and after the missing ones. Out: which samples count. In the serial form each line has its own
//! checksum, so a sample counts even if other lines of its batch are missing. (In the text form a damaged batch is left
//! out.) Missing samples of all forms count as lost; their number is computed from the neighbouring batches and from
//! the account. Never guesses which CPU or which positions a batch had.

use super::batch::{self, Position};
use super::consumer::Consumer;
use super::ingest::{Ingest, Region};
use crate::problems::Kind;

impl<C: Consumer> Ingest<C> {
    /// Handles an end line without a batch in the serial form. Samples outside any batch already count; here their
    /// positions are marked as seen.
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

    /// Handles a new batch or header that begins before the end of the open batch was read. Samples of the serial form
    /// count, because each line has its own checksum. They are dropped if the new batch repeats them, which happens
    /// after a writer was killed.
    pub(super) fn unended(&mut self, cpu: Option<u32>, from: Option<u64>) {
        match std::mem::replace(&mut self.region, Region::Free) {
            Region::Batch(open) => {
                let is_again = cpu == open.cpu && from.is_some_and(|from| from <= open.positions.0);
                if self.is_text || open.cpu.is_none() || is_again {
                    self.region = Region::Batch(open);
                    return self.drop_open("it has no end");
                }
                let (file, place, used) = (&self.file, open.place, open.seen.samples());
                self.problems.add(Kind::BatchLine, || {
                    format!("{file}:{place}: batch of {used} samples: it has no end; they are used")
                });
                self.close(&open, None);
            }
            other => self.region = other,
        }
    }

    /// Counts samples that were delivered but are not in the file.
    pub(super) fn count_missing(&mut self) {
        for (index, boot) in self.profile.boots.iter().enumerate() {
            // If a damaged end line names too many samples, the account corrects the number.
            for (number, cpu) in &boot.cpus {
                let mut excess = batch::not_here(boot, cpu).map_or(0, |exact| cpu.missing.saturating_sub(exact));
                for gap in self.profile.gaps.iter_mut().filter(|gap| (gap.boot, gap.cpu) == (index, *number)) {
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
                    self.profile.gaps.push(gap);
                }
            }
        }
    }
}
