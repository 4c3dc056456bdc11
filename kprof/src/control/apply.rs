//! ctl's write: check everything, then do everything.
//!
//! In: the bytes of one write and the handle they came through. Out: done, or refused with nothing changed. Context:
//! ordinary code; writers take turns by a lock that is not held while `stop` waits.

use super::command::{Command, Stream, Who};
use super::{ControlDone, ControlError, Refusal, lines};
use crate::config::Mode;
use crate::drain::{ReadError, alone};
use crate::kernel::Kernel;
use crate::profiler::{Profiler, StopError};
use crate::ring::Ring;
use crate::settings::{Settings, State};
use crate::slot::ReaderPart;
use crate::x86_64::interrupts;
use core::sync::atomic::Ordering;

/// The state that the next line of a write would find.
struct Expected {
    state: State,
    /// It is `Running`, but for this write sampling was stopped.
    paused: bool,
    overwrites: bool,
    claimed: bool,
}

impl<K: Kernel> Profiler<K> {
    /// Carries a write to ctl out. `handle` tells open handles apart (any number, the kernel's own choice).
    ///
    /// # Errors
    /// The first line that is wrong; nothing has changed then (except after [`Refusal::Pending`]).
    pub fn control(&self, handle: u64, bytes: &[u8]) -> Result<ControlDone, ControlError> {
        // Drop and overwrite mode move the ring's tail from different sides: between them no handler may be at work.
        let mode = lines(bytes).find(|(_, command)| matches!(command, Ok(Command::Mode(_))));
        let result = match mode.filter(|_| self.state() == State::Running) {
            None => self.control_checked(handle, bytes, false),
            Some((line, _)) if self.stop().is_err() => {
                self.start();
                Err(ControlError { line, reason: Refusal::Pending })
            }
            Some(_) => self.control_checked(handle, bytes, true),
        };
        self.control.set_error(result.as_ref().err());
        result
    }

    /// A ctl handle was closed: its claim ends, and the next reader gets everything not acknowledged again.
    pub fn close_control(&self, handle: u64) {
        if self.control.claimed_by(handle) {
            self.rewind_readers();
            self.control.claim.store(0, Ordering::Release);
        }
    }

    fn control_checked(&self, handle: u64, bytes: &[u8], paused: bool) -> Result<ControlDone, ControlError> {
        let mut done = ControlDone { wait_ms: None, is_claim: false };
        let mut settle_line = None;
        interrupts::without(|| {
            let _one_writer = self.control.lock.lock();
            let mut expected = Expected {
                state: if paused { State::Running } else { self.state() },
                paused,
                overwrites: self.settings().overwrites(),
                claimed: self.control.claimed_by(handle),
            };
            let checked = lines(bytes).try_for_each(|(line, command)| {
                command
                    .and_then(|command| self.check(&mut expected, command))
                    .map_err(|reason| ControlError { line, reason })
            });
            let applied = checked.and_then(|()| {
                for (line, command) in lines(bytes) {
                    let Ok(command) = command else { continue };
                    if matches!(command, Command::Stop | Command::Freeze) {
                        settle_line = Some(line);
                    }
                    self.apply(handle, command, &mut done).map_err(|reason| ControlError { line, reason })?;
                }
                Ok(())
            });
            if paused && settle_line.is_none() && self.state() == State::Stopped {
                self.set_state(State::Running);
            }
            applied
        })?;
        let Some(line) = settle_line else { return Ok(done) };
        let settled = self.settle();
        self.write_events();
        settled.map(|()| done).map_err(|_: StopError| ControlError { line, reason: Refusal::Pending })
    }

    /// Whether `command` can be carried out in the state that the lines before it leave.
    fn check(&self, expected: &mut Expected, command: Command<'_>) -> Result<(), Refusal> {
        let running = expected.state == State::Running;
        match command {
            Command::Start if expected.state == State::Frozen => return Err(Refusal::State("frozen: `thaw` goes on")),
            Command::Start => expected.state = State::Running,
            Command::Stop => expected.state = State::Stopped,
            Command::Freeze if !running || !expected.overwrites => {
                return Err(Refusal::State("`freeze` is for a running recorder (mode overwrite)"));
            }
            Command::Freeze => expected.state = State::Frozen,
            Command::Thaw if expected.state != State::Frozen => return Err(Refusal::State("not frozen")),
            Command::Thaw => expected.state = State::Running,
            Command::Mode(_) if expected.state == State::Frozen => {
                return Err(Refusal::State("frozen: `thaw` comes before `mode`"));
            }
            Command::Mode(_) if running && !(expected.paused && self.state() == State::Stopped) => {
                return Err(Refusal::State("sampling was started meanwhile: try again"));
            }
            Command::Mode(mode) => expected.overwrites = mode == Mode::Overwrite,
            Command::Protocol(true) if self.control.claimed() && !expected.claimed => return Err(Refusal::Busy),
            Command::Protocol(claim) => expected.claimed = claim,
            Command::Cpus(list) if list.greatest() >= Some(self.slots().len()) => {
                return Err(Refusal::Value("cpus that exist"));
            }
            Command::WaitMs(_) if !self.config().is_some_and(|config| config.can_wait) => {
                return Err(Refusal::State("this kernel cannot wait: poll"));
            }
            Command::Ack(..) if !expected.claimed => return Err(Refusal::State("`protocol 1` comes before `ack`")),
            Command::Ack(Stream::Cpu(_), _) if expected.overwrites => {
                return Err(Refusal::State("nothing is acknowledged in mode overwrite"));
            }
            Command::Ack(stream, position) => {
                let (ring, reader) = self.stream(stream).ok_or(Refusal::Value("a cpu that has registered"))?;
                // All that was read, as nearly always, needs no count here.
                if position != reader.position.load(Ordering::Relaxed) {
                    acknowledged(ring, reader, position).ok_or(Refusal::Value("the end of a record that was read"))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Carries out a checked command.
    fn apply(&self, handle: u64, command: Command<'_>, done: &mut ControlDone) -> Result<(), Refusal> {
        let live = &self.live;
        let mut settings = self.settings();
        match command {
            Command::Start => self.start(),
            Command::Thaw => self.set_state(State::Running),
            Command::Stop => self.set_state(State::Stopped),
            Command::Freeze => self.set_state(State::Frozen),
            Command::Hz(hz) => {
                live.hz.store(hz, Ordering::Relaxed);
                self.note_setting(format_args!("hz {hz}"));
            }
            Command::RandomGaps(random) => {
                live.random_gaps.store(random, Ordering::Relaxed);
                self.note_setting(format_args!("gaps {}", if random { "random" } else { "fixed" }));
            }
            Command::Seed(seed) => {
                live.seed.store(seed, Ordering::Relaxed);
                self.note_setting(format_args!("seed {seed}"));
            }
            Command::Keep(keep, who) => {
                let (bit, name) = match who {
                    Who::Idle => (Settings::KEEP_IDLE, "idle"),
                    Who::User => (Settings::KEEP_USER, "user"),
                };
                settings.set(bit, keep);
                self.note_setting(format_args!("{} {name}", if keep { "keep" } else { "drop" }));
            }
            Command::Backoff(on) => live.backoff.store(on, Ordering::Relaxed),
            Command::Depth(depth) => {
                settings = settings.with_depth(depth);
                self.note_setting(format_args!("depth {depth}"));
            }
            Command::Cpus(list) => {
                for (cpu, slot) in self.slots().iter().enumerate() {
                    slot.sampler.enabled.store(list.contains(cpu), Ordering::Relaxed);
                }
            }
            Command::Mode(mode) => {
                settings.set(Settings::OVERWRITE, mode == Mode::Overwrite);
                self.note_setting(format_args!("mode {}", if mode == Mode::Overwrite { "overwrite" } else { "drop" }));
            }
            Command::Mark(name) => self.mark(name),
            Command::Protocol(claim) => {
                if claim || self.control.claimed_by(handle) {
                    self.rewind_readers();
                    self.control.claim.store(if claim { handle.wrapping_add(1) } else { 0 }, Ordering::Release);
                    done.is_claim = claim;
                }
            }
            Command::Ack(stream, position) => self.acknowledge(stream, position)?,
            Command::WaitMs(ms) => done.wait_ms = Some(ms),
        }
        self.set_settings(settings);
        Ok(())
    }

    /// Frees what lies below `position` and counts it as delivered.
    fn acknowledge(&self, stream: Stream, position: u64) -> Result<(), Refusal> {
        let Some((ring, reader)) = self.stream(stream) else { return Ok(()) };
        let slot = if let Stream::Cpu(cpu) = stream { self.slots().get(cpu) } else { None };
        let never_overwritten = slot.is_none_or(|slot| slot.handler.counters.overwritten.get() == 0);
        let freed = alone(reader, || {
            let read = reader.read.load(Ordering::Relaxed);
            // All that was read, as nearly always: it was counted then.
            let is_all = never_overwritten && position == reader.position.load(Ordering::Relaxed);
            let count = if is_all { read } else { acknowledged(ring, reader, position).unwrap_or(0) };
            if count > 0 {
                ring.release(position);
                reader.read.store(read.saturating_sub(count), Ordering::Relaxed);
                reader.delivered.add(count);
            }
            Ok(())
        });
        freed.map_err(|_: ReadError| Refusal::State("somebody is reading that stream right now"))
    }

    fn stream(&self, stream: Stream) -> Option<(&Ring, &ReaderPart)> {
        match stream {
            Stream::Meta => Some((self.meta.ring()?, &self.meta.reader)),
            Stream::Cpu(cpu) => {
                let slot = self.slots().get(cpu)?;
                Some((slot.ring.get()?, &slot.reader))
            }
        }
    }

    /// The next reader begins with the oldest record that is not acknowledged.
    fn rewind_readers(&self) {
        let readers = self.slots().iter().map(|slot| &slot.reader).chain([&self.meta.reader]);
        readers.for_each(ReaderPart::rewind);
    }
}

/// How many records `position` acknowledges, if it is the end of a record that was read. What was acknowledged before
/// counts as none.
fn acknowledged(ring: &Ring, reader: &ReaderPart, position: u64) -> Option<u64> {
    if position > reader.position.load(Ordering::Relaxed).max(ring.tail()) {
        return None;
    }
    ring.count(ring.tail().min(position), position)
}
