//! The batches of the text form, which have a checksum. Stage: read.
//!
//! In: the open batch and its last line. Out: the batch is closed if it matches its checksum, and dropped otherwise. If
//! the only damage is one byte of its first line, this byte is repaired and reported, and the batch is closed. A batch
//! that does not match is never used.

use super::batch::{self, Doubt, Open, Position};
use super::consumer::Consumer;
use super::ingest::{Ingest, Region};
use super::metadata;
use super::seal::Seal;
use crate::problems::{Kind, shown};
use kprof_format::line::{Checksum, End, Line, Stream};

impl<C: Consumer> Ingest<C> {
    /// Closes the open batch of the text form if it is as it was written, and drops it otherwise.
    pub(super) fn end_checked(&mut self, end: &End) {
        let Region::Batch(open) = &mut self.region else {
            if matches!(std::mem::replace(&mut self.region, Region::Free), Region::Free) {
                self.stray_line();
                self.end_free();
            }
            return;
        };
        let is_its_own = open.stream() == end.cpu && open.positions.1 == end.to;
        let because = match end.crc {
            None => "its last line has no checksum",
            Some(written) if open.seal.is(written) => match open.doubt {
                Some(Doubt::Overlap) => {
                    let (place, cpu, positions) = (open.place, open.cpu, open.positions);
                    self.region = Region::Free;
                    self.consumer.discard();
                    return self.say_overlap(place, cpu, positions);
                }
                Some(Doubt::Line) => "its first line cannot be parsed",
                None if !is_its_own => "the next end belongs to another batch",
                None => return self.end_whole(end),
            },
            Some(written) if self.repair(end, written) => return self.end_whole(end),
            Some(_) if !is_its_own => "the next end belongs to another batch",
            Some(_) => "it does not match its checksum",
        };
        self.drop_open(because);
    }

    /// Closes the open batch, which is as it was written.
    fn end_whole(&mut self, end: &End) {
        if let Region::Batch(open) = &mut self.region {
            for (number, line) in std::mem::take(&mut open.held) {
                self.apply_held(number, &line);
            }
        }
        self.end(end.cpu, end.to, end.samples);
    }

    /// Repairs the first line of the open batch, if one damaged byte of it is all that is wrong with the batch.
    fn repair(&mut self, end: &End, written: Checksum) -> bool {
        let Region::Batch(open) = &mut self.region else { return false };
        let Some((line, place)) = open.seal.repaired(&open.line, written) else { return false };
        let text = String::from_utf8_lossy(line.get(1..).unwrap_or_default());
        let Ok(Line::Batch(batch)) = Line::parse(&text) else { return false };
        let positions = (batch.from, batch.to);
        let known = self.profile.boots.get(self.boot).and_then(|boot| boot.positions(batch.cpu));
        let is_new = known.is_none_or(|known| batch::position(known, positions) == Position::New);
        // If the repaired line contains a line feed, it was two lines. The second one was a sample, which was not
        // counted.
        if batch.cpu != end.cpu || batch.to != end.to || !is_new || line.contains(&b'\n') {
            return false;
        }
        if open.is_of_events() != matches!(batch.cpu, Stream::Event(_)) {
            // Its lines were taken for those of another kind of stream.
            return false;
        }
        (open.cpu, open.events) = batch::cpus_of(batch.cpu);
        (open.positions, open.counters) = (positions, metadata::batch_counters(&batch));
        // The samples that seemed to be of another CPU are of the CPU in the repaired line.
        open.strangers = None;
        let (file, number, samples, column) = (&self.file, open.place, open.seen.samples(), place + 1);
        self.problems.add(Kind::BatchLine, || {
            let was = shown(&line[place..=place]);
            format!(
                "{file}:{number}:{column}: a damaged byte in the first line of a batch; by the checksum it was {was}, \
                 and the {samples} samples of the batch are used"
            )
        });
        true
    }

    pub(super) fn is_free(&self) -> bool {
        self.is_text && matches!(self.region, Region::Free)
    }

    /// A batch whose first line cannot be parsed. It counts only if the line can be repaired.
    pub(super) fn doubtful(&mut self, line: &[u8]) -> Region {
        let has_cr = self.has_cr;
        let seal = Seal::of(self.present_boot().id(), has_cr);
        let (place, line, doubt) = (self.line, line.to_vec(), Some(Doubt::Line));
        Region::Batch(Box::new(Open { place, seal, line, doubt, ..Open::default() }))
    }

    /// Applies a line of a batch that is whole.
    fn apply_held(&mut self, number: u64, line: &[u8]) {
        let at = std::mem::replace(&mut self.line, number);
        if let Ok(line) = Line::parse(&String::from_utf8_lossy(line.get(1..).unwrap_or_default())) {
            self.apply_of_batch(line);
        }
        self.line = at;
    }
}
