//! Writes what events have put into the meta stream and into the event streams, in the serial form.
//!
//! In: copies of records. Out: lines with a number and a checksum. Runs in: any, a panic handler too: no lock, no
//! allocation, no wait.

use super::points::POINTS;
use core::fmt;
use kprof::format::event::{Event, EventLine};
use kprof::format::line::{self, Name};
use kprof::format::record::{Kind, MetaHeader, NO_TASK};
use kprof::internals::{Addresses, Lines, MetaRecord, Record, Ring, each_record};

/// Writes one record of the meta stream.
pub(crate) fn record(lines: &mut Lines<'_>, record: &MetaRecord) -> fmt::Result {
    let MetaHeader { first, second, third, tsc, .. } = record.header;
    let text = record.text();
    match record.kind {
        Kind::Events => {
            let (counters, task) = (line::Events::counters_of(text), lines.names.name_of(first));
            let events = line::Events { tsc: line::Hex(tsc), cpu: second, counters, task: Name::Raw(&task) };
            lines.put(format_args!("{events}"))
        }
        Kind::PointAccount => lines.put(format_args!("{}", line::PointAccount::of_record(tsc, second, third, text))),
        Kind::Point => lines.put(format_args!("{}", line::Point::of_record(tsc, first, text))),
        Kind::TaskTimes => {
            let task = lines.names.name_of(first);
            let times = line::TaskTimes::of_record(record.header.values(), text, Name::Raw(&task));
            lines.put(format_args!("{times}"))
        }
        Kind::PointValues => lines.put(format_args!("{}", line::PointValues::of_record(tsc, text))),
        Kind::Lockup => {
            let task = lines.names.name_of(first);
            let task = (first != NO_TASK).then_some(Name::Raw(&task));
            lines.put(format_args!("{}", line::Lockup::of_record(tsc, second, third, text, task)))
        }
        Kind::LockupStack => {
            let task = lines.names.name_of(first);
            let stack = line::LockupStack::of_record(second, third, text, Name::Raw(&task));
            stack.map_or(Ok(()), |stack| lines.put(format_args!("{stack}")))
        }
        // The profiler writes these itself.
        Kind::TaskName | Kind::Image | Kind::Mark | Kind::Setting => Ok(()),
        // These kinds do not belong in the meta stream.
        Kind::Sample | Kind::SnapshotSample | Kind::Event => Ok(()),
    }
}

/// Writes one batch: the events of a CPU from `from` to `to`. Returns how many were written.
pub(crate) fn events(lines: &mut Lines<'_>, cpu: usize, ring: &Ring, from: u64, to: u64) -> Result<u64, fmt::Error> {
    if from >= to {
        return Ok(0);
    }
    // No machine has 2^32 CPUs.
    let cpu = u32::try_from(cpu).unwrap_or(u32::MAX);
    let (stream, counters) = (line::Stream::Event(cpu), line::Counters::None);
    let (first_tick, last_tick, snapshot, boot) = (None, None, None, None);
    let batch = line::Batch { cpu: stream, from, to, first_tick, last_tick, counters, snapshot, boot };
    lines.put(format_args!("{batch}"))?;
    let mut events = 0;
    each_record(ring, from, to, Kind::Event, &mut |at| {
        events += u64::from(event(lines, cpu, ring, at)?);
        Ok(())
    })?;
    lines.put(format_args!("{}", line::End { cpu: stream, to, samples: Some(events), crc: None }))?;
    Ok(events)
}

/// Writes the event at position `at` as one line. Returns `false` if it is not an event. (It is not inlined, so that
/// its buffer is on the stack for this line only.)
#[inline(never)]
fn event(lines: &mut Lines<'_>, cpu: u32, ring: &Ring, at: u64) -> Result<bool, fmt::Error> {
    let Some(record) = Record::copy(ring, at) else { return Ok(false) };
    let words = record.words();
    let word = |index: usize| words.get(index).copied().unwrap_or(0);
    let Some((event, stack)) = Event::of(word, words.len()) else { return Ok(false) };
    let task = lines.names.name_of(event.task);
    let point = POINTS.name_of(event.point);
    let line = EventLine {
        point: Name::Raw(point.as_deref().unwrap_or("?").as_bytes()),
        task: Name::Raw(&task),
        cpu,
        tsc: event.tsc,
        weight: event.weight,
        state: event.state,
        arguments: event.arguments,
    };
    lines.put(format_args!("{line}{}", Addresses(words.get(stack..).unwrap_or(&[]))))?;
    Ok(true)
}

#[cfg(test)]
mod tests;
