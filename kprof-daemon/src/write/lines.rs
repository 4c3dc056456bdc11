//! The `#` lines of the text form.
//!
//! In: typed values. Out: whole lines, appended to a buffer. Runs in: user process, a few times in a round. No `#` line
//! has a hex number as its second word, so that Redox's old tool does not take such a line for a sample.

use super::found::Maker;
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
pub fn header(out: &mut Vec<u8>, ctl: &Ctl, maker: Maker) {
    put!(out, "{}\n", line::Profile { version: line::VERSION });
    if maker == Maker::Record {
        put!(out, "{}\n", line::RECORDING_LINE);
    }
    let facts = Fact::HEADER.into_iter().filter_map(|fact| Some((fact, ctl.fact(fact)?)));
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
    /// Number of samples or events.
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
        first_tick: matches!(stream, Stream::Cpu(_)).then_some(batch.first_tick),
        last_tick: matches!(stream, Stream::Cpu(_)).then_some(batch.last_tick),
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

/// Writes what a task did with its time since the last such line. `name` is the task's escaped name.
pub fn task_times(out: &mut Vec<u8>, record: &Meta<'_>, name: &[u8]) {
    let times = String::from_utf8_lossy(record.text);
    put!(out, "{}\n", line::TaskTimes::of_record(record.values, &times, Name::Escaped(name)));
}

/// Writes a lockup, or the stack of a CPU when it was found. `task` is the task's escaped name, if it is known.
pub fn lockup(out: &mut Vec<u8>, record: &Meta<'_>, task: Option<&[u8]>) {
    let (text, [_, cpu, third]) = (String::from_utf8_lossy(record.text), record.values);
    let task = task.map(Name::Escaped);
    if record.kind == Kind::Lockup {
        put!(out, "{}\n", line::Lockup::of_record(record.tsc, cpu, third, &text, task));
    } else if let Some(stack) = line::LockupStack::of_record(cpu, third, &text, task.unwrap_or(Name::Raw(b"?"))) {
        put!(out, "{stack}\n");
    }
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
        Kind::Point => {
            let text = String::from_utf8_lossy(record.text);
            put!(out, "{}\n", line::Point::of_record(record.tsc, first, &text));
        }
        Kind::PointValues => {
            let text = String::from_utf8_lossy(record.text);
            put!(out, "{}\n", line::PointValues::of_record(record.tsc, &text));
        }
        Kind::Events | Kind::TaskTimes | Kind::Lockup | Kind::LockupStack => {}
        Kind::Sample | Kind::SnapshotSample | Kind::Event => {}
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
    fn the_times_of_a_task_and_the_meaning_of_arguments_are_lines_with_all_that_their_records_have() {
        let (mut out, text) = (Vec::new(), &b" running=20 blocked.pipe=44"[..]);
        task_times(&mut out, &Meta { kind: Kind::TaskTimes, tsc: 0x70, values: [8, 0x1f, 0x5f], text }, b"a%20b");
        let text = b"sched.off-cpu running,idle";
        meta(&mut out, &Meta { kind: Kind::PointValues, tsc: 0x71, values: [3, 0, 0], text });
        let expected = "# task-times tsc=5f from=1f id=8 running=20 blocked.pipe=44 task=a%20b\n\
                        # point-values tsc=71 values=running,idle point=sched.off-cpu\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_lockup_and_its_stacks_are_lines_with_all_that_their_records_have() {
        let mut out = Vec::new();
        let text = b"one-task ticks=9 at-ffffffff80000000=9";
        let record = Meta { kind: Kind::Lockup, tsc: 0x1f, values: [7, 2, 0xa], text };
        lockup(&mut out, &record, Some(b"my%20task"));
        lockup(&mut out, &Meta { text: b"no-answer ticks=3", ..record }, None);
        let stack = Meta { kind: Kind::LockupStack, tsc: 0x20, values: [7, 1, 0x1f], text: b"1e ff,1" };
        lockup(&mut out, &stack, Some(b"a"));
        lockup(&mut out, &Meta { text: b"no stack", ..stack }, Some(b"a"));
        let expected = "# lockup tsc=1f cpu=2 from=a kind=soft reason=one-task ticks=9 at-ffffffff80000000=9 \
            task=my%20task\n\
            # lockup tsc=1f cpu=2 from=a kind=hard reason=no-answer ticks=3\n\
            # lockup-stack of=1f cpu=1 tsc=1e stack=ff,1 task=a\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

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
