//! The check of a write to ctl: what its lines ask for, and whether it can be carried out.
//!
//! In: the commands of one write in order, and the state before them. Out: a [`Plan`], or the reason why a command is
//! refused. Runs in: ordinary code. Changes nothing of the profiler: the write is carried out later, as a whole.

use super::OpenControl;
use crate::control::layers::Layers;
use crate::errors::{CommandError, StreamName};
use crate::format::command::Command;
use crate::format::settings::Setting;
use crate::format::settings::{Choices, Keys};
use crate::kernel::ControlDone;
use crate::live::State;
use crate::stream::meta::ClaimId;
use core::sync::atomic::Ordering;

pub(super) const NO_ACK_IN_OVERWRITE: &str = "nothing is acknowledged in mode overwrite";

/// What the lines that were checked so far ask for. The next line is checked against these values, as if those lines
/// had been carried out already.
pub(super) struct Plan {
    pub(super) before: Choices,
    pub(super) choices: Choices,
    /// The settings that the lines set, whether their values change or not.
    pub(super) keys: Keys,
    /// The settings with what the lines set, each in its layer.
    pub(super) layers: Layers,
    pub(super) state: State,
    /// A command is about the state or the mode.
    pub(super) names_state: bool,
    pub(super) has_claim: bool,
    /// The claim changes, is renewed, or ends.
    pub(super) claims: bool,
    pub(super) has_lease: bool,
    pub(super) has_copies: bool,
    /// `copy 1` begins the reading of copies, or `copy 0` ends it.
    pub(super) copies: bool,
    pub(super) acknowledges: bool,
    /// Somebody asks for counts, or changes who asks: there is an `event` or `flush` command.
    pub(super) asks_for_counts: bool,
    pub(super) done: ControlDone,
}

impl Plan {
    pub(super) fn new(file: &OpenControl) -> Self {
        let shared = file.shared;
        let (before, state) = (shared.live.choices(), shared.state());
        Self {
            before,
            choices: before,
            keys: Keys::empty(),
            layers: shared.layers(),
            state,
            names_state: false,
            has_claim: shared.claim() == file.id,
            claims: false,
            has_copies: shared.copy_claim() == file.id,
            copies: false,
            has_lease: shared.layers().holder() == Some(file.id),
            acknowledges: false,
            asks_for_counts: false,
            done: ControlDone { wait_ms: None, wants_names: false, wants_times: false },
        }
    }

    /// Adds a command, if it can be carried out in the state that the commands before it leave.
    pub(super) fn add(&mut self, file: &OpenControl, command: Command<'_>) -> Result<(), CommandError> {
        let shared = file.shared;
        self.names_state |= names_state(&command);
        match command {
            Command::Start if self.state == State::Frozen => return Err(CommandError::State("frozen: `thaw` goes on")),
            Command::Start => self.state = State::Running,
            Command::Stop => self.state = State::Stopped,
            Command::Set(Setting::Hz(_)) if shared.config().is_some_and(|config| config.event.is_some()) => {
                return Err(CommandError::State("ticks are caused by an event, not by time: there is no rate"));
            }
            // Repeats a `freeze` that ended with ticks still pending, to complete it.
            Command::Freeze if self.state == State::Frozen && shared.recorder() => {}
            Command::Freeze if self.state != State::Running || !self.choices.overwrites() => {
                return Err(CommandError::State("`freeze` is for a running recorder (mode overwrite)"));
            }
            Command::Freeze => self.state = State::Frozen,
            Command::Thaw if self.state != State::Frozen => return Err(CommandError::State("not frozen")),
            Command::Thaw => self.state = State::Running,
            Command::Set(Setting::Mode(_)) if self.state == State::Frozen => {
                return Err(CommandError::State("frozen: `thaw` comes before `mode`"));
            }
            Command::Set(setting) => self.choices.set(setting),
            Command::Cpus(list) if list.greatest() >= Some(shared.slots().len()) => {
                return Err(CommandError::Value("cpus that exist"));
            }
            Command::Protocol(claim) => {
                if claim {
                    let copies = (shared.copy_claim(), shared.copy_process.load(Ordering::Acquire));
                    let reasons =
                        ["`copy 0` comes before `protocol 1`", "this process reads copies through another file"];
                    may_read(file, shared.claim(), self.has_copies, copies, reasons)?;
                }
                // `protocol 0` through a file without the claim changes nothing.
                self.claims |= claim || self.has_claim;
                self.has_claim = claim;
            }
            Command::Copy(copies) => {
                if copies {
                    let claim = (shared.claim(), shared.claim_process.load(Ordering::Relaxed));
                    let reasons =
                        ["`protocol 0` comes before `copy 1`", "this process has the claim through another file"];
                    may_read(file, shared.copy_claim(), self.has_claim, claim, reasons)?;
                }
                // `copy 0` through a file that reads no copies changes nothing.
                self.copies |= copies || self.has_copies;
                self.has_copies = copies;
            }
            Command::Lease => {
                if shared.layers().holder().is_some_and(|holder| holder != file.id) {
                    return Err(CommandError::Claimed);
                }
                self.layers.begin_lease(file.id);
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
            Command::Event(..) | Command::Flush => self.asks_for_counts = true,
            // Checked by the extension.
            Command::Probe(_) | Command::Unprobe(_) => {}
            Command::Cpus(_) | Command::Mark(_) => {}
        }
        let key = key(&command);
        self.keys |= key;
        self.layers.set(self.has_lease, key, &self.choices, self.state);
        Ok(())
    }
}

/// Whether a file may claim the streams, or begin to read copies: `holder` is the file that does this now. A process
/// does one of the two, so `other` is the file that does the other one, with its process. `has_other`: after the lines
/// before this one, it is this file.
fn may_read(
    file: &OpenControl,
    holder: ClaimId,
    has_other: bool,
    other: (ClaimId, u64),
    reasons: [&'static str; 2],
) -> Result<(), CommandError> {
    let is_another = |holder: ClaimId| ![0, file.id].contains(&holder);
    match other {
        _ if is_another(holder) => Err(CommandError::Claimed),
        _ if has_other => Err(CommandError::State(reasons[0])),
        (other, process) if is_another(other) && process == file.process => Err(CommandError::State(reasons[1])),
        _ => Ok(()),
    }
}

/// Whether a command is about the state or the mode.
pub(super) fn names_state(command: &Command<'_>) -> bool {
    matches!(command, Command::Start | Command::Stop | Command::Freeze | Command::Thaw | Command::Set(Setting::Mode(_)))
}

/// The setting that a command sets.
fn key(command: &Command<'_>) -> Keys {
    match command {
        Command::Set(setting) => setting.key(),
        Command::Cpus(_) => Keys::CPUS,
        Command::Protocol(_) | Command::Copy(_) | Command::Lease => Keys::empty(),
        Command::Event(..) | Command::Probe(_) | Command::Unprobe(_) => Keys::empty(),
        Command::Start | Command::Stop | Command::Freeze | Command::Thaw => Keys::STATE,
        Command::Mark(_) | Command::Flush | Command::Ack(..) | Command::WaitMs(_) => Keys::empty(),
    }
}
