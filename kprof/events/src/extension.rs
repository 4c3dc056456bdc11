//! What events do at the moments that the profiler tells them: the hooks of [`Extension`].
//!
//! In: the profiler's calls. Out: ctl commands checked and carried out, counts and settings in the meta stream, lines
//! of the status. Runs in: ordinary code, except where the trait says something else.

use super::events::Events;
use super::export;
use super::lockup::check::check;
use super::points::{self, POINTS, WAITS};
use super::state::State;
use crate::kernel::EventKernel;
use core::fmt::{self, Write};
use kprof::config::Trigger;
use kprof::extension::{Extension, Line};
use kprof::format::command::{Command, Removed};
use kprof::format::counter::Counter;
use kprof::format::point::CTL_PREFIX;
use kprof::format::settings::Setting;
use kprof::internals::{Lines, MetaRecord, OWNER_WAIT_US, Ring, Stream};
use kprof::{CommandError, ControlError};

impl<K: EventKernel> Extension for Events<K> {
    fn check(&self, lines: &mut dyn Iterator<Item = Line<'_>>) -> Result<(), ControlError> {
        let mut planned = Planned::default();
        for line in lines {
            let refused = |reason| ControlError { line: line.number, reason };
            planned.add(&self.state, &line).map_err(refused)?;
        }
        Ok(())
    }

    fn carry_out(&self, lines: &mut dyn Iterator<Item = Line<'_>>) {
        let mut chooses_points = false;
        for Line { command, by_lease, .. } in lines {
            match command {
                Command::Event(points, state) => {
                    if !core::mem::replace(&mut chooses_points, true) {
                        // What was counted of allocations says by the state of the point whether it was asked for.
                        self.state.write_points(OWNER_WAIT_US);
                    }
                    POINTS.set(points, state, by_lease);
                }
                Command::Probe(wanted) => self.state.plant(wanted, by_lease),
                Command::Unprobe(removed) => self.state.remove_probes(removed),
                _ => {}
            }
        }
    }

    fn tell(&self, command: &Command<'_>) {
        match command {
            Command::Flush => self.write_counts(),
            Command::Event(points, _) => {
                self.state.shared.note_setting(format_args!("{command}"));
                self.state.note_points(Some(*points));
            }
            _ => {}
        }
    }

    fn tell_again(&self) {
        self.state.note_points(None);
    }

    fn end_lease(&self) {
        self.state.end_lease_of_probes();
        if POINTS.has_lease() {
            // What was counted under the lease is written before the counts of others follow.
            self.state.write_points(OWNER_WAIT_US);
            POINTS.end_lease();
            self.state.note_points(None);
        }
    }

    fn begins(&self) {
        self.state.forget_events();
    }

    fn write_counts(&self) {
        self.state.write_events(OWNER_WAIT_US);
        self.state.write_points(OWNER_WAIT_US);
    }

    fn each_second(&self) {
        self.state.write_events(0);
        self.state.write_points(0);
    }

    fn before_tick(&self, sampler_cpu: usize, is_first: bool) {
        check(self, sampler_cpu, is_first);
    }

    fn wants_times(&self) -> bool {
        WAITS.last().is_some()
    }

    fn stream(&self, cpu: usize) -> Option<&Stream> {
        Some(self.state.slots().get(cpu)?.records.stream())
    }

    fn counters(&self, cpu: usize, each: &mut dyn FnMut(Counter, u64) -> fmt::Result) -> fmt::Result {
        let Some(slot) = self.state.slots().get(cpu) else { return Ok(()) };
        slot.by_task.totals().try_for_each(|(counter, total)| each(counter, total))
    }

    fn write_status(&self, out: &mut dyn Write) -> fmt::Result {
        for point in POINTS.iter() {
            writeln!(out, "{CTL_PREFIX}{} {} {}", point.name(), point.unit.name(), point.state())?;
        }
        Ok(())
    }

    fn put_back(&self, meta: &Ring, at: u64) {
        let Some(record) = MetaRecord::copy(meta, at) else { return };
        let place = |cpu: usize, point| self.state.slots().get(cpu)?.points.get(point);
        self.state.guests.with(|| points::put_account_back(place, record.header.values(), record.text()));
    }

    fn export_record(&self, lines: &mut Lines<'_>, record: &MetaRecord) -> fmt::Result {
        export::record(lines, record)
    }

    fn export_events(&self, lines: &mut Lines<'_>, cpu: usize, from: u64, to: u64) -> Result<u64, fmt::Error> {
        let ring = self.stream(cpu).and_then(|stream| stream.ring.get());
        ring.map_or(Ok(0), |ring| export::events(lines, cpu, ring, from, to))
    }
}

/// What the commands of a write that were checked so far ask for.
#[derive(Default)]
struct Planned {
    /// The choices for points with those of the write, from its first `event` command on.
    choices: Option<points::Wanted>,
    probes: super::probes::Planned,
}

impl Planned {
    /// Adds a command, if it can be carried out after the commands before it.
    fn add(&mut self, state: &State, line: &Line<'_>) -> Result<(), CommandError> {
        let Line { command, by_lease, .. } = *line;
        match command {
            Command::Set(Setting::Lockup(1..))
                if state.config().is_none_or(|config| config.trigger == Trigger::Timer) =>
            {
                Err(CommandError::State("`lockup` needs a sampler CPU: with the trigger `timer` there is none"))
            }
            Command::Event(points, state) => {
                let choices = self.choices.get_or_insert_with(|| POINTS.wanted());
                match choices.choose(points, state, by_lease) {
                    true => Ok(()),
                    false => Err(CommandError::State("at most 16 choices for points: `event * off` removes all")),
                }
            }
            Command::Probe(_) | Command::Unprobe(_) if !cfg!(target_arch = "x86_64") => {
                Err(CommandError::State("there are no probes on this processor"))
            }
            Command::Probe(places) => state.check_probe(places, by_lease, &mut self.probes),
            Command::Unprobe(Removed::One(address)) if !state.has_probe(address) && !self.probes.plants(address) => {
                Err(CommandError::State("there is no probe on that function"))
            }
            Command::Unprobe(Removed::OfLease) if !by_lease => {
                Err(CommandError::State("`lease` comes before `unprobe lease`"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
