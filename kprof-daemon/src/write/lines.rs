//! The `#` lines of the text form.
//!
//! In: typed values. Out: whole lines, appended to a buffer. Runs in: user process, a few times in a round. No `#` line
//! has a hex number as its second word, so that Redox's old tool does not take such a line for a sample.

use crate::ctl::{Counters, Ctl};
use crate::read::{Meta, Skipped};
use crate::source::Stream;
use kprof_format::counter::Counter;
use kprof_format::fact::Fact;
use kprof_format::line::{self, Hex, Name};
use kprof_format::record::{Kind, image_name_and_id};
use std::fmt;
use std::io::Write as _;

/// Appends formatted text; writing to a `Vec` cannot fail.
macro_rules! put {
    ($out:expr, $($format:tt)*) => {{ let _ = write!($out, $($format)*); }};
}

/// Writes the header of a boot.
pub fn header(out: &mut Vec<u8>, ctl: &Ctl) {
    put!(out, "{}\n", line::Profile { version: line::VERSION });
    let facts = Fact::HEADER.into_iter().filter_map(|fact| Some((fact, ctl.header_fact(fact)?)));
    let anchors = ctl.facts(Fact::Anchor).map(|value| (Fact::Anchor, value));
    for (fact, value) in facts.chain(anchors) {
        put!(out, "{}\n", line::Header { fact, value });
    }
}

/// What a batch line says about the samples after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Position of the first record in words.
    pub from: u64,
    /// Position after the last record.
    pub to: u64,
    /// Tick number of the first sample.
    pub first_tick: u64,
    /// Tick number of the last sample.
    pub last_tick: u64,
    /// Number of samples.
    pub samples: u64,
    /// Whether some of them are from a running flight recorder.
    pub is_snapshot: bool,
}

/// Writes the line that begins a batch, without its line feed. `boot` is the id of its boot, if the line is to have it.
pub fn batch(out: &mut Vec<u8>, stream: Stream, batch: &Batch, counters: Option<&Counters>, boot: Option<&str>) {
    let list = |each: &mut dyn FnMut(&str, u64) -> fmt::Result| {
        let known = |counter: Counter| Some((counter.name(), counters?.find(counter)?));
        Counter::BATCH.into_iter().filter_map(known).try_for_each(|(name, value)| each(name, value))
    };
    let line = line::Batch {
        cpu: stream.into(),
        from: batch.from,
        to: batch.to,
        first_tick: (stream != Stream::Meta).then_some(batch.first_tick),
        last_tick: (stream != Stream::Meta).then_some(batch.last_tick),
        counters: line::Counters::List(&list),
        snapshot: batch.is_snapshot.then_some(1),
        boot: boot.map(|boot| Name::Raw(boot.trim().as_bytes())),
    };
    put!(out, "{line}");
}

/// Writes the line that ends a batch, with the checksum of the batch if it has one.
pub fn end(out: &mut Vec<u8>, stream: Stream, batch: &Batch, sum: Option<u32>) {
    let samples = (stream != Stream::Meta).then_some(batch.samples);
    put!(out, "{}\n", line::End { cpu: stream.into(), to: batch.to, samples, crc: sum.map(line::Checksum) });
}

/// Writes the account of one CPU: all its counters by the kernel's names.
pub fn account(out: &mut Vec<u8>, cpu: u32, counters: &Counters) {
    let list = |each: &mut dyn FnMut(&str, u64) -> fmt::Result| {
        counters.iter().try_for_each(|(name, value)| each(name, value))
    };
    let (cpu, counters) = (line::Cpu(cpu), line::Counters::List(&list));
    put!(out, "{}\n", line::Account { cpu, counters });
}

/// Writes a line about words of a stream that were not a record.
pub fn corrupt(out: &mut Vec<u8>, stream: Stream, skipped: &Skipped) {
    let (cpu, from, words) = (stream.into(), skipped.from, skipped.words);
    put!(out, "{}\n", line::Corrupt { cpu, from, words, reason: Name::Raw(skipped.why.name().as_bytes()) });
}

/// Writes the events of one task on one CPU since the last such line for this pair. `name` is the task's escaped name.
pub fn events(out: &mut Vec<u8>, record: &Meta<'_>, name: &[u8]) {
    let counts = String::from_utf8_lossy(record.text);
    let (tsc, cpu, counters) = (Hex(record.tsc), record.values[1], line::Events::counters_of(&counts));
    put!(out, "{}\n", line::Events { tsc, cpu, counters, task: Name::Escaped(name) });
}

/// Writes one meta record of any other kind.
pub fn meta(out: &mut Vec<u8>, record: &Meta<'_>) {
    let [first, second, third] = record.values;
    let (tsc, text) = (Hex(record.tsc), Name::Raw(record.text));
    match record.kind {
        Kind::TaskName => task(out, first, text),
        Kind::Mark => put!(out, "{}\n", line::Mark { tsc, name: text }),
        Kind::Setting => put!(out, "{}\n", line::Setting { tsc, value: text }),
        Kind::Image => {
            let (name, id) = image_name_and_id(record.text);
            let (name, build_id, load) = (Name::Raw(name), Name::Raw(id), Hex(first));
            put!(out, "{}\n", line::Image { tsc, load, text: line::Range(second, third), build_id, name });
        }
        Kind::PointAccount => {
            let text = String::from_utf8_lossy(record.text);
            put!(out, "{}\n", line::PointAccount::of_record(record.tsc, second, third, &text));
        }
        Kind::Events | Kind::Sample | Kind::SnapshotSample => {}
    }
}

/// Writes the name of a task.
pub fn task(out: &mut Vec<u8>, id: u64, name: Name<'_>) {
    put!(out, "{}\n", line::Task { id: Hex(id), name });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_of_a_point_is_a_line_with_all_that_its_record_has() {
        let text = b"ns block.read log2-12=2 filtered=2";
        let values = [7, kprof_format::record::NO_CPU, 9000];
        for (cpu, field) in [(values[1], ""), (3, " cpu=3")] {
            let mut out = Vec::new();
            meta(&mut out, &Meta { kind: Kind::PointAccount, tsc: 0x1f, values: [7, cpu, 9000], text });
            let expected =
                format!("# point-account tsc=1f{field} weight=9000 log2-12=2 filtered=2 unit=ns point=block.read\n");
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
