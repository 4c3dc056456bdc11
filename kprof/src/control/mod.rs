//! ctl: commands in, state and counters out.
//!
//! In: writes to an open control file, with one command per line, and reads of it. Out: for a write, all commands were
//! carried out, or none and an error; for a read, state, settings and counters as text. Runs in: ordinary code. The
//! whole write is checked, and what it needs is reserved, before its first command is carried out. If a write is
//! refused, the reason is also the `error` line of the next read of that file. One control file at a time may hold the
//! claim on the streams (`protocol 1`), one may read copies (`copy 1`), and one may hold the lease (`lease`). Closing
//! the file ends all three.

mod close;
mod copies;
pub(crate) mod layers;
mod lines;
mod plan;
#[cfg(test)]
mod tests;
mod text;
mod write;

use crate::arch::interrupts;
use crate::errors::{ControlError, StateError};
use crate::format::command::{BadCommand, Command};
use crate::format::fact::Fact;
use crate::format::settings::Keys;
use crate::kernel::ControlDone;
use crate::live::State;
use crate::patience::Patience;
use crate::shared::Shared;
use crate::stream::meta::ClaimId;
use crate::transition::CHANGE_WAIT_US;
use close::undo_expired_lease;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering;
pub(crate) use text::{each_setting, for_each_counter, write_status};

/// An open control file.
pub(crate) struct OpenControl {
    shared: &'static Shared,
    id: ClaimId,
    /// The number of the process that has opened the file, as the kernel passed it to `open_control`.
    process: u64,
    /// Held during a write through this file.
    writing: spin::Mutex<()>,
    error: spin::Mutex<heapless::String<128>>,
}

impl OpenControl {
    /// A new file for `process`.
    pub(crate) fn open(shared: &'static Shared, process: u64) -> Self {
        let id = shared.next_file.fetch_add(1, Ordering::Relaxed);
        shared.undo_lease.call_once(|| undo_expired_lease);
        Self { shared, id, process, writing: spin::Mutex::new(()), error: spin::Mutex::new(heapless::String::new()) }
    }

    /// Carries out a write.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<ControlDone, ControlError> {
        let Some(_writing) = Patience::us(CHANGE_WAIT_US, self.shared.tsc_hz()).lock(&self.writing) else {
            return Err(ControlError { line: 1, reason: StateError::Busy.into() });
        };
        let result = write::write(self, bytes);
        self.set_error(result.as_ref().err());
        result
    }

    /// Writes the text that a read of the file returns.
    pub(crate) fn read(&self, out: &mut dyn Write) -> fmt::Result {
        write_status(self.shared, self.id, out)?;
        match interrupts::without(|| self.error.lock().clone()) {
            error if error.is_empty() => Ok(()),
            error => writeln!(out, "{} {error}", Fact::Error),
        }
    }

    fn set_error(&self, error: Option<&ControlError>) {
        let mut text = heapless::String::new();
        if let Some(error) = error {
            // A longer text would be truncated; every reason is shorter.
            let _ = write!(text, "{error}");
        }
        interrupts::without(|| *self.error.lock() = text);
    }
}

/// Starts or stops sampling on behalf of the kernel itself.
pub(crate) fn change_state(shared: &Shared, target: State) -> Result<(), StateError> {
    let lock = shared.change_lock()?;
    lock.undo_expired_lease()?;
    let mut layers = shared.layers();
    layers.set(false, Keys::STATE, &shared.live.choices(), target);
    let committed = lock.prepare(layers, false)?.commit(true);
    if target != State::Running {
        shared.extension().write_counts();
    }
    committed
}

/// The commands of a write with their line numbers from 1.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, Result<Command<'_>, BadCommand>)> {
    bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| (index + 1, Command::parse(line)))
}
