//! Whole records to a reader; given up when it has said that they are safe.
//!
//! In: a reader's buffer. Out: framed records (claimed by `protocol 1`) or Redox's raw words (not claimed). Context:
//! ordinary code. Framed: nothing is freed before `ack`; a new claim reads everything not acknowledged again. Raw:
//! consumed when read. Empty: 0 bytes, at once. A record is never split; a buffer that cannot hold the next one is an error.

use crate::format::marker::{MARKER_PAGE, Marker};
use crate::format::record::{Header, Kind, SAMPLE_HEADER_WORDS};
use crate::kernel::Kernel;
use crate::profiler::Profiler;
use crate::ring::{Ring, Torn};
use crate::settings::State;
use crate::slot::ReaderPart;
use core::fmt;
use core::sync::atomic::Ordering;

/// Why a read gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// There is no such CPU, or it has not registered.
    NoStream,
    /// The next record needs a buffer of this many bytes.
    TooSmall(usize),
    /// Somebody else is reading this stream right now.
    Busy,
    /// Raw words cannot be read from a running flight recorder: freeze it, or use `protocol 1`.
    Recorder,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStream => f.write_str("no such cpu, or it has not registered"),
            Self::TooSmall(bytes) => write!(f, "the next record needs a buffer of {bytes} bytes"),
            Self::Busy => f.write_str("somebody else is reading this stream"),
            Self::Recorder => f.write_str("the flight recorder is running: freeze it, or use protocol 1"),
        }
    }
}

/// The first word of a raw record, to which its length in words is added.
const RAW_MAGIC: u64 = 0xfedf_ac00;
/// Words before the callers of a raw record.
const RAW_HEADER_WORDS: usize = 4;
/// The greatest length that fits into the low byte.
const RAW_MOST_WORDS: usize = 255;

/// How often one read may be overtaken by a running recorder before it returns with what it has.
const MOST_OVERTAKEN: usize = 64;

impl<K: Kernel> Profiler<K> {
    /// Reads records of one CPU into `buffer`; the number of bytes, 0 when there is nothing now. Context: ordinary code.
    ///
    /// # Errors
    /// [`ReadError`]; nothing is consumed then.
    pub fn read_stream(&self, cpu: usize, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let slot = self.slots().get(cpu).ok_or(ReadError::NoStream)?;
        let ring = slot.ring.get().ok_or(ReadError::NoStream)?;
        let recording = self.settings().overwrites() && self.state() == State::Running;
        let claimed = self.control.claimed();
        alone(&slot.reader, || match (claimed, recording) {
            (true, _) => framed(ring, &slot.reader, buffer, recording),
            (false, true) => Err(ReadError::Recorder),
            (false, false) => {
                let (bytes, records) = raw(ring, buffer)?;
                slot.reader.delivered.add(records);
                Ok(bytes)
            }
        })
    }

    /// Whether somebody has claimed the streams (`protocol 1`): [`Profiler::read_stream`] gives framed records then, and
    /// frees nothing before they are acknowledged; otherwise raw words, freed when read.
    pub fn is_claimed(&self) -> bool {
        self.control.claimed()
    }

    /// Reads records of the meta stream; framed always.
    ///
    /// # Errors
    /// As [`Profiler::read_stream`].
    pub fn read_meta(&self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let ring = self.meta.ring().ok_or(ReadError::NoStream)?;
        alone(&self.meta.reader, || framed(ring, &self.meta.reader, buffer, false))
    }
}

/// One reader at a time.
pub(crate) fn alone<T>(reader: &ReaderPart, work: impl FnOnce() -> Result<T, ReadError>) -> Result<T, ReadError> {
    if reader.busy.swap(true, Ordering::Acquire) {
        return Err(ReadError::Busy);
    }
    let result = work();
    reader.busy.store(false, Ordering::Release);
    result
}

/// Copies whole framed records from the reader's position on.
fn framed(ring: &Ring, reader: &ReaderPart, buffer: &mut [u8], recording: bool) -> Result<usize, ReadError> {
    if recording {
        return snapshot(ring, reader, buffer);
    }
    let from = reader.position.load(Ordering::Relaxed).max(ring.tail());
    let (mut to, mut records) = (from, 0);
    while let Ok(Some(length)) = ring.record_at(to) {
        let needed = (to + length - from) as usize * 8;
        if needed > buffer.len() {
            if to == from {
                return Err(ReadError::TooSmall(needed));
            }
            break;
        }
        to += length;
        records += 1;
    }
    let bytes = (to - from) as usize * 8;
    if ring.copy(from, &mut buffer[..bytes]).is_err() {
        // Given up meanwhile: it has just become a running recorder. The next read begins with what is left.
        return Ok(0);
    }
    reader.position.store(to, Ordering::Relaxed);
    reader.read.fetch_add(records, Ordering::Relaxed);
    Ok(bytes)
}

/// The same from a running recorder: each record is marked as part of a snapshot, and one that is overwritten while it is
/// copied is left out.
fn snapshot(ring: &Ring, reader: &ReaderPart, buffer: &mut [u8]) -> Result<usize, ReadError> {
    let (mut bytes, mut overtaken) = (0, 0);
    while overtaken < MOST_OVERTAKEN {
        let at = reader.position.load(Ordering::Relaxed).max(ring.tail());
        let length = match ring.record_at(at) {
            Ok(Some(length)) => length,
            Ok(None) => return Ok(bytes),
            // Overwritten while it was read: gone, and the tail has moved on.
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
        reader.position.store(at + length, Ordering::Relaxed);
        reader.read.fetch_add(1, Ordering::Relaxed);
    }
    Ok(bytes)
}

/// Turns records into raw words and gives them up; bytes and how many records.
fn raw(ring: &Ring, buffer: &mut [u8]) -> Result<(usize, u64), ReadError> {
    let (mut bytes, mut records, mut at) = (0, 0, ring.tail());
    // No record of a ring that is not overwritten can be torn.
    while let Ok(Some(length)) = ring.record_at(at) {
        let word = |index: usize| ring.word(at + index as u64);
        let raw_words = RAW_MOST_WORDS.min(RAW_HEADER_WORDS + callers(word, length as usize).count());
        let Some(place) = buffer[bytes..].get_mut(..raw_words * 8) else {
            if bytes == 0 {
                return Err(ReadError::TooSmall(raw_words * 8));
            }
            break;
        };
        let header = [RAW_MAGIC | raw_words as u64, word(SAMPLE_HEADER_WORDS), word(3), word(4)];
        let words = header.into_iter().chain(callers(word, length as usize));
        for (bytes, word) in place.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        (bytes, records, at) = (bytes + place.len(), records + 1, at + length);
    }
    ring.release(at);
    Ok((bytes, records))
}

/// The callers of a sample, without markers and without candidates.
fn callers(word: impl Fn(usize) -> u64, length: usize) -> impl Iterator<Item = u64> {
    let mut candidate = false;
    (SAMPLE_HEADER_WORDS + 1..length).map(word).filter(move |word| {
        let after_candidate = core::mem::replace(&mut candidate, *word == Marker::Candidate.encode());
        *word < MARKER_PAGE && !after_candidate
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::MAX_WORDS;
    use crate::ring::tests::ring_of;

    fn read_raw(callers: &[u64]) -> Vec<u64> {
        let ring = ring_of(MAX_WORDS);
        let mut sink = ring.room();
        for word in [0, 0, 3, 0x75c, 8, 0xa0].iter().chain(callers) {
            sink.push(*word);
        }
        assert!(!sink.is_full());
        ring.publish(Kind::Sample, sink.words());
        let mut bytes = [0; 8 * MAX_WORDS];
        let (length, records) = raw(&ring, &mut bytes).unwrap();
        assert_eq!(records, 1);
        assert_eq!(ring.tail(), ring.head());
        bytes[..length].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn raw_words_have_no_markers_and_no_candidates() {
        let facts = MARKER_PAGE | 1;
        let words = read_raw(&[facts, Marker::Candidate.encode(), 0xbad, 0xa1, Marker::Syscall.encode(), 0xa2]);
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
