//! The `#` lines of the text form.
//!
//! In: typed values. Out: whole lines, appended to a buffer. Runs in: user process, a few times in a round. No `#` line
//! has a hex number as its second word, so that Redox's old tool does not take such a line for a sample.

use crate::ctl::{Counters, Ctl};
use crate::read::{Meta, Skipped};
use crate::source::Stream;
use kprof_format::counter::Counter;
use kprof_format::fact::Fact;
use kprof_format::record::{Kind, image_name_and_id};
use kprof_format::text::escaped;
use std::fmt::Display;
use std::io::Write as _;

/// The first line of a header. A file that begins with anything else is not a kprof profile.
pub const FIRST_LINE: &str = "# kprof-profile 1";

/// Appends formatted text; writing to a `Vec` cannot fail.
macro_rules! put {
    ($out:expr, $($format:tt)*) => { let _ = write!($out, $($format)*); };
}

/// Writes the header of a boot.
pub fn header(out: &mut Vec<u8>, ctl: &Ctl) {
    put!(out, "{FIRST_LINE}\n");
    for key in Fact::HEADER {
        if let Some(value) = ctl.fact(key.name()) {
            put!(out, "# {key} {value}\n");
        }
    }
    for anchor in ctl.facts(Fact::Anchor.name()) {
        put!(out, "# {} {anchor}\n", Fact::Anchor);
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

/// Writes the line that begins a batch, without its line feed.
pub fn batch(out: &mut Vec<u8>, stream: Stream, batch: &Batch, counters: Option<&Counters>) {
    put!(out, "# batch cpu={stream} from={} to={}", batch.from, batch.to);
    if stream != Stream::Meta {
        put!(out, " first-tick={} last-tick={}", batch.first_tick, batch.last_tick);
        // Only for CPU streams: the meta stream's counters of the same names count other records, not samples.
        for counter in Counter::BATCH {
            if let Some(value) = counters.and_then(|counters| counters.find(counter.name())) {
                put!(out, " {counter}={value}");
            }
        }
    }
    if batch.is_snapshot {
        put!(out, " snapshot=1");
    }
}

/// Writes the line that ends a batch.
pub fn end(out: &mut Vec<u8>, stream: Stream, batch: &Batch) {
    put!(out, "# end cpu={stream} to={}", batch.to);
    if stream != Stream::Meta {
        put!(out, " samples={}", batch.samples);
    }
    out.push(b'\n');
}

/// Writes the account of one CPU: all its counters by the kernel's names.
pub fn account(out: &mut Vec<u8>, cpu: u32, counters: &Counters) {
    put!(out, "# account cpu={cpu}");
    for (name, value) in counters.iter() {
        put!(out, " {name}={value}");
    }
    out.push(b'\n');
}

/// Writes a line about words of a stream that were not a record.
pub fn corrupt(out: &mut Vec<u8>, stream: Stream, skipped: &Skipped) {
    put!(out, "# corrupt cpu={stream} from={} words={} reason={}\n", skipped.from, skipped.words, skipped.why.name());
}

/// Writes the events of one task on one CPU since the last such line for this pair. `name` is the task's escaped name.
pub fn events(out: &mut Vec<u8>, record: &Meta<'_>, name: &[u8]) {
    let [_, cpu, _] = record.values;
    put!(out, "# events tsc={:x} cpu={cpu} ", record.tsc);
    out.extend(record.text.iter().map(|byte| if byte.is_ascii_graphic() { *byte } else { b' ' }));
    out.extend_from_slice(b" task=");
    out.extend_from_slice(name);
    out.push(b'\n');
}

/// Writes one meta record of any other kind.
pub fn meta(out: &mut Vec<u8>, record: &Meta<'_>) {
    let [first, second, third] = record.values;
    let tsc = record.tsc;
    match record.kind {
        Kind::TaskName => return task(out, first, escaped(record.text)),
        Kind::Mark => put_text(out, format_args!("# mark tsc={tsc:x} name="), record.text),
        Kind::Setting => put_text(out, format_args!("# setting tsc={tsc:x} value="), record.text),
        Kind::Image => {
            let (name, build_id) = image_name_and_id(record.text);
            put!(out, "# image tsc={tsc:x} load={first:x} text={second:x}-{third:x} build-id=");
            out.extend(escaped(build_id));
            put_text(out, format_args!(" name="), name);
        }
        Kind::Events | Kind::Sample | Kind::SnapshotSample => {}
    }
    out.push(b'\n');
}

/// Writes the name of a task.
pub fn task(out: &mut Vec<u8>, id: u64, name: impl Iterator<Item = u8>) {
    put!(out, "# task id={id:x} name=");
    out.extend(name);
    out.push(b'\n');
}

fn put_text(out: &mut Vec<u8>, before: impl Display, text: &[u8]) {
    put!(out, "{before}");
    out.extend(escaped(text));
}
