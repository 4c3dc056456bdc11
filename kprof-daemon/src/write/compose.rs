//! Writes the records of a round in the form of the file.
//!
//! In: header, meta records and samples of one round. Out: the bytes of one write. Runs in: user process. The buffers
//! are kept from round to round; they grow to the size of the largest round and no further.

use super::body::Body;
use super::event_lines::{self, PointNames};
use super::found::Maker;
use super::lines::{self, Batch};
use super::sample_line::{Prefix, SampleLines};
use crate::ctl::{Counters, Ctl};
use crate::names::Names;
use crate::read::framed::plain::{Head, Run};
use crate::read::framed::{Framed, may_hide_record};
use crate::read::{EventRecord, Meta, Sample, Skipped};
use crate::source::Stream;
use kprof_format::checksum::Crc32;
use kprof_format::chunk::{Chunk, ChunkKind, HEADER_BYTES};
use kprof_format::line::Name;
use kprof_format::samples::{self, Times};

/// The form of the sample file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Lines.
    #[default]
    Text,
    /// Chunks, for high rates: `kprof_format::chunk`.
    Binary,
}

/// The output of one round.
#[derive(Debug, Default)]
pub struct Composer {
    form: Form,
    maker: Maker,
    out: Vec<u8>,
    body: Body,
    open: Batch,
    has_begun: bool,
    /// The samples of the open chunk in the binary form.
    samples: Box<samples::Writer>,
    /// Lines of the open batch that are not samples, in the binary form.
    notes: Vec<u8>,
    sample_lines: SampleLines,
    prefix: Prefix,
}

/// What the binary form needs of a sample beside its callers: its times and the first address.
#[inline(always)]
fn parts(head: Head<'_>) -> (Times, u64) {
    (Times { tick: head.tick(), tsc: head.tsc(), task: head.task() }, head.address())
}

/// Adds a sample whose callers were not the last ones of their place in the table, unless they may hide the beginning
/// of a record. Returns whether it was added.
#[cold]
#[inline(never)]
fn write_unknown(samples: &mut samples::Writer, body: &mut Body, head: Head<'_>, callers: &[[u8; 8]]) -> bool {
    let is_written = !may_hide_record(callers);
    if is_written {
        let (times, first) = parts(head);
        let length = samples.write(times, first, callers, body.room());
        body.advance(length);
    }
    is_written
}

/// Makes the prefix that of a sample of this task at this time.
#[cold]
#[inline(never)]
fn set_prefix(
    prefix: &mut Prefix,
    names: &mut Names,
    cpu: u32,
    (task, tsc): (u64, u64),
    make_name: impl FnOnce() -> Option<Vec<u8>>,
) {
    if !prefix.is_of(task, tsc) {
        let name = names.get_or_make(task, tsc, make_name);
        prefix.set((task, name.text, name.is_the_only_one), cpu, tsc);
    }
}

impl Composer {
    /// A composer for this form, of files of this program.
    pub fn new(form: Form, maker: Maker) -> Self {
        Self { form, maker, ..Self::default() }
    }

    /// The bytes that were composed since the last [`clear`](Self::clear).
    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// Drops the composed bytes, because they are on disk.
    pub fn clear(&mut self) {
        self.out.clear();
    }

    /// Writes the header of a boot.
    pub fn header(&mut self, ctl: &Ctl) {
        let maker = self.maker;
        self.lines(|out| lines::header(out, ctl, maker));
    }

    /// The beginning of a file that is created during a session: the header and, in a meta batch at `position`, the
    /// names.
    pub fn beginning(&self, ctl: &Ctl, names: &Names, position: u64) -> Vec<u8> {
        let mut composer = Self::new(self.form, self.maker);
        composer.header(ctl);
        composer.begin(position);
        for (id, _, name) in names.all() {
            composer.body.append(|out| lines::task(out, id, Name::Escaped(name)));
        }
        composer.end(Stream::Meta, ctl.boot(), position, None);
        composer.out
    }

    /// Begins a batch at this position.
    pub fn begin(&mut self, from: u64) {
        self.body.clear();
        self.open = Batch { from, ..Batch::default() };
        self.has_begun = false;
        self.notes.clear();
        self.samples.reset();
        self.prefix.forget();
    }

    /// Adds a sample to the open batch. `make_name` is asked for a name that the table does not have.
    pub fn sample(
        &mut self,
        names: &mut Names,
        cpu: u32,
        sample: &Sample<'_>,
        make_name: impl FnOnce() -> Option<Vec<u8>>,
    ) {
        if self.form == Form::Binary {
            let times = Times { tick: sample.tick, tsc: sample.tsc, task: sample.task };
            let stack = sample.stack;
            let length = self.samples.write(times, stack.first, stack.callers.whole(), self.body.room());
            self.body.advance(length);
        } else {
            set_prefix(&mut self.prefix, names, cpu, (sample.task, sample.tsc), make_name);
            self.sample_lines.put(&mut self.body, &self.prefix, sample);
        }
        self.count(1, (sample.tick, sample.tick));
        self.open.is_snapshot |= sample.is_snapshot;
    }

    /// Adds the samples that begin `records` and need no closer look, which nearly all samples are. These loops have
    /// nothing in them that is the same for all samples, and what few samples need is in functions of its own.
    pub fn plain_samples<'a>(
        &mut self,
        names: &mut Names,
        cpu: u32,
        records: &mut Framed<'a>,
        mut make_name: impl FnMut(u64) -> Option<Vec<u8>>,
    ) -> Option<Run<'a>> {
        let Self { form, body, samples, sample_lines, prefix, .. } = self;
        let run = match form {
            Form::Binary => records.each_plain(|plain| {
                let (times, first) = parts(plain.head);
                match samples.write_known(times, first, plain.callers, body.room()) {
                    Some(length) => body.advance(length),
                    None => return write_unknown(samples, body, plain.head, plain.callers),
                }
                true
            }),
            Form::Text => records.each_plain(|plain| {
                if !prefix.is_of(plain.head.task(), plain.head.tsc()) {
                    let (task, tsc) = (plain.head.task(), plain.head.tsc());
                    set_prefix(prefix, names, cpu, (task, tsc), || make_name(task));
                }
                sample_lines.put_plain(body, prefix, plain)
            }),
        }?;
        self.count(run.samples, (run.first.tick(), run.last.tick()));
        Some(run)
    }

    /// Counts samples that were added, with the ticks of the first and the last one.
    fn count(&mut self, samples: u64, (first, last): (u64, u64)) {
        if !self.has_begun {
            self.open.first_tick = first;
            self.has_begun = true;
        }
        self.open.last_tick = last;
        self.open.samples += samples;
    }

    /// Adds a recorded hit to the open batch. `task` is the escaped name of its task.
    pub fn event(&mut self, points: &PointNames, cpu: u32, record: &EventRecord<'_>, task: &[u8]) {
        self.open.samples += 1;
        self.body.append(|out| event_lines::put(out, points, cpu, record, task));
    }

    /// Adds a meta record to the open batch.
    pub fn meta(&mut self, record: &Meta<'_>) {
        self.body.append(|out| lines::meta(out, record));
    }

    /// Adds a lockup, or a stack of one; `task` is the escaped name of its task.
    pub fn lockup(&mut self, record: &Meta<'_>, task: Option<&[u8]>) {
        self.body.append(|out| lines::lockup(out, record, task));
    }

    /// Adds the events of the task with this (escaped) name.
    pub fn events(&mut self, record: &Meta<'_>, name: &[u8]) {
        self.body.append(|out| lines::events(out, record, name));
    }

    /// Adds a record of what a task did with its time. `name` is the task's escaped name.
    pub fn task_times(&mut self, record: &Meta<'_>, name: &[u8]) {
        self.body.append(|out| lines::task_times(out, record, name));
    }

    /// Adds a note about damage to the open batch.
    pub fn corrupt(&mut self, stream: Stream, skipped: &Skipped) {
        let in_chunk = self.form == Form::Binary && matches!(stream, Stream::Cpu(_));
        if in_chunk {
            lines::corrupt(&mut self.notes, stream, skipped);
        } else {
            self.body.append(|out| lines::corrupt(out, stream, skipped));
        }
    }

    /// Ends the open batch at this position. An empty batch is not written. In the text forms its last line has its
    /// checksum, which begins with the id of the boot; in the binary form the chunk has one, and the first line has the
    /// id.
    pub fn end(&mut self, stream: Stream, boot: &str, to: u64, counters: Option<&Counters>) {
        if self.body.bytes().is_empty() && self.notes.is_empty() {
            return;
        }
        self.open.to = to;
        let open = self.open;
        if self.form == Form::Binary && matches!(stream, Stream::Cpu(_)) {
            self.chunk_of_samples(stream, boot, counters);
            return;
        }
        let body = std::mem::take(&mut self.body);
        let is_checked = self.form != Form::Binary;
        self.lines(|out| {
            let start = out.len();
            lines::batch(out, stream, &open, counters, (!is_checked).then_some(boot));
            out.push(b'\n');
            out.extend_from_slice(body.bytes());
            let sum = is_checked.then(|| Crc32::of_batch(boot).with(&out[start..]).end());
            lines::end(out, stream, &open, sum);
        });
        self.body = body;
    }

    /// Writes lines: in the binary form as a chunk of their own, otherwise as they are.
    fn lines(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        if self.form != Form::Binary {
            return write(&mut self.out);
        }
        self.out.resize(start + HEADER_BYTES, 0);
        write(&mut self.out);
        if self.out.len() == start + HEADER_BYTES {
            return self.out.truncate(start);
        }
        self.seal(start, ChunkKind::Lines, 0);
    }

    fn chunk_of_samples(&mut self, stream: Stream, boot: &str, counters: Option<&Counters>) {
        let mut head = std::mem::take(&mut self.notes);
        let notes = head.len();
        lines::batch(&mut head, stream, &self.open, counters, Some(boot));
        head.push(b'\n');
        head.rotate_left(notes);
        let start = self.out.len();
        self.out.resize(start + HEADER_BYTES, 0);
        let (block, length) = samples::varint(head.len() as u64);
        self.out.extend_from_slice(&block[..length]);
        self.out.extend_from_slice(&head);
        self.out.extend_from_slice(self.body.bytes());
        self.seal(start, ChunkKind::Samples, self.open.samples);
        self.notes = head;
    }

    /// Fills in the header of the chunk that begins at `start` and ends at the end of the output.
    fn seal(&mut self, start: usize, kind: ChunkKind, samples: u64) {
        let samples = u32::try_from(samples).unwrap_or(u32::MAX);
        let payload = &self.out[start + HEADER_BYTES..];
        let header = Chunk { kind, samples, payload }.header();
        self.out[start..start + HEADER_BYTES].copy_from_slice(&header);
    }

    /// Writes the account of every CPU.
    pub fn accounts(&mut self, ctl: &Ctl) {
        self.lines(|out| {
            ctl.cpus()
                .filter(|(_, counters)| !counters.is_empty())
                .for_each(|(cpu, counters)| lines::account(out, cpu, counters))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{Item, Stack, Why, Words};
    use kprof_format::marker::Marker;
    use kprof_format::record::{Header, Kind, SampleHeader};

    /// A batch of two samples of an unnamed task, of which the first is from a running flight recorder.
    fn batch(form: Form) -> String {
        let (mut composer, mut names) = (Composer::new(form, Maker::Profiled), Names::default());
        composer.begin(0);
        for is_snapshot in [true, false] {
            let callers = [Marker::Candidate.encode(), 2, 3].map(u64::to_le_bytes);
            let stack = Stack { first: 1, callers: Words::of(&callers) };
            let sample = Sample { tick: 4, tsc: 5, task: 6, stack, is_snapshot };
            composer.sample(&mut names, 7, &sample, || None);
        }
        composer.end(Stream::Cpu(7), "b", 16, None);
        String::from_utf8_lossy(composer.bytes()).into_owned()
    }

    #[test]
    fn a_sample_whose_damaged_length_reaches_over_the_next_one_needs_a_closer_look_in_every_form() {
        let sample = |position, words| {
            let header = SampleHeader { position, tsc: 5, task: 6, address: 0xf00, ..SampleHeader::default() };
            let mut sample: Vec<u64> = header.record(Kind::Sample, &[0xf01]).collect();
            sample[0] = Header { kind: Kind::Sample, words }.encode();
            sample.into_iter().map(u64::to_le_bytes).collect::<Vec<_>>()
        };
        let one = SampleHeader::WORDS as u16 + 1;
        // Its length leads to the third record.
        let words = [sample(0, 2 * one), sample(u64::from(one), one), sample(2 * u64::from(one), one)].concat();
        for form in [Form::Text, Form::Binary] {
            let (mut composer, mut names) = (Composer::new(form, Maker::Profiled), Names::default());
            composer.begin(0);
            let mut records = Framed::new(words.as_flattened(), Some(0));
            assert!(composer.plain_samples(&mut names, 1, &mut records, |_| None).is_none(), "{form:?}");
            let Some(Item::Skipped(skipped)) = records.next() else { panic!("{form:?}: it is no damage") };
            assert_eq!((skipped.words, skipped.why), (one.into(), Why::Length), "{form:?}");
            let run = composer.plain_samples(&mut names, 1, &mut records, |_| None);
            assert_eq!(run.map(|run| run.samples), Some(2), "{form:?}");
        }
    }

    #[test]
    fn a_batch_with_one_sample_of_a_running_flight_recorder_says_so() {
        assert!([Form::Text, Form::Binary].into_iter().all(|form| batch(form).contains(" snapshot=1")));
    }

    #[test]
    fn nothing_to_write_is_no_chunk() {
        let (nothing, mut composer) = (Ctl::default(), Composer::new(Form::Binary, Maker::Profiled));
        composer.accounts(&nothing);
        assert_eq!(composer.bytes(), b"");
        composer.header(&nothing);
        let length = composer.bytes().len();
        assert!(length > 0);
        composer.accounts(&Ctl::made_up(&[], [1]));
        assert_eq!(composer.bytes().len(), length, "a CPU without counters has no account");
    }
}
