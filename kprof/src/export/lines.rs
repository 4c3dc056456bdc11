//! Writes lines of the text form in the serial form: first the checksum of a line, then its bytes.
//!
//! In: copies of records. Out: lines with a number and a checksum. Runs in: any, a panic handler too; no allocation.
//! Each line is formatted twice: for its checksum, then for the sink. Values that can change in between (counters) are
//! first formatted into a small buffer.

use crate::format::checksum::Crc32;
use crate::format::line::Name;
use crate::format::marker::{Marker, TruncationReason};
use crate::format::record::{Header, Kind, MetaHeader, OTHER_TASKS, OTHER_TASKS_NAME, SampleHeader};
use crate::format::text::UNNAMED_TASK;
use crate::ring::Ring;
use crate::stream::meta_record::text;
use core::fmt::{self, Display, Write};
use core::sync::atomic::{AtomicU64, Ordering};

/// The longest record that is written completely, in words. A longer one is truncated, and marked as truncated.
const MAX_WORDS: usize = 256;
/// The longest task name.
const MAX_NAME: usize = 64;

/// The sink for lines, with what is needed to write them.
pub struct Lines<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) sequence: &'a AtomicU64,
    /// The names of tasks.
    pub names: Names<'a>,
}

impl Lines<'_> {
    /// Writes a line that has the same text each time it is formatted.
    pub fn put(&mut self, line: fmt::Arguments<'_>) -> fmt::Result {
        let mut sum = Sum(Crc32::default());
        sum.write_fmt(line)?;
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        writeln!(self.out, "~kprof {sequence} {:08x} {line}", sum.0.end())
    }

    /// Writes a line of counters that may change while it is written: it is formatted once, into a buffer. (Neither
    /// this function nor `sample` and `meta` are inlined, so that their buffers are not on the stack at the same time.)
    #[inline(never)]
    pub(super) fn put_once(&mut self, line: fmt::Arguments<'_>) -> fmt::Result {
        let mut buffer = heapless::String::<1536>::new();
        buffer.write_fmt(line)?;
        self.put(format_args!("{buffer}"))
    }

    /// Writes the sample at position `at` as one line. Returns `false` if the sample was overwritten before it was
    /// copied.
    #[inline(never)]
    pub(super) fn sample(&mut self, cpu: usize, ring: &Ring, at: u64) -> Result<bool, fmt::Error> {
        let Some(record) = Record::copy(ring, at) else { return Ok(false) };
        self.names.find(record.sample().task);
        let name = Name::Raw(&self.names.name);
        // The borrow of the name ends with the line.
        let mut sum = Sum(Crc32::default());
        write!(sum, "{name} {cpu:x} {record}")?;
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        writeln!(self.out, "~kprof {sequence} {:08x} {name} {cpu:x} {record}", sum.0.end())?;
        Ok(true)
    }
}

/// A sink that computes a checksum.
struct Sum(Crc32);

impl Write for Sum {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.add(text.as_bytes());
        Ok(())
    }
}

/// A copy of a sample or an event.
pub struct Record {
    words: [u64; MAX_WORDS],
    length: usize,
}

impl Record {
    /// A copy of the record at `at`; `None` if the producer has overwritten the record meanwhile.
    pub fn copy(ring: &Ring, at: u64) -> Option<Self> {
        let words = ring.record_at(at).ok()?? as usize;
        let mut record = Self { words: [0; MAX_WORDS], length: words.min(MAX_WORDS) };
        for (word, position) in record.words[..record.length].iter_mut().zip(at..) {
            *word = ring.word(position);
        }
        if words > MAX_WORDS {
            record.words[MAX_WORDS - 1] = Marker::Truncated(Ok(TruncationReason::Depth)).encode();
        }
        ring.record_at(at).ok()?.map(|_| record)
    }

    /// Its words.
    pub fn words(&self) -> &[u64] {
        &self.words[..self.length]
    }

    /// The header, if this is a sample.
    fn sample(&self) -> SampleHeader {
        SampleHeader::read(|at| self.words[at])
    }
}

impl Display for Record {
    /// Writes TSC and addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SampleHeader { tsc, address, .. } = self.sample();
        write!(f, "{tsc:x} {address:x}{}", Addresses(self.words().get(SampleHeader::WORDS..).unwrap_or(&[])))
    }
}

/// Addresses, each with a space before it.
pub struct Addresses<'a>(pub &'a [u64]);

impl Display for Addresses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|word| write!(f, " {word:x}"))
    }
}

/// The names of tasks, looked up in the meta stream; the last one found is kept.
pub struct Names<'a> {
    meta: Option<&'a Ring>,
    id: Option<u64>,
    name: heapless::Vec<u8, MAX_NAME>,
}

impl<'a> Names<'a> {
    pub(super) fn new(meta: Option<&'a Ring>) -> Self {
        Self { meta, id: None, name: heapless::Vec::new() }
    }

    /// The name of task `id`.
    pub fn name_of(&mut self, id: u64) -> heapless::Vec<u8, MAX_NAME> {
        self.find(id);
        self.name.clone()
    }

    /// Sets `name` to the name of task `id`: the newest one in the stream, or `idID` if the stream has none.
    fn find(&mut self, id: u64) {
        if self.id == Some(id) {
            return;
        }
        (self.id, self.name) = (Some(id), heapless::Vec::new());
        // Each of these fits: `id` with 16 hex digits, and a truncated copy.
        if id == OTHER_TASKS {
            let _ = self.name.extend_from_slice(OTHER_TASKS_NAME);
            return;
        }
        let _ = write!(self.name, "{UNNAMED_TASK}{id:x}");
        let Some(ring) = self.meta else { return };
        let mut at = ring.tail();
        while let Ok(Some(words)) = ring.record_at(at) {
            let kind = Header::decode(ring.word(at)).map(|header| header.kind);
            if kind == Ok(Kind::TaskName) && ring.word(at + MetaHeader::AT.first as u64) == id {
                self.name.clear();
                let _ = self.name.extend_from_slice(&text::<MAX_NAME>(ring, at));
            }
            at += words;
        }
    }
}
