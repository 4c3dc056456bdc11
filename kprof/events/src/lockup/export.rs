//! Writes the report of a lockup in the serial form.
//!
//! In: the report. Out: a header if nothing was exported before, and one batch of the meta stream, with the lines of
//! the lockup and of the newest stacks. The batch is empty as to positions, so no later export has less. Runs in: the
//! sampler CPU; takes no lock and does not wait.

use super::report::Report;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering;
use kprof::format::line::{self, Counters, Name, Stream};
use kprof::format::record::NO_TASK;
use kprof::internals::{export_header, lines};

/// Writes the report.
pub(super) fn export(report: &Report<'_>, out: &mut dyn Write) -> fmt::Result {
    let (shared, found) = (report.state.shared, &report.found);
    let mut lines = lines(shared, out);
    if shared.export_sequence.load(Ordering::Relaxed) == 0 {
        export_header(shared, &mut lines)?;
    }
    let at = shared.meta.stream.ring.head();
    let (cpu, counters) = (Stream::Meta, Counters::None);
    let (first_tick, last_tick, snapshot, boot) = (None, None, None, None);
    let batch = line::Batch { cpu, from: at, to: at, first_tick, last_tick, counters, snapshot, boot };
    lines.put(format_args!("{batch}"))?;
    let task = lines.names.name_of(found.task);
    let task = (found.task != NO_TASK).then_some(Name::Raw(&task));
    let (cpu, text) = (report.cpu as u64, report.text());
    lines.put(format_args!("{}", line::Lockup::of_record(found.tsc, cpu, found.from, &text, task)))?;
    for stack in report.stacks() {
        let task = lines.names.name_of(stack.task);
        if let Some(line) = line::LockupStack::of_record(stack.cpu, found.tsc, &stack.text, Name::Raw(&task)) {
            lines.put(format_args!("{line}"))?;
        }
    }
    lines.put(format_args!("{}", line::End { cpu: Stream::Meta, to: at, samples: None, crc: None }))
}
