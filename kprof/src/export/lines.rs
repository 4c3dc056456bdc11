//! Writes lines of the text form in the serial form: first the checksum of a line, then its bytes.
//!
//! In: copies of records. Out: lines with a number and a checksum. Runs in: any, a panic handler too; no allocation.
//! Each line is formatted twice: for its checksum, then for the sink. Values that can change in between (counters) are
//! first formatted into a small buffer.

use crate::extension::Extension;
use crate::format::checksum::Crc32;
use crate::format::event::{Event, EventLine};
use crate::format::line::{self, Counters, Hex, Name, Range, Stream};
use crate::format::marker::{Marker, TruncationReason};
use crate::format::record::{
    Header, Kind, MetaHeader, NO_TASK, OTHER_TASKS, OTHER_TASKS_NAME, SampleHeader, image_name_and_id,
};
use crate::format::text::UNNAMED_TASK;
use crate::ring::Ring;
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
    pub names: Names<'a>,
    pub(super) extension: &'static dyn Extension,
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

    /// Writes the event at position `at` as one line. Returns `false` if it is not an event.
    #[inline(never)]
    pub(super) fn event(&mut self, cpu: u32, ring: &Ring, at: u64) -> Result<bool, fmt::Error> {
        let Some(record) = Record::copy(ring, at) else { return Ok(false) };
        let word = |index: usize| record.words().get(index).copied().unwrap_or(0);
        let Some((event, stack)) = Event::of(word, record.length) else { return Ok(false) };
        self.names.find(event.task);
        let task = self.names.name.clone();
        let point = self.extension.point_name(event.point);
        let line = EventLine {
            point: Name::Raw(point.as_deref().unwrap_or("?").as_bytes()),
            task: Name::Raw(&task),
            cpu,
            tsc: event.tsc,
            weight: event.weight,
            state: event.state,
            arguments: event.arguments,
        };
        self.put(format_args!("{line}{}", Addresses(record.words().get(stack..).unwrap_or(&[]))))?;
        Ok(true)
    }

    /// Writes the meta records between two positions, as one batch.
    #[inline(never)]
    pub(super) fn meta(&mut self, ring: &Ring, from: u64, to: u64) -> fmt::Result {
        let (first_tick, last_tick, snapshot) = (None, None, None);
        let cpu = Stream::Meta;
        let batch =
            line::Batch { cpu, from, to, first_tick, last_tick, counters: Counters::None, snapshot, boot: None };
        self.put(format_args!("{batch}"))?;
        let mut at = from;
        while at < to {
            let Ok(Some(words)) = ring.record_at(at) else { break };
            let text = Text::<1024>::copy(ring, at);
            let header @ MetaHeader { first, second, third, .. } = MetaHeader::read(|word| ring.word(at + word as u64));
            let (name, tsc) = (Name::Raw(text.bytes()), Hex(header.tsc));
            match Header::decode(ring.word(at)).map(|header| header.kind) {
                Ok(Kind::TaskName) => self.put(format_args!("{}", line::Task { id: Hex(first), name }))?,
                Ok(Kind::Mark) => self.put(format_args!("{}", line::Mark { tsc, name }))?,
                Ok(Kind::Setting) => self.put(format_args!("{}", line::Setting { tsc, value: name }))?,
                Ok(Kind::Events) => {
                    self.names.find(first);
                    let (counts, task) = (core::str::from_utf8(text.bytes()).unwrap_or(""), self.names.name.clone());
                    let (counters, task) = (line::Events::counters_of(counts), Name::Raw(&task));
                    self.put(format_args!("{}", line::Events { tsc, cpu: second, counters, task }))?;
                }
                Ok(Kind::PointAccount) => {
                    let counts = core::str::from_utf8(text.bytes()).unwrap_or("");
                    let account = line::PointAccount::of_record(header.tsc, second, third, counts);
                    self.put(format_args!("{account}"))?;
                }
                Ok(Kind::Point) => {
                    let text = core::str::from_utf8(text.bytes()).unwrap_or("");
                    self.put(format_args!("{}", line::Point::of_record(header.tsc, first, text)))?;
                }
                Ok(Kind::TaskTimes) => {
                    self.names.find(first);
                    let (times, task) = (core::str::from_utf8(text.bytes()).unwrap_or(""), self.names.name.clone());
                    let times = line::TaskTimes::of_record(header.values(), times, Name::Raw(&task));
                    self.put(format_args!("{times}"))?;
                }
                Ok(Kind::PointValues) => {
                    let text = core::str::from_utf8(text.bytes()).unwrap_or("");
                    self.put(format_args!("{}", line::PointValues::of_record(header.tsc, text)))?;
                }
                Ok(Kind::Image) => {
                    let (name, id) = image_name_and_id(text.bytes());
                    let (name, build_id, load) = (Name::Raw(name), Name::Raw(id), Hex(first));
                    let image = line::Image { tsc, load, text: Range(second, third), build_id, name };
                    self.put(format_args!("{image}"))?;
                }
                Ok(Kind::Lockup) => {
                    let (text, task) = (core::str::from_utf8(text.bytes()).unwrap_or(""), self.names.name_of(first));
                    let task = (first != NO_TASK).then_some(Name::Raw(&task));
                    let lockup = line::Lockup::of_record(header.tsc, second, third, text, task);
                    self.put(format_args!("{lockup}"))?;
                }
                Ok(Kind::LockupStack) => {
                    let (text, task) = (core::str::from_utf8(text.bytes()).unwrap_or(""), self.names.name_of(first));
                    if let Some(stack) = line::LockupStack::of_record(second, third, text, Name::Raw(&task)) {
                        self.put(format_args!("{stack}"))?;
                    }
                }
                // Not a record, or a kind that does not belong in the meta stream.
                Ok(Kind::Sample | Kind::SnapshotSample | Kind::Event) | Err(_) => {}
            }
            at += words;
        }
        self.put(format_args!("{}", line::End { cpu: Stream::Meta, to, samples: None, crc: None }))
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
struct Record {
    words: [u64; MAX_WORDS],
    length: usize,
}

impl Record {
    /// A copy of the sample at `at`; `None` if the producer has overwritten the sample meanwhile.
    fn copy(ring: &Ring, at: u64) -> Option<Self> {
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

    fn words(&self) -> &[u64] {
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
struct Addresses<'a>(&'a [u64]);

impl Display for Addresses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|word| write!(f, " {word:x}"))
    }
}

/// A copy of the text of a meta record.
struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    fn copy(ring: &Ring, at: u64) -> Self {
        let length = ring.word(at + MetaHeader::AT.text_bytes as u64) as usize;
        let mut text = Self { bytes: [0; N], length: length.min(N) };
        let words = (at + MetaHeader::WORDS as u64..).map(|position| ring.word(position).to_le_bytes());
        for (bytes, word) in text.bytes[..text.length].chunks_mut(8).zip(words) {
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        text
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
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
                let _ = self.name.extend_from_slice(Text::<MAX_NAME>::copy(ring, at).bytes());
            }
            at += words;
        }
    }
}
