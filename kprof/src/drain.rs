//! Passes whole records to a reader, and frees them after the reader has acknowledged them.
//!
//! In: an open stream file, and a reader's buffer or a function that takes bytes. Out: framed records, if the reader's
//! process has claimed the streams (`protocol 1`); the raw words of Redox's profiler, if no process has. Runs in:
//! ordinary code; each read owns its stream. Framed: nothing is freed before `ack`; after a new claim, everything that
//! was not acknowledged is read again. Raw: records are freed when they are read. Empty: 0 bytes, at once. A record is
//! never split; a buffer that cannot hold the next one is an error. A claimed stream can be read only by the process
//! whose control file holds the claim; the process that has said `copy 1` gets copies.

mod copies;

use crate::errors::{ReadError, StreamName};
use crate::format::marker::{MARKER_PAGE, Marker};
use crate::format::record::{Header, Kind, REDOX_MAGIC, RawHeader, SampleHeader};
use crate::ring::{Copy, Torn};
use crate::shared::{Conflict, Shared};
use crate::stream::Owned;
use crate::stream::meta::ClaimId;
use crate::stream::owner::Activity;
use core::sync::atomic::Ordering;

/// An open stream.
pub(crate) struct OpenStream {
    shared: &'static Shared,
    name: StreamName,
    process: u64,
}

/// Takes the records of a read: the offset of the first byte among all bytes of the read, and the bytes. Returns
/// whether it has taken them.
pub(crate) type Put<'a> = &'a mut dyn FnMut(usize, &[u8]) -> bool;

/// What a read may do with its stream.
enum Reading {
    /// Copy records that stay where they are, for this claim.
    Copies(ClaimId),
    /// Copy records that the flight recorder may overwrite meanwhile.
    Snapshot(Owned<'static>),
    /// Read records that stay until they are acknowledged.
    Framed(Owned<'static>),
    /// Convert records into raw words, and free them.
    Raw(Owned<'static>),
}

/// The longest raw record: its length is in the low byte of its first word.
const RAW_MAX_WORDS: usize = 255;

/// How many times the producer may overwrite the record that is being copied, before the read ends with what it has
/// copied so far.
const MAX_OVERTAKEN: usize = 64;

impl OpenStream {
    /// A new open file of this stream for `process`.
    pub(crate) fn open(shared: &'static Shared, name: StreamName, process: u64) -> Result<Self, ReadError> {
        match name {
            StreamName::Cpu(cpu) | StreamName::Event(cpu) if cpu >= shared.slots().len() => Err(ReadError::NoStream),
            _ => Ok(Self { shared, name, process }),
        }
    }

    /// A new open file of the meta stream for `process`.
    pub(crate) fn open_meta(shared: &'static Shared, process: u64) -> Self {
        Self { shared, name: StreamName::Meta, process }
    }

    /// Reads records into `buffer`; returns the number of bytes.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        self.fill(self.begin()?, buffer)
    }

    /// Passes records of at most this many bytes to `put`; returns the number of bytes. Records that may be overwritten
    /// meanwhile, and raw words, are first copied into `scratch`.
    pub(crate) fn read_to(&self, bytes: usize, scratch: &mut [u8], put: Put<'_>) -> Result<usize, ReadError> {
        match self.begin()? {
            Reading::Framed(owned) => self.framed(&owned, bytes, put),
            other => {
                let most = bytes.min(scratch.len());
                let bytes = self.fill(other, &mut scratch[..most])?;
                if bytes == 0 || put(0, &scratch[..bytes]) { Ok(bytes) } else { Err(ReadError::NotTaken) }
            }
        }
    }

    /// Checks who may read, and takes the stream.
    fn begin(&self) -> Result<Reading, ReadError> {
        let shared = self.shared;
        shared.stream(self.name).ok_or(ReadError::NoStream)?;
        let claim = shared.claim();
        let has_claim = claim != 0 && shared.claim_process.load(Ordering::Acquire) == self.process;
        // If a claim changes after these checks, the stream cannot be taken under the old claim.
        let copies = shared.copy_claim();
        if !has_claim && copies != 0 && shared.copy_process.load(Ordering::Acquire) == self.process {
            return Ok(Reading::Copies(copies));
        }
        if claim != 0 && !has_claim {
            return Err(ReadError::Claimed);
        }
        if has_claim && self.name == StreamName::Meta {
            shared.meta.make_room_before_first_read();
        }
        let owned = shared.take(self.name, claim, Activity::Read).ok_or(ReadError::NoStream)?;
        let owned = owned.map_err(|conflict| match conflict {
            Conflict::Claimed => ReadError::Claimed,
            Conflict::Busy => ReadError::Busy,
        })?;
        match (claim != 0, owned.is_recorder(), self.name) {
            (true, true, _) => Ok(Reading::Snapshot(owned)),
            (true, false, _) => Ok(Reading::Framed(owned)),
            (false, _, name) if !matches!(name, StreamName::Cpu(_)) => Err(ReadError::NotClaimed),
            (false, true, _) => Err(ReadError::Recorder),
            (false, false, _) => Ok(Reading::Raw(owned)),
        }
    }

    fn fill(&self, reading: Reading, buffer: &mut [u8]) -> Result<usize, ReadError> {
        match reading {
            Reading::Copies(claim) => copies::read(self.shared, self.name, claim, buffer),
            Reading::Snapshot(owned) => snapshot(&owned, buffer),
            Reading::Framed(owned) => self.framed(&owned, buffer.len(), &mut |at, records| {
                buffer[at..][..records.len()].copy_from_slice(records);
                true
            }),
            Reading::Raw(owned) => raw(&owned, buffer),
        }
    }

    /// Passes whole framed records from the reader's position on to `put`.
    fn framed(&self, owned: &Owned<'_>, bytes: usize, put: Put<'_>) -> Result<usize, ReadError> {
        let ring = &owned.stream.ring;
        let (from, places) = (owned.position(), bytes as u64 / 8);
        // Most reads get all that there is, so that nothing has to be found out about single records.
        let all = self.shared.newest(self.name).and_then(|newest| owned.records_before(newest));
        let whole = match all.filter(|all| all.words <= places) {
            Some(all) => all,
            None => match ring.whole_records(from, places) {
                (Copy { records: 0, .. }, Ok(Some(length))) => return Err(ReadError::TooSmall(length as usize * 8)),
                (whole, _) => whole,
            },
        };
        // SAFETY: these are whole records from the reader's position on, which is not below the tail. Only the owner
        // moves the tail here: `owned`, which moves nothing meanwhile.
        let [before_the_end, after_it] = unsafe { ring.kept(from, whole.words) };
        for (at, records) in [(0, before_the_end), (before_the_end.len(), after_it)] {
            if !records.is_empty() && !put(at, records) {
                return Err(ReadError::NotTaken);
            }
        }
        owned.has_read(from + whole.words, whole.records);
        Ok(whole.words as usize * 8)
    }
}

/// Copies whole framed records from a running recorder. Each record is marked as part of a snapshot. A record that is
/// overwritten while it is copied is not returned.
fn snapshot(owned: &Owned<'_>, buffer: &mut [u8]) -> Result<usize, ReadError> {
    let (ring, mut bytes, mut overtaken) = (&owned.stream.ring, 0, 0);
    while overtaken < MAX_OVERTAKEN {
        let at = owned.position();
        let length = match ring.record_at(at) {
            Ok(Some(length)) => length,
            Ok(None) => return Ok(bytes),
            // The record was overwritten while it was read, and the tail has moved past it.
            Err(Torn) => {
                overtaken += 1;
                continue;
            }
        };
        let needed = length as usize * 8;
        let Some(place) = buffer[bytes..].get_mut(..needed) else {
            return if bytes > 0 { Ok(bytes) } else { Err(ReadError::TooSmall(needed)) };
        };
        if ring.copy(at, place).is_err() {
            overtaken += 1;
            continue;
        }
        let header = Header { kind: Kind::SnapshotSample, words: length as u16 };
        place[..8].copy_from_slice(&header.encode().to_le_bytes());
        bytes += needed;
        owned.has_read(at + length, 1);
    }
    Ok(bytes)
}

/// Converts records into raw words and frees them.
fn raw(owned: &Owned<'_>, buffer: &mut [u8]) -> Result<usize, ReadError> {
    let ring = &owned.stream.ring;
    let (mut bytes, mut records, mut at) = (0, 0, ring.tail());
    // No record can be torn, because only the owner moves the tail here.
    while let Ok(Some(length)) = ring.record_at(at) {
        let word = |index: usize| ring.word(at + index as u64);
        let raw_words = RAW_MAX_WORDS.min(RawHeader::WORDS + callers(word, length as usize).count());
        let Some(place) = buffer[bytes..].get_mut(..raw_words * 8) else {
            if bytes == 0 {
                return Err(ReadError::TooSmall(raw_words * 8));
            }
            break;
        };
        let SampleHeader { tsc, task, address, .. } = SampleHeader::read(word);
        let mut header = RawHeader { address, tsc, task }.words();
        header[0] = REDOX_MAGIC | raw_words as u64;
        let words = header.into_iter().chain(callers(word, length as usize));
        place.as_chunks_mut().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
        (bytes, records, at) = (bytes + place.len(), records + 1, at + length);
    }
    owned.free(at, records);
    Ok(bytes)
}

/// The callers of a sample, without markers and without candidates.
fn callers(word: impl Fn(usize) -> u64, length: usize) -> impl Iterator<Item = u64> {
    let mut candidate = false;
    (SampleHeader::WORDS..length).map(word).filter(move |word| {
        let after_candidate = core::mem::replace(&mut candidate, *word == Marker::Candidate.encode());
        *word < MARKER_PAGE && !after_candidate
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::MAX_WORDS;
    use crate::ring::tests::ring_of;
    use crate::stream::Stream;

    fn read_raw(callers: &[u64]) -> Vec<u64> {
        let stream = Stream { ring: ring_of(MAX_WORDS), ..Stream::new() };
        let Stream { ring, reader, .. } = &stream;
        let mut sink = ring.room();
        let header = SampleHeader { tsc: 0x75c, task: 8, address: 0xa0, ..SampleHeader::default() };
        for word in header.words().iter().chain(callers) {
            sink.push(*word);
        }
        assert!(!sink.is_full());
        ring.publish(Kind::Sample, sink.words());
        let mut bytes = [0; 8 * MAX_WORDS];
        let length = raw(&stream.taken(false, false), &mut bytes).unwrap();
        assert_eq!(reader.between_frees(ring), ((1, 1, ring.tail()), true));
        assert_eq!(ring.tail(), ring.head());
        bytes[..length].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn raw_words_have_no_markers_and_no_candidates() {
        let (facts, least) = (MARKER_PAGE | 1, MARKER_PAGE);
        let words = read_raw(&[facts, least, Marker::Candidate.encode(), 0xbad, 0xa1, Marker::Syscall.encode(), 0xa2]);
        assert_eq!(words, [0xfedf_ac06, 0xa0, 0x75c, 8, 0xa1, 0xa2]);
    }

    #[test]
    fn a_raw_record_never_claims_more_than_a_byte_holds() {
        let callers: Vec<u64> = (0..900).collect();
        let words = read_raw(&callers);
        assert_eq!(words.len(), 255);
        assert_eq!(words[0], 0xfedf_acff);
    }
}
