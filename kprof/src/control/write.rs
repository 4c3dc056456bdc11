//! A write to ctl: checks all commands, reserves what they need, then carries them out.
//!
//! In: the lines of one write, and the control file that was written to. Out: all commands were carried out, or none
//! and an error that names the first wrong line. Runs in: ordinary code. Changes of choices, state, mode, claim and
//! lease are serialized by the lock of changes. `ack`, `mark` and `wait` need only the streams that they name, so that
//! a change that waits does not block a reader.

use super::plan::{NO_ACK_IN_OVERWRITE, Plan, names_state};
use super::{OpenControl, copies, lines};
use crate::arch::timestamp;
use crate::errors::{CommandError, ControlError, StreamName};
use crate::extension::Line;
use crate::format::command::Command;
use crate::format::settings::Keys;
use crate::kernel::ControlDone;
use crate::live::State;
use crate::patience::Patience;
use crate::shared::{Conflict, Shared};
use crate::stream::owner::{Activity, Owner};
use crate::stream::{OWNER_WAIT_US, Owned};
use crate::transition::ChangeLock;
use core::sync::atomic::Ordering;

/// Ends the acknowledgements of one write: leaves the streams that it has taken.
struct Acknowledging<'a>(&'a OpenControl);

impl Drop for Acknowledging<'_> {
    fn drop(&mut self) {
        // Only this file can have taken streams for acknowledging, and it carries out one write at a time.
        let owners = self.0.shared.streams().map(|(_, stream)| &stream.reader.owner);
        owners.filter(|owner| owner.is_taken_for(Activity::Acknowledge)).for_each(Owner::leave);
    }
}

/// Carries out a write.
pub(super) fn write(file: &OpenControl, bytes: &[u8]) -> Result<ControlDone, ControlError> {
    let shared = file.shared;
    let at = |line: usize| move |reason: CommandError| ControlError { line, reason };
    let mut changes = false;
    for (line, command) in lines(bytes) {
        let command = command.map_err(|bad| at(line)(bad.into()))?;
        changes |= !matches!(command, Command::Ack(..) | Command::Mark(_) | Command::Flush | Command::WaitMs(_));
    }
    let lock = match changes {
        true => Some(shared.change_lock().map_err(|error| at(1)(error.into()))?),
        false => None,
    };
    if let Some(lock) = &lock {
        // Otherwise the choices of an expired lease would be taken for those before this write.
        lock.undo_expired_lease().map_err(|error| at(1)(error.into()))?;
    }
    let mut plan = Plan::new(file);
    let (mut state_line, mut refused) = (1, Ok(()));
    for (line, command) in lines(bytes) {
        let Ok(command) = command else { continue };
        if names_state(&command) {
            state_line = line;
        }
        if let Err(reason) = plan.add(file, command) {
            refused = Err(ControlError { line, reason });
            break;
        }
    }
    // The first command that is refused is reported, whoever refuses it.
    let is_before = |line: &Line<'_>| refused.as_ref().err().is_none_or(|refused| line.number < refused.line);
    shared.extension().check(&mut layered(file, bytes).take_while(is_before))?;
    refused?;
    carry_out(file, bytes, plan, lock.as_ref(), state_line)
}

/// The commands of a write. Each belongs to the layer of the lease from the line `lease` on, if the file has not had it
/// before.
fn layered<'a>(file: &OpenControl, bytes: &'a [u8]) -> impl Iterator<Item = Line<'a>> {
    let mut by_lease = file.shared.layers().holder() == Some(file.id);
    lines(bytes).filter_map(move |(number, command)| {
        let command = command.ok()?;
        by_lease |= command == Command::Lease;
        Some(Line { number, command, by_lease })
    })
}

/// The second half of a write: reserves what is needed, then carries out what was checked.
fn carry_out(
    file: &OpenControl,
    bytes: &[u8],
    mut plan: Plan,
    lock: Option<&ChangeLock<'_>>,
    state_line: usize,
) -> Result<ControlDone, ControlError> {
    let shared = file.shared;
    let at = |line: usize| move |reason: CommandError| ControlError { line, reason };
    let change = match lock {
        Some(lock) => Some(lock.prepare(plan.layers, plan.claims).map_err(|error| at(state_line)(error.into()))?),
        None => None,
    };
    let owns_all = change.as_ref().is_some_and(|change| change.owns_all());
    let acknowledging = plan.acknowledges.then_some(Acknowledging(file));
    if plan.acknowledges {
        reserve(file, bytes, owns_all)?;
    }
    if plan.copies && plan.has_copies {
        copies::begin(shared).map_err(at(1))?;
    }
    // Nothing is refused from here on. In drop mode, acknowledged records are freed before a recorder can start.
    if plan.acknowledges && !plan.before.overwrites() {
        acknowledge(shared, bytes);
    }
    // What tasks did is written up to now if somebody asks for counts, or changes who asks.
    let asks_for_times = plan.asks_for_counts || plan.names_state && plan.state != State::Running;
    plan.done.wants_names = plan.claims && plan.has_claim || plan.copies && plan.has_copies;
    let mut committed = Ok(());
    if let Some(change) = change {
        if plan.copies {
            shared.copy_process.store(file.process, Ordering::Release);
            shared.copy_claim.store(if plan.has_copies { file.id } else { 0 }, Ordering::Release);
        }
        if plan.claims {
            change.set_claim(if plan.has_claim { file.id } else { 0 }, file.process);
        }
        set_cpus(file, bytes);
        shared.extension().carry_out(&mut layered(file, bytes));
        // Last: until then a line is in the layer in which it was planned.
        committed = change.commit(plan.names_state);
    }
    if plan.acknowledges && plan.before.overwrites() {
        acknowledge(shared, bytes);
    }
    drop(acknowledging);
    tell(shared, bytes, &plan);
    if plan.names_state && plan.state != State::Running {
        shared.extension().write_counts();
    }
    plan.done.wants_times = asks_for_times && shared.extension().wants_times();
    committed.map(|()| plan.done).map_err(|error| at(state_line)(error.into()))
}

/// The `ack` lines of a write.
fn acks(bytes: &[u8]) -> impl Iterator<Item = (usize, StreamName, u64)> {
    lines(bytes).filter_map(|(line, command)| match command {
        Ok(Command::Ack(name, position)) => Some((line, name, position)),
        _ => None,
    })
}

/// Takes the streams that the `ack` lines name, unless the transition owns all streams already
/// (`owns_all`), and checks the positions.
fn reserve(file: &OpenControl, bytes: &[u8], owns_all: bool) -> Result<(), ControlError> {
    let shared = file.shared;
    let mut patience = Patience::us(OWNER_WAIT_US, shared.tsc_hz());
    if owns_all {
        acks(bytes).filter_map(|(_, name, _)| held(shared, name)).for_each(|stream| stream.begin_acknowledging());
    }
    for (line, name, position) in acks(bytes) {
        let refuse = |reason| Err(ControlError { line, reason });
        let Some(stream) = shared.stream(name) else { return refuse(CommandError::Value("a cpu that has registered")) };
        let owner = &stream.reader.owner;
        if !owns_all && !owner.is_taken_for(Activity::Acknowledge) {
            match shared.take_owner(owner, file.id, Activity::Acknowledge, &mut patience) {
                Ok(()) => stream.taken(false, false).begin_acknowledging(),
                Err(Conflict::Claimed) => return refuse(CommandError::State("`protocol 1` comes before `ack`")),
                Err(Conflict::Busy) => {
                    return refuse(CommandError::State("somebody is reading that stream right now"));
                }
            }
        }
        let Some(stream) = held(shared, name) else { return refuse(CommandError::Value("a cpu that has registered")) };
        // The mode may have changed after it was checked and before the stream was taken. From here on it cannot
        // change.
        if stream.is_recorder() && !owns_all {
            return refuse(CommandError::State(NO_ACK_IN_OVERWRITE));
        }
        if !stream.check_acknowledgement(position) {
            return refuse(CommandError::Value("the end of a record that was read"));
        }
    }
    Ok(())
}

/// The stream of this name, which this write has taken.
fn held(shared: &Shared, name: StreamName) -> Option<Owned<'_>> {
    Some(shared.stream(name)?.taken(shared.records_over(name), false))
}

/// Frees the records that were checked. A stream that is named twice is freed once, up to the position of its last
/// line.
fn acknowledge(shared: &Shared, bytes: &[u8]) {
    acks(bytes).filter_map(|(_, name, _)| held(shared, name)).for_each(|stream| {
        stream.acknowledge();
    });
}

fn set_cpus(file: &OpenControl, bytes: &[u8]) {
    for Line { command, by_lease, .. } in layered(file, bytes) {
        if let Command::Cpus(list) = command {
            for (cpu, slot) in file.shared.slots().iter().enumerate() {
                slot.sampler.enabled.store(list.contains(cpu), Ordering::Relaxed);
                if !by_lease {
                    slot.sampler.enabled_base.store(list.contains(cpu), Ordering::Relaxed);
                }
            }
        }
    }
}

/// Carries out what cannot be refused: records marks, event counts and settings in the meta stream, and notes until
/// when the writer of `wait MS` waits.
fn tell(shared: &Shared, bytes: &[u8], plan: &Plan) {
    for (_, command) in lines(bytes) {
        match command {
            Ok(Command::Mark(name)) => shared.mark(name),
            Ok(Command::WaitMs(ms)) => {
                let ticks = u128::from(shared.tsc_hz()) * u128::from(ms) / 1000;
                let until = timestamp::read().saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX));
                shared.waited_until.fetch_max(until, Ordering::Relaxed);
            }
            Ok(command) => shared.extension().tell(&command),
            Err(_) => {}
        }
    }
    shared.note_choices(plan.keys, &plan.choices);
    if plan.keys.contains(Keys::CPUS) {
        shared.note_cpus();
    }
    if plan.done.wants_names {
        shared.note_all();
    }
}
