//! A write to ctl: checks all commands, reserves what they need, then carries them out.
//!
//! In: the lines of one write, and the control file that was written to. Out: all commands were carried out, or none
//! and an error that names the first wrong line. Runs in: ordinary code. Changes of choices, state, mode, claim and
//! lease are serialized by the writer's lock. `ack`, `mark` and `wait` need only the streams that they name, so that a
//! change that waits does not block a reader.

mod copy;

use super::{OpenControl, lines, undo_expired_lease};
use crate::arch::timestamp;
use crate::config::Trigger;
use crate::errors::{CommandError, ControlError, StreamName};
#[cfg(feature = "probes")]
use crate::format::command::Removed;
use crate::format::command::{Command, Mode, Who};
use crate::kernel::ControlDone;
use crate::parts::{self, name};
use crate::patience::Patience;
use crate::state::Shared;
use crate::state::choices::{Choices, Key};
use crate::state::lease::Lease;
use crate::state::owner::{Activity, Conflict};
use crate::state::points::{POINTS, WAITS};
use crate::state::settings::State;
use crate::state::stream::{OWNER_WAIT_US, Owned, take_within};
use crate::state::transition::Writer;
use core::sync::atomic::Ordering;

const NO_ACK_IN_OVERWRITE: &str = "nothing is acknowledged in mode overwrite";

/// What the lines that were checked so far ask for. The next line is checked against these values, as if those lines
/// had been carried out already.
struct Plan {
    before: Choices,
    choices: Choices,
    /// The choices that the lines set, whether their values change or not.
    keys: Key,
    state_before: State,
    state: State,
    /// A command is about the state or the mode.
    names_state: bool,
    has_claim: bool,
    /// The claim changes, is renewed, or ends.
    claims: bool,
    has_lease: bool,
    has_copies: bool,
    /// `copy 1` begins the reading of copies, or `copy 0` ends it.
    copies: bool,
    acknowledges: bool,
    /// What the `probe` commands need.
    #[cfg(feature = "probes")]
    probes: crate::probes::Planned,
    /// The number of `event` commands.
    events: usize,
    flushes: bool,
    done: ControlDone,
}

/// Ends the acknowledgements of one write: leaves the streams that it has taken.
struct Acknowledging<'a>(&'a OpenControl);

impl Drop for Acknowledging<'_> {
    fn drop(&mut self) {
        // Only this file can have taken streams for acknowledging, and it carries out one write at a time.
        self.0
            .shared
            .words()
            .filter(|(_, word)| word.is_taken_for(Activity::Acknowledge))
            .for_each(|(_, word)| word.leave());
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
    let writer = match changes {
        true => Some(shared.writer().map_err(|error| at(1)(error.into()))?),
        false => None,
    };
    if let Some(writer) = &writer {
        // Otherwise the choices of an expired lease would be taken for those before this write.
        undo_expired_lease(shared, writer).map_err(|error| at(1)(error.into()))?;
    }
    let mut plan = Plan::new(file);
    let mut state_line = 1;
    for (line, command) in lines(bytes) {
        let Ok(command) = command else { continue };
        if names_state(&command) {
            state_line = line;
        }
        plan.add(file, command).map_err(at(line))?;
    }
    carry_out(file, bytes, plan, writer.as_ref(), state_line)
}

/// The second half of a write: reserves what is needed, then carries out what was checked.
fn carry_out(
    file: &OpenControl,
    bytes: &[u8],
    mut plan: Plan,
    writer: Option<&Writer<'_>>,
    state_line: usize,
) -> Result<ControlDone, ControlError> {
    let shared = file.shared;
    let at = |line: usize| move |reason: CommandError| ControlError { line, reason };
    let change = match writer {
        Some(writer) => {
            Some(writer.prepare(&plan.choices, plan.state, plan.claims).map_err(|error| at(state_line)(error.into()))?)
        }
        None => None,
    };
    let owns_all = change.as_ref().is_some_and(|change| change.owns_all());
    let acknowledging = plan.acknowledges.then_some(Acknowledging(file));
    if plan.acknowledges {
        reserve(file, bytes, owns_all)?;
    }
    let copying = if plan.copies { Some(copy::reserve(shared, plan.has_copies).map_err(at(1))?) } else { None };
    // Nothing is refused from here on. In drop mode, acknowledged records are freed before a recorder can start.
    if plan.acknowledges && !plan.before.overwrites() {
        acknowledge(shared, bytes);
    }
    // What tasks did is written up to now if somebody asks for counts, or changes who asks.
    let asks_for_times = plan.flushes || plan.events > 0 || plan.names_state && plan.state != State::Running;
    plan.done.wants_names = plan.claims && plan.has_claim || plan.copies && plan.has_copies;
    let mut committed = Ok(());
    if let Some(change) = change {
        if let Some(copying) = copying {
            copying.set_claim(if plan.has_copies { file.id } else { 0 }, file.process);
        }
        if plan.claims {
            change.set_claim(if plan.has_claim { file.id } else { 0 }, file.process);
        }
        note_lease(file, &plan);
        set_cpus(shared, bytes);
        if plan.events > 0 {
            // What was counted of allocations says by the state of the point whether it was asked for.
            shared.write_points();
        }
        set_points(bytes);
        #[cfg(feature = "probes")]
        set_probes(shared, bytes, plan.has_lease);
        if plan.state_before == State::Stopped && plan.state == State::Running {
            shared.forget_events();
        }
        committed = change.commit(&plan.choices, plan.state, plan.names_state);
    }
    if plan.acknowledges && plan.before.overwrites() {
        acknowledge(shared, bytes);
    }
    drop(acknowledging);
    tell(shared, bytes, &plan);
    if plan.names_state && plan.state != State::Running {
        shared.write_counts();
    }
    plan.done.wants_times = parts::POINTS && asks_for_times && WAITS.last().is_some();
    committed.map(|()| plan.done).map_err(|error| at(state_line)(error.into()))
}

impl Plan {
    fn new(file: &OpenControl) -> Self {
        let shared = file.shared;
        let (before, state) = (shared.live.choices(), shared.state());
        Self {
            before,
            choices: before,
            keys: Key::empty(),
            state_before: state,
            state,
            names_state: false,
            has_claim: shared.claim() == file.id,
            claims: false,
            has_copies: shared.copy_claim() == file.id,
            copies: false,
            has_lease: shared.with_lease(|lease| lease.is_some_and(|lease| lease.holder == file.id)),
            acknowledges: false,
            #[cfg(feature = "probes")]
            probes: crate::probes::Planned::default(),
            events: 0,
            flushes: false,
            done: ControlDone { wait_ms: None, wants_names: false, wants_times: false },
        }
    }

    /// Adds a command, if it can be carried out in the state that the commands before it leave.
    fn add(&mut self, file: &OpenControl, command: Command<'_>) -> Result<(), CommandError> {
        let shared = file.shared;
        self.names_state |= names_state(&command);
        match command {
            Command::Start if self.state == State::Frozen => return Err(CommandError::State("frozen: `thaw` goes on")),
            Command::Start => self.state = State::Running,
            Command::Stop => self.state = State::Stopped,
            Command::Mode(Mode::Overwrite) | Command::Freeze | Command::Thaw if !parts::RECORDER => {
                return Err(CommandError::NotCompiledIn(name::RECORDER));
            }
            Command::Lockup(_) if !parts::LOCKUP => return Err(CommandError::NotCompiledIn(name::LOCKUP)),
            Command::Lockup(1..) if shared.config().is_none_or(|config| config.trigger == Trigger::Timer) => {
                return Err(CommandError::State(
                    "`lockup` needs a sampler CPU: with the trigger `timer` there is none",
                ));
            }
            Command::Hz(_) if shared.config().is_some_and(|config| config.event.is_some()) => {
                return Err(CommandError::State("ticks are caused by an event, not by time: there is no rate"));
            }
            Command::Lockup(ms) => self.choices.lockup_ms = ms,
            // Repeats a `freeze` that ended with ticks still pending, to complete it.
            Command::Freeze if self.state == State::Frozen && shared.recorder() => {}
            Command::Freeze if self.state != State::Running || !self.choices.overwrites() => {
                return Err(CommandError::State("`freeze` is for a running recorder (mode overwrite)"));
            }
            Command::Freeze => self.state = State::Frozen,
            Command::Thaw if self.state != State::Frozen => return Err(CommandError::State("not frozen")),
            Command::Thaw => self.state = State::Running,
            Command::Mode(_) if self.state == State::Frozen => {
                return Err(CommandError::State("frozen: `thaw` comes before `mode`"));
            }
            Command::Mode(mode) => self.choices.mode = mode,
            Command::Hz(hz) => self.choices.hz = hz,
            Command::RandomInterval(random) => self.choices.random_interval = random,
            Command::Seed(seed) => self.choices.seed = seed,
            Command::Include(yes, Who::Idle) => self.choices.include_idle = yes,
            Command::Include(yes, Who::User) => self.choices.include_user = yes,
            Command::Backoff(on) => self.choices.backoff = on,
            Command::Depth(depth) => self.choices.depth = depth,
            Command::Cpus(list) if list.greatest() >= Some(shared.slots().len()) => {
                return Err(CommandError::Value("cpus that exist"));
            }
            Command::Protocol(claim) => {
                let claimed = shared.claim();
                if claim && claimed != 0 && claimed != file.id {
                    return Err(CommandError::Claimed);
                }
                if claim && self.has_copies {
                    return Err(CommandError::State("`copy 0` comes before `protocol 1`"));
                }
                // `protocol 0` through a file without the claim changes nothing.
                self.claims |= claim || self.has_claim;
                self.has_claim = claim;
            }
            Command::Copy(copies) => {
                let claimed = shared.copy_claim();
                if copies && claimed != 0 && claimed != file.id {
                    return Err(CommandError::Claimed);
                }
                if copies && self.has_claim {
                    return Err(CommandError::State("`protocol 0` comes before `copy 1`"));
                }
                // `copy 0` through a file that reads no copies changes nothing.
                self.copies |= copies || self.has_copies;
                self.has_copies = copies;
            }
            Command::Lease => {
                if shared.with_lease(|lease| lease.is_some_and(|lease| lease.holder != file.id)) {
                    return Err(CommandError::Claimed);
                }
                self.has_lease = true;
            }
            Command::WaitMs(_) if !shared.config().is_some_and(|config| config.can_wait) => {
                return Err(CommandError::State("this kernel cannot wait: poll"));
            }
            Command::WaitMs(ms) => self.done.wait_ms = Some(ms),
            Command::Ack(..) if shared.claim() != file.id => {
                return Err(CommandError::State("`protocol 1` comes before `ack`"));
            }
            Command::Ack(StreamName::Cpu(_), _) if self.choices.overwrites() => {
                return Err(CommandError::State(NO_ACK_IN_OVERWRITE));
            }
            Command::Ack(name, _) if shared.stream(name).is_none() => {
                return Err(CommandError::Value("a cpu that has registered"));
            }
            Command::Ack(..) => self.acknowledges = true,
            Command::Flush if !parts::EVENTS && !parts::POINTS => {
                return Err(CommandError::NotCompiledIn(name::EVENTS));
            }
            Command::Event(_, state) if state.records() && !parts::RECORDS => {
                return Err(CommandError::NotCompiledIn(name::RECORDS));
            }
            Command::Event(..) if !parts::POINTS => return Err(CommandError::NotCompiledIn(name::POINTS)),
            Command::Event(..) if !POINTS.has_room(self.events + 1) => {
                return Err(CommandError::State("at most 16 choices for points: `event * off` removes all"));
            }
            Command::Event(..) => self.events += 1,
            Command::Probe(_) | Command::Unprobe(_) if !parts::PROBES => {
                return Err(CommandError::NotCompiledIn(name::PROBES));
            }
            #[cfg(feature = "probes")]
            Command::Probe(places) => shared.check_probe(places, &mut self.probes)?,
            #[cfg(feature = "probes")]
            Command::Unprobe(Removed::One(address)) if !shared.has_probe(address) => {
                return Err(CommandError::State("there is no probe on that function"));
            }
            #[cfg(feature = "probes")]
            Command::Unprobe(Removed::OfLease) if !self.has_lease => {
                return Err(CommandError::State("`lease` comes before `unprobe lease`"));
            }
            #[cfg(not(feature = "probes"))]
            Command::Probe(_) => {}
            Command::Unprobe(_) => {}
            Command::Flush => self.flushes = true,
            Command::Cpus(_) | Command::Mark(_) => {}
        }
        self.keys |= key(&command);
        Ok(())
    }
}

/// The `ack` lines of a write.
fn acks(bytes: &[u8]) -> impl Iterator<Item = (usize, StreamName, u64)> {
    lines(bytes).filter_map(|(line, command)| match command {
        Ok(Command::Ack(name, position)) => Some((line, name, position)),
        _ => None,
    })
}

/// Takes the owner words of the streams that the `ack` lines name, unless the transition owns all streams already
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
        if !owns_all {
            shared.let_transition_pass(&mut patience);
        }
        if !owns_all && !stream.reader.owner().is_taken_for(Activity::Acknowledge) {
            match take_within(&mut patience, || stream.reader.owner().take(file.id, Activity::Acknowledge)) {
                Ok(()) => stream.taken(false).begin_acknowledging(),
                Err(Conflict::Claimed) => return refuse(CommandError::State("`protocol 1` comes before `ack`")),
                Err(Conflict::Busy(_)) => {
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

/// The stream of this name, whose owner word this write has taken.
fn held(shared: &Shared, name: StreamName) -> Option<Owned<'_>> {
    Some(shared.stream(name)?.taken(shared.records_over(name)))
}

/// Frees the records that were checked. A stream that is named twice is freed once, up to the position of its last
/// line.
fn acknowledge(shared: &Shared, bytes: &[u8]) {
    acks(bytes).filter_map(|(_, name, _)| held(shared, name)).for_each(|stream| {
        stream.acknowledge();
    });
}

fn set_cpus(shared: &Shared, bytes: &[u8]) {
    for (_, command) in lines(bytes) {
        if let Ok(Command::Cpus(list)) = command {
            for (cpu, slot) in shared.slots().iter().enumerate() {
                slot.sampler.enabled.store(list.contains(cpu), Ordering::Relaxed);
            }
        }
    }
}

fn set_points(bytes: &[u8]) {
    for (_, command) in lines(bytes) {
        if let Ok(Command::Event(points, state)) = command {
            POINTS.set(points, state);
        }
    }
}

#[cfg(feature = "probes")]
fn set_probes(shared: &Shared, bytes: &[u8], has_lease: bool) {
    shared.set_probes(lines(bytes).filter_map(|(_, command)| command.ok()), has_lease);
}

/// Notes in the lease what its holder has set.
fn note_lease(file: &OpenControl, plan: &Plan) {
    let shared = file.shared;
    if !plan.has_lease {
        return;
    }
    let is_new = shared.with_lease(|lease| {
        let is_new = lease.is_none();
        let lease = lease.get_or_insert_with(|| Lease::new(file.id, plan.before));
        lease.note(plan.keys, &plan.choices);
        lease.note_state(plan.state_before, plan.state);
        is_new
    });
    if is_new {
        POINTS.keep();
        // Saves the list of CPUs as it was before this write, which may contain a `cpus` line too.
        for sampler in shared.slots().iter().map(|slot| &slot.sampler) {
            sampler.enabled_before.store(sampler.enabled.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// Carries out what cannot be refused: records marks, event counts and settings in the meta stream, and notes until
/// when the writer of `wait MS` waits.
fn tell(shared: &Shared, bytes: &[u8], plan: &Plan) {
    for (_, command) in lines(bytes) {
        match command {
            Ok(Command::Mark(name)) => shared.mark(name),
            Ok(Command::Flush) => shared.write_counts(),
            Ok(Command::Event(points, state)) => {
                shared.note_setting(format_args!("{}", Command::Event(points, state)));
                shared.note_points(Some(points));
            }
            Ok(Command::WaitMs(ms)) => {
                let ticks = u128::from(shared.tsc_hz()) * u128::from(ms) / 1000;
                let until = timestamp::read().saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX));
                shared.waited_until.fetch_max(until, Ordering::Relaxed);
            }
            _ => {}
        }
    }
    shared.note_choices(plan.keys, &plan.choices);
    if plan.keys.contains(Key::CPUS) {
        shared.note_cpus();
    }
    if plan.done.wants_names {
        shared.note_all();
    }
}

/// Whether a command is about the state or the mode.
fn names_state(command: &Command<'_>) -> bool {
    matches!(command, Command::Start | Command::Stop | Command::Freeze | Command::Thaw | Command::Mode(_))
}

/// The choice that a command sets.
fn key(command: &Command<'_>) -> Key {
    match command {
        Command::Hz(_) => Key::HZ,
        Command::RandomInterval(_) => Key::INTERVAL,
        Command::Seed(_) => Key::SEED,
        Command::Include(_, Who::Idle) => Key::IDLE,
        Command::Include(_, Who::User) => Key::USER,
        Command::Backoff(_) => Key::BACKOFF,
        Command::Depth(_) => Key::DEPTH,
        Command::Mode(_) => Key::MODE,
        Command::Lockup(_) => Key::LOCKUP,
        Command::Cpus(_) => Key::CPUS,
        Command::Event(..) => Key::POINTS,
        Command::Protocol(_) | Command::Copy(_) | Command::Lease => Key::empty(),
        Command::Probe(_) | Command::Unprobe(_) => Key::empty(),
        Command::Start | Command::Stop | Command::Freeze | Command::Thaw => Key::empty(),
        Command::Mark(_) | Command::Flush | Command::Ack(..) | Command::WaitMs(_) => Key::empty(),
    }
}
