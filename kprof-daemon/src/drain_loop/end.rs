//! The end of a session: its last commands, the rest of the records, the account.
//!
//! In: a session whose rounds are over. Out: all that the kernel had recorded by then is in the file. Runs in: user
//! process. It reads up to the position that the kernel had at the end, so it ends although the kernel goes on.

use super::{LAST_ROUNDS, Session};
use crate::error::Error;
use crate::pace::Pace;
use crate::source::{Access, Source, Stream};
use crate::system::System;
use kprof_format::command::Command;
use std::collections::BTreeMap;

impl<S: System, Src: Source<S>> Session<'_, S, Src> {
    /// Lets the kernel write the events that it has counted by task. A kernel without this command, or without events,
    /// writes them once a second or not at all.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        match self.source.command(self.system, &Command::Flush.to_string()) {
            Err(Error::Refused { .. }) => Ok(()),
            other => other,
        }
    }

    /// Gives the last commands, each at most once. All of them are given; the error is that of the first that fails.
    pub(super) fn give_last_commands(&mut self) -> Result<(), Error> {
        let mut first = Ok(());
        for command in std::mem::take(&mut self.options.last_commands) {
            let given = self.source.command(self.system, &command);
            first = first.and(given);
        }
        first
    }

    /// Whether this stream was read up to a position.
    fn has_read(&self, stream: Stream, end: u64) -> bool {
        let position = self.intake.places.get(&stream).and_then(|place| place.position);
        position.or(self.ctl.position_out(stream)).unwrap_or(0) >= end
    }

    /// Reads the rest, up to the kernel's present position, and writes the account.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        let undone = self.give_last_commands();
        // `stop` fails if a CPU has not taken its ticks. The kernel has then stopped sending, so the rest is read
        // nevertheless.
        let stopped = match self.has_started() {
            true => self.source.command(self.system, "stop"),
            false if self.options.is_recording => self.flush(),
            false => Ok(()),
        };
        let stopped = undone.and(stopped);
        if let Err(error) = stopped.as_ref()
            && !matches!(error, Error::Refused { .. })
        {
            return stopped;
        }
        self.source.observe(self.system, &mut self.ctl)?;
        let target: BTreeMap<Stream, u64> = self
            .intake
            .streams(&self.ctl)
            .into_iter()
            .chain([Stream::Meta])
            .filter_map(|stream| Some((stream, self.ctl.position_in(stream)?)))
            .collect();
        let mut rounds = 0;
        while !self.totals.reached_max {
            let all_there = !target.is_empty() && target.iter().all(|(stream, end)| self.has_read(*stream, *end));
            if all_there || rounds == LAST_ROUNDS {
                break;
            }
            let found_nothing = self.round()?.brought == 0;
            let will_have_more =
                !target.is_empty() && !self.source.is_finite() && self.source.access() != Access::Counters;
            if found_nothing && !will_have_more {
                break;
            }
            if found_nothing {
                // Another process may be reading at this moment.
                let _ = self.system.sleep(Pace::SHORTEST);
            }
            rounds += usize::from(found_nothing || target.is_empty());
        }
        self.has_missed_meta |= target.get(&Stream::Meta).is_some_and(|end| !self.has_read(Stream::Meta, *end));
        self.account()?;
        self.pump_live(true);
        stopped
    }
}
