//! Writes the records to any sink, in the serial form: for kernels without user space, and for a panic.
//!
//! In: the rings as they are. Out: lines `~kprof <seq> <crc32> <line>`, between other output of the sink. Runs in:
//! [`export`] in ordinary code, at any time; it owns each stream while it writes it. [`export_last`] also in a panic
//! handler: it takes no lock, does not wait, owns no stream and moves no position. Stop the other CPUs before it if
//! possible; a record that is overwritten while it is read is not written.

pub(crate) mod lines;
#[cfg(test)]
mod tests;

use crate::control::{each_setting, for_each_counter};
use crate::errors::{ExportError, StreamName};
use crate::extension::Extension;
use crate::format::counter::Counter;
use crate::format::line::{self, Hex, Name, Range};
use crate::format::record::{Header, Kind, MetaHeader, SampleHeader, image_name_and_id};
use crate::ring::Ring;
use crate::shared::{Conflict, Shared};
use crate::slot::CpuSlot;
use crate::stream::Owned;
use crate::stream::meta_record::MetaRecord;
use crate::stream::owner::Activity;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering;
use lines::{Lines, Names};

/// Writes all samples, events and meta records that have not been written yet, and frees the samples and the events.
pub(crate) fn export(shared: &Shared, out: &mut dyn Write) -> Result<(), ExportError> {
    let mut lines = lines(shared, out);
    if let Some(meta) = take(shared, StreamName::Meta)? {
        if shared.export_sequence.load(Ordering::Relaxed) == 0 {
            export_header(shared, &mut lines)?;
        }
        export_meta(shared, &mut lines, &meta)?;
    }
    for cpu in 0..shared.slots().len() {
        let name = StreamName::Event(cpu);
        let Some(owned) = take(shared, name)? else { continue };
        let ring = &owned.stream.ring;
        let to = ring.head();
        let events = shared.extension().export_events(&mut lines, cpu, ring.tail(), to)?;
        owned.free(to, events);
    }
    for (cpu, slot) in shared.slots().iter().enumerate() {
        let Some(owned) = take(shared, StreamName::Cpu(cpu))? else { continue };
        let (ring, to) = (&slot.stream.ring, slot.stream.ring.head());
        let samples = export_ring(&mut lines, cpu, slot, ring, ring.tail(), to)?;
        // In overwrite mode nothing is freed, so the newest records are there for the next export too.
        if !shared.live.choices().overwrites() {
            owned.free(to, samples);
        }
        drop(owned);
        export_account(shared, &mut lines, cpu, slot)?;
    }
    Ok(())
}

/// Takes a stream for the export, if it has memory.
fn take(shared: &Shared, name: StreamName) -> Result<Option<Owned<'_>>, ExportError> {
    let taken = shared.take(name, 0, Activity::Export).transpose();
    taken.map_err(|conflict| match conflict {
        Conflict::Claimed => ExportError::Claimed,
        Conflict::Busy => ExportError::Busy(name),
    })
}

/// Writes the records of the meta stream that have not been written yet.
fn export_meta(shared: &Shared, lines: &mut Lines<'_>, meta: &Owned<'_>) -> fmt::Result {
    let ring = &meta.stream.ring;
    let (from, to) = (meta.position(), ring.head());
    if from < to {
        meta_records(shared, lines, ring, from, to)?;
        // These records are written but not freed, because later samples need their names. Newer records replace them
        // when the ring is full.
        meta.skip_to(to);
    }
    Ok(())
}

/// Writes the newest `last` samples and the newest `last` events of every CPU, and all records of the meta stream (task
/// names, images, marks, settings, event counts).
pub(crate) fn export_last(shared: &Shared, out: &mut dyn Write, last: usize) -> fmt::Result {
    let mut lines = lines(shared, out);
    export_header(shared, &mut lines)?;
    if let Some(ring) = shared.meta.stream.ring.get() {
        meta_records(shared, &mut lines, ring, ring.tail(), ring.head())?;
    }
    for (cpu, slot) in shared.slots().iter().enumerate() {
        if let Some(ring) = shared.stream(StreamName::Event(cpu)).map(|stream| &stream.ring) {
            let (from, to) = newest(ring, last);
            shared.extension().export_events(&mut lines, cpu, from, to)?;
        }
        let Some(ring) = slot.stream.ring.get() else { continue };
        let (from, to) = newest(ring, last);
        export_ring(&mut lines, cpu, slot, ring, from, to)?;
        export_account(shared, &mut lines, cpu, slot)?;
    }
    Ok(())
}

/// The positions of the newest `last` records.
fn newest(ring: &Ring, last: usize) -> (u64, u64) {
    let to = ring.head();
    let all = ring.count(ring.tail(), to).unwrap_or(0);
    let mut from = ring.tail();
    for _ in 0..all.saturating_sub(last as u64) {
        let Ok(Some(words)) = ring.record_at(from) else { break };
        from += words;
    }
    (from, to)
}

/// Writes lines of the serial form, numbered on from the last ones.
pub fn lines<'a>(shared: &'a Shared, out: &'a mut dyn Write) -> Lines<'a> {
    let names = Names::new(shared.meta.stream.ring.get());
    Lines { out, sequence: &shared.export_sequence, names }
}

/// Writes the profile's header.
pub fn export_header(shared: &Shared, lines: &mut Lines<'_>) -> fmt::Result {
    lines.put(format_args!("{}", line::Profile { version: line::VERSION }))?;
    each_setting(shared, &mut |fact, value| lines.put(format_args!("{}", line::Header { fact, value })))
}

/// Writes one batch: the samples from `from` to `to`. Returns how many were written.
fn export_ring(
    lines: &mut Lines<'_>,
    cpu: usize,
    slot: &CpuSlot,
    ring: &Ring,
    from: u64,
    to: u64,
) -> Result<u64, fmt::Error> {
    let mut ticks = None;
    each_record(ring, from, to, Kind::Sample, &mut |at| {
        let tick = ring.word(at + SampleHeader::AT.tick as u64);
        ticks = Some((ticks.map_or(tick, |(first, _)| first), tick));
        Ok(())
    })?;
    let Some((first, last)) = ticks else { return Ok(0) };
    let counters = slot.handler.counters.read();
    let list = |each: &mut dyn FnMut(&str, u64) -> fmt::Result| {
        let mut wanted = counters.iter().filter(|(counter, _)| Counter::BATCH.contains(counter));
        wanted.try_for_each(|(counter, value)| each(counter.name(), *value))
    };
    let (first_tick, last_tick, counters) = (Some(first), Some(last), line::Counters::List(&list));
    let batch = line::Batch { cpu: stream(cpu), from, to, first_tick, last_tick, counters, snapshot: None, boot: None };
    lines.put(format_args!("{batch}"))?;
    let mut samples = 0;
    each_record(ring, from, to, Kind::Sample, &mut |at| {
        samples += u64::from(lines.sample(cpu, ring, at)?);
        Ok(())
    })?;
    lines.put(format_args!("{}", line::End { cpu: stream(cpu), to, samples: Some(samples), crc: None }))?;
    Ok(samples)
}

/// Writes the meta records between two positions, as one batch.
#[inline(never)]
fn meta_records(shared: &Shared, lines: &mut Lines<'_>, ring: &Ring, from: u64, to: u64) -> fmt::Result {
    let (first_tick, last_tick, snapshot) = (None, None, None);
    let (cpu, counters) = (line::Stream::Meta, line::Counters::None);
    let batch = line::Batch { cpu, from, to, first_tick, last_tick, counters, snapshot, boot: None };
    lines.put(format_args!("{batch}"))?;
    let mut at = from;
    while at < to {
        let Ok(Some(words)) = ring.record_at(at) else { break };
        if let Some(record) = MetaRecord::copy(ring, at) {
            meta_record(shared.extension(), lines, &record)?;
        }
        at += words;
    }
    lines.put(format_args!("{}", line::End { cpu: line::Stream::Meta, to, samples: None, crc: None }))
}

/// Writes one meta record. Those that an extension has written are written by it.
fn meta_record(extension: &dyn Extension, lines: &mut Lines<'_>, record: &MetaRecord) -> fmt::Result {
    let MetaHeader { first, second, third, tsc, .. } = record.header;
    let (name, tsc) = (Name::Raw(record.bytes()), Hex(tsc));
    match record.kind {
        Kind::TaskName => lines.put(format_args!("{}", line::Task { id: Hex(first), name })),
        Kind::Mark => lines.put(format_args!("{}", line::Mark { tsc, name })),
        Kind::Setting => lines.put(format_args!("{}", line::Setting { tsc, value: name })),
        Kind::Image => {
            let (name, id) = image_name_and_id(record.bytes());
            let (name, build_id, load) = (Name::Raw(name), Name::Raw(id), Hex(first));
            let image = line::Image { tsc, load, text: Range(second, third), build_id, name };
            lines.put(format_args!("{image}"))
        }
        Kind::Events | Kind::Point | Kind::PointAccount | Kind::PointValues | Kind::TaskTimes => {
            extension.export_record(lines, record)
        }
        Kind::Lockup | Kind::LockupStack => extension.export_record(lines, record),
        // These kinds do not belong in the meta stream.
        Kind::Sample | Kind::SnapshotSample | Kind::Event => Ok(()),
    }
}

/// Calls `each` for every record of this kind between two positions. Ends early if a running recorder has overwritten
/// one. A record of another kind does not belong there.
pub fn each_record(
    ring: &Ring,
    from: u64,
    to: u64,
    kind: Kind,
    each: &mut dyn FnMut(u64) -> fmt::Result,
) -> fmt::Result {
    let mut at = from;
    while at < to {
        let Ok(Some(words)) = ring.record_at(at) else { break };
        if Header::decode(ring.word(at)).is_ok_and(|header| header.kind == kind) {
            each(at)?;
        }
        at += words;
    }
    Ok(())
}

fn export_account(shared: &Shared, lines: &mut Lines<'_>, cpu: usize, slot: &CpuSlot) -> fmt::Result {
    let list = |each: &mut dyn FnMut(&str, u64) -> fmt::Result| {
        for_each_counter(shared, cpu, slot, None, &mut |name, value| each(name.name(), value))
    };
    let (cpu, counters) = (line::Cpu(number(cpu)), line::Counters::List(&list));
    lines.put_once(format_args!("{}", line::Account { cpu, counters }))
}

/// The stream of a CPU in a line.
fn stream(cpu: usize) -> line::Stream {
    line::Stream::Cpu(number(cpu))
}

/// The number of a CPU in a line; no machine has 2^32 CPUs.
fn number(cpu: usize) -> u32 {
    u32::try_from(cpu).unwrap_or(u32::MAX)
}
