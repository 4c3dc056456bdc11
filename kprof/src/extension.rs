//! What a package above the profiler may ask to be told: events, which count and record beside samples. The profiler
//! knows nothing of them but this trait, so a kernel that gives no extension has none of their code.
//!
//! In: moments in the life of the profiler. Out: calls of the [`Extension`] that `init` was given. Runs in: each hook
//! says where; none is called in an NMI.

use crate::errors::{CommandError, ControlError};
use crate::export::lines::Lines;
use crate::format::command::Command;
use crate::format::counter::Counter;
use crate::format::settings::Setting;
use crate::ring::Ring;
use crate::stream::Stream;
use crate::stream::meta_record::MetaRecord;
use core::fmt::{self, Write};

/// A command of a write to ctl.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    /// Its line, from 1.
    pub number: usize,
    /// What it says.
    pub command: Command<'a>,
    /// What it sets ends with the lease.
    pub by_lease: bool,
}

/// A part of the profiler that the core does not know. Each hook has a default, as if there were no such part. Runs in:
/// ordinary code, except where a hook says something else.
pub trait Extension: Sync {
    /// Checks the commands that the core does not know, which come in the order of the write; other commands are to be
    /// passed over. Changes nothing. Under the right to make changes, if one of these commands makes any.
    ///
    /// # Errors
    /// The first command that is refused, and why.
    fn check(&self, lines: &mut dyn Iterator<Item = Line<'_>>) -> Result<(), ControlError> {
        use Command::{Event, Flush, Probe, Set, Unprobe};
        for Line { number: line, command, .. } in lines {
            if matches!(command, Event(..) | Flush | Set(Setting::Lockup(1..)) | Probe(_) | Unprobe(_)) {
                let reason = CommandError::State("this kernel has no events: it gives `init` no extension");
                return Err(ControlError { line, reason });
            }
        }
        Ok(())
    }

    /// Carries out the commands of a write that was checked, under the right to make changes.
    fn carry_out(&self, lines: &mut dyn Iterator<Item = Line<'_>>) {
        let _ = lines;
    }

    /// Writes into the meta stream what such a command has set, after the whole write was carried out.
    fn tell(&self, command: &Command<'_>) {
        let _ = command;
    }

    /// Writes all that [`Extension::tell`] has ever told, as it is now: for a reader that has just claimed the streams.
    fn tell_again(&self) {}

    /// Ends what the lease has set, and writes what that changes. Under the right to make changes.
    fn end_lease(&self) {}

    /// Sampling begins, after it was stopped.
    fn begins(&self) {}

    /// Writes what was counted into the meta stream: when sampling ends, and if somebody asks for it.
    fn write_counts(&self) {}

    /// The same, once a second. Runs in: the sampler CPU. Must not wait for another CPU, because the sampler sends no
    /// ticks meanwhile: what somebody else is writing at the moment is left to that CPU.
    fn each_second(&self) {}

    /// A tick is about to be sent. `is_first`: none was sent since sampling was stopped. Runs in: the sampler CPU. Must
    /// not wait for another CPU.
    fn before_tick(&self, sampler_cpu: usize, is_first: bool) {
        let _ = (sampler_cpu, is_first);
    }

    /// Whether the times of tasks are recorded, so that the kernel should report them if somebody asks for counts.
    fn wants_times(&self) -> bool {
        false
    }

    /// The event stream of a CPU. Always the same one. Runs in: any, a panic handler too.
    fn stream(&self, cpu: usize) -> Option<&Stream> {
        let _ = cpu;
        None
    }

    /// Passes the counters of a CPU that belong to its account to `each`. Runs in: any, a panic handler too.
    ///
    /// # Errors
    /// Those of `each`.
    fn counters(&self, cpu: usize, each: &mut dyn FnMut(Counter, u64) -> fmt::Result) -> fmt::Result {
        let _ = (cpu, each);
        Ok(())
    }

    /// Writes lines of its own at the end of the status.
    ///
    /// # Errors
    /// Those of the sink.
    fn write_status(&self, out: &mut dyn Write) -> fmt::Result {
        let _ = out;
        Ok(())
    }

    /// Takes the counts of a point's account back, because the record at this position of the meta stream's ring will
    /// be replaced before anybody has read it. Runs in: any but NMI, interrupts off, with the lock of the meta stream
    /// held: takes no lock.
    fn put_back(&self, meta: &Ring, at: u64) {
        let _ = (meta, at);
    }

    /// Writes the line of a meta record whose kind the core does not write. Runs in: any, a panic handler too: takes no
    /// lock.
    ///
    /// # Errors
    /// Those of the sink.
    fn export_record(&self, lines: &mut Lines<'_>, record: &MetaRecord) -> fmt::Result {
        let _ = (lines, record);
        Ok(())
    }

    /// Writes the records of a CPU's event stream between two positions, as one batch. Returns how many were written.
    /// Runs in: any, a panic handler too: takes no lock.
    ///
    /// # Errors
    /// Those of the sink.
    fn export_events(&self, lines: &mut Lines<'_>, cpu: usize, from: u64, to: u64) -> Result<u64, fmt::Error> {
        let _ = (lines, cpu, from, to);
        Ok(0)
    }
}

/// The extension of a kernel that gives none.
pub(crate) struct NoExtension;

impl Extension for NoExtension {}
