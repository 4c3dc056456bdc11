//! The parsing half of a round: bytes become records, and what is on disk is acknowledged.
//!
//! In: the pieces of a round. Out: records for the `Digest`, one batch for each piece; the new `Place` in each stream.
//! Runs in: user process. Records that are already on disk are known by their position and skipped. Words that are not
//! a record are counted, and a line in the file says where in the stream they are.

use super::digest::Other;
use super::intake::Piece;
use super::{Session, Totals};
use crate::error::Error;
use crate::read::framed::Framed;
use crate::read::records::Records;
use crate::read::redox_raw::RawRecords;
use crate::read::{Item, Skipped, Why};
use crate::source::{Access, Layout, Source, Stream};
use crate::system::System;
use kprof_format::record::VERSION;

/// The most attempts to acknowledge records if the kernel refuses to free them.
const MAX_TRIES: u32 = 8;

impl<S: System, Src: Source<S>> Session<'_, S, Src> {
    /// Parses one piece and adds its records to the composer, as one batch.
    pub(super) fn take(&mut self, piece: &Piece) -> Result<(), Error> {
        let stream = piece.stream;
        let bytes = &self.intake.buffer[piece.range.clone()];
        // The counters of the meta stream and of event streams count records, so they are not in a batch line.
        let counters = match stream {
            Stream::Meta | Stream::Event(_) => None,
            Stream::Cpu(cpu) => self.ctl.cpu(cpu),
        };
        let place = self.intake.places.entry(stream).or_default();
        let mut position = place.position.or_else(|| self.ctl.position_out(stream));
        // Until the meta stream is read for the first time, the kernel replaces the oldest records by newer ones, also
        // after its positions were read. Whether something of this session is missing is seen below.
        let is_first_meta = stream == Stream::Meta && place.position.is_none() && self.options.is_recording;
        let may_skip = match self.source.access() {
            Access::Copies => true,
            _ if is_first_meta => true,
            _ => self.ctl.overwrites() && matches!(stream, Stream::Cpu(_)),
        };
        if may_skip && piece.carried == 0 {
            // The records at the expected position may have been overwritten, so the first record's own position is
            // used.
            position = None;
        }
        let mut records = match self.source.layout() {
            Layout::Framed => Records::Framed(Framed::new(bytes, position)),
            Layout::RedoxRaw => Records::Raw(RawRecords::new(bytes, position.unwrap_or(0))),
        };
        let (mut is_first, mut newer) = (true, None);
        loop {
            if let (Stream::Cpu(cpu), Records::Framed(records)) = (stream, &mut records)
                && let Some(here) = Framed::position(records)
                && here >= place.on_disk.max(place.older)
            {
                if is_first {
                    self.digest.composer.begin(here);
                }
                let make_name = |task| self.source.task_name(self.system, task);
                if let Some(run) = self.digest.composer.plain_samples(&mut self.digest.names, cpu, records, make_name) {
                    is_first = false;
                    self.digest.samples += run.samples;
                }
            }
            let Some(item) = records.next() else { break };
            let here = records.item_from();
            if here < place.on_disk {
                if let Item::Sample(sample) = &item
                    && let Some((_, tsc)) = place.begins.filter(|(from, tsc)| *from == here && *tsc != sample.tsc)
                {
                    let what = format_args!("position {here} has TSC {tsc:x} in the file and {:x} now", sample.tsc);
                    return Err(self.other_boot(stream, what));
                }
                self.totals.again += 1;
                continue;
            }
            if here < place.older && matches!(item, Item::Sample(_) | Item::Event(_)) {
                self.totals.older += u64::from(matches!(item, Item::Sample(_)));
                continue;
            }
            if is_first {
                let expected = place.position.unwrap_or(place.older);
                self.digest.has_missed_meta |= stream == Stream::Meta && here > expected;
                self.digest.composer.begin(here);
                is_first = false;
            }
            let make_name = |task| self.source.task_name(self.system, task);
            match self.digest.add(stream, &item, here < place.older, make_name) {
                Some(Other::Skipped(skipped)) => newer = newer.or(count(&mut self.totals, &skipped)),
                Some(Other::Misplaced) => self.totals.unknown += 1,
                None => {}
            }
        }
        // Another version in the header is either a flipped bit or a newer kernel. Without a single valid sample it is
        // taken for a newer kernel.
        if let Some((position, version)) = newer
            && self.totals.samples + self.digest.samples == 0
        {
            return Err(Error::Newer { stream: stream.to_string(), position, version });
        }
        let end = records.position();
        place.carry.extend_from_slice(&bytes[records.used_bytes()..]);
        place.position = end.or(place.position);
        if !is_first && let Some(end) = end {
            self.digest.composer.end(stream, self.ctl.boot(), end, counters);
        }
        Ok(())
    }

    /// Tells the kernel which records are on disk, so that it can free them. Only called after the write has been
    /// synced.
    pub(super) fn acknowledge(&mut self) -> Result<(), Error> {
        if self.source.layout() == Layout::RedoxRaw {
            return Ok(());
        }
        let mut tries = 1;
        loop {
            let ends = self.unacknowledged();
            match self.source.acknowledge(self.system, &ends) {
                // Somebody may have changed the mode since the state was read. A flight recorder frees its records
                // itself, so the kernel refuses to acknowledge them.
                Err(Error::Refused { .. }) if tries < MAX_TRIES => self.source.observe(self.system, &mut self.ctl)?,
                done => return done.map(|()| self.are_acknowledged(ends)),
            }
            tries += 1;
        }
    }

    /// The streams of which the kernel still has records that are on disk, each with the position after the last such
    /// record.
    fn unacknowledged(&self) -> Vec<(Stream, u64)> {
        // A flight recorder overwrites old samples itself, so they are not acknowledged.
        let is_freed_here = |stream: Stream| !matches!(stream, Stream::Cpu(_)) || !self.ctl.overwrites();
        let is_there = |stream, end| self.ctl.position_out(stream).is_none_or(|out| end > out);
        let places = self.intake.places.iter().filter(|(stream, _)| is_freed_here(**stream));
        let ends = places.filter_map(|(stream, place)| Some((*stream, place.position?, place.acknowledged)));
        let new = ends.filter(|(stream, end, acknowledged)| end > acknowledged && is_there(*stream, *end));
        new.map(|(stream, end, _)| (stream, end)).collect()
    }

    fn are_acknowledged(&mut self, ends: Vec<(Stream, u64)>) {
        for (stream, end) in ends {
            self.intake.place(stream).acknowledged = end;
        }
    }
}

/// Counts a range of words that was skipped. Returns its position and the version in its first word, if a newer kernel
/// may have written it.
fn count(totals: &mut Totals, skipped: &Skipped) -> Option<(u64, u8)> {
    match skipped.why {
        Why::UnknownKind(_) => totals.unknown += 1,
        _ => totals.corrupt += 1,
    }
    match skipped.why {
        Why::Version(version) if version > VERSION => Some((skipped.from, version)),
        _ => None,
    }
}
