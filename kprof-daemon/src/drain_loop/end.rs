//! The end of a session: its last commands, the rest of the records, the account.
//!
//! In: a session whose rounds are over. Out: all that the kernel had recorded by then is in the file. Runs in: user
//! process. It reads up to the position that the kernel had at the end, so it ends although the kernel goes on.

use super::wait::SLEEP;
use super::{KEPT_TRIES, LAST_ROUNDS, Session};
use crate::ctl::Ctl;
use crate::error::Error;
use crate::pace::Pace;
use crate::source::{Access, Source, Stream};
use crate::system::System;
use kprof_format::command::Command;
use kprof_format::counter::MetaCounter;
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

    /// Reads the meta stream as it is, so that nothing that follows can overwrite it, and has the kernel write all that
    /// points have counted before the session, in as many portions as it needs.
    pub(super) fn read_what_was_before(&mut self) -> Result<(), Error> {
        self.read_up_to_now()?;
        while self.flush_what_is_kept()? {
            // It is from before the session, too.
            self.intake.place(Stream::Meta).older = self.ctl.position_in(Stream::Meta).unwrap_or(0);
            self.read_up_to_now()?;
        }
        Ok(())
    }

    /// Has the kernel write counts of points that it has kept because the meta ring was full. `false` if there are
    /// none. If it cannot write any in the end, the counts are not known.
    fn flush_what_is_kept(&mut self) -> Result<bool, Error> {
        let kept = |ctl: &Ctl| ctl.meta(MetaCounter::Kept).unwrap_or(0);
        let before = kept(&self.ctl);
        if before == 0 || self.source.access() == Access::Counters {
            return Ok(false);
        }
        for _ in 0..KEPT_TRIES {
            self.flush()?;
            self.source.observe(self.system, &mut self.ctl)?;
            if kept(&self.ctl) < before {
                return Ok(true);
            }
            // Beside another reader, that one makes room.
            let _ = self.system.sleep(SLEEP);
            self.round()?;
        }
        self.digest.has_missed_meta = true;
        Ok(false)
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
            true => self.source.command(self.system, &Command::Stop.to_string()),
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
        self.read_up_to_now()?;
        while !self.totals.reached_max && self.flush_what_is_kept()? {
            self.read_up_to_now()?;
        }
        self.account()?;
        stopped
    }

    /// Reads the streams up to the positions in the state that was read last.
    fn read_up_to_now(&mut self) -> Result<(), Error> {
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
            let before = self.totals;
            let found_nothing = self.round()?.brought == 0;
            let will_have_more = !target.is_empty() && self.source.access() != Access::Counters;
            if found_nothing && !will_have_more {
                break;
            }
            if found_nothing {
                // Another process may be reading at this moment.
                let _ = self.system.sleep(Pace::SHORTEST);
            }
            // A device that gives one record again and again brings bytes, but only words that are no record there.
            let now = self.totals;
            let is_damage =
                now.corrupt > before.corrupt && (now.samples, now.events) == (before.samples, before.events);
            rounds += usize::from(found_nothing || is_damage || target.is_empty());
        }
        self.digest.has_missed_meta |= target.get(&Stream::Meta).is_some_and(|end| !self.has_read(Stream::Meta, *end));
        Ok(())
    }
}
