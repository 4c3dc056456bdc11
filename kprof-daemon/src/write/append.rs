//! Appends to the sample file, and waits where that is not possible now: for room on a full disk, or for the reader of
//! a pipe.
//!
//! ```text
//! write ─► sync ─► done
//!   │ full: truncate to the last whole piece ─► once a second again, until there is room or the session is to end
//! ```
//!
//! In: bytes of whole batches. Out: the same bytes on the disk, or in the pipe. Runs in: user process. Every wait is
//! interrupted ten times a second, to check whether the session is to end or the file is to be reopened.

use super::sample_file::SampleFile;
use crate::error::Error;
use crate::signals::Signals;
use crate::system::{PIPE_BYTES, System, again};
use std::io;
use std::time::Duration;

/// What to do on a full disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// Wait for free space. Meanwhile the kernel's rings keep what fits and count the rest as lost.
    #[default]
    Wait,
    /// End the session.
    Stop,
}

/// How long to wait for space on a full disk before the next try.
const FULL_PAUSE: Duration = Duration::from_secs(1);
/// How often a wait checks whether the session is to end.
const CHECK_PAUSE: Duration = Duration::from_millis(100);
/// How long the reader of a pipe may take nothing after the session was asked to end.
const READER_GRACE: Duration = Duration::from_secs(1);

/// What ends a write that has to wait.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// What to do on a full disk.
    pub on_full: OnFull,
    /// The signals that the process gets.
    pub signals: &'a Signals,
    /// When the session ends by its duration, on the clock of [`System::now`].
    pub until: Option<Duration>,
}

impl Waiting<'_> {
    fn is_late<S: System>(&self, system: &mut S) -> bool {
        self.until.is_some_and(|until| system.now() >= until)
    }
}

/// Whether an appended piece is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Appended {
    /// It is on the disk.
    Whole,
    /// The disk is full, and a signal asks to reopen the file. The file is as it was before.
    ReopenFirst,
}

impl<S: System> SampleFile<S> {
    /// Appends whole pieces and returns when they are on the disk.
    ///
    /// # Errors
    /// [`Error::Full`] on a full disk with [`OnFull::Stop`] or if the session is to end; otherwise [`Error::Write`].
    /// The file is then as it was before. [`Error::Stalled`] if the session is to end and the reader of a pipe takes
    /// nothing.
    pub fn append(&mut self, system: &mut S, bytes: &[u8], waiting: Waiting<'_>) -> Result<Appended, Error> {
        if !self.is_regular {
            return self.append_to_reader(system, bytes, waiting);
        }
        let (mut has_said, mut is_last_try) = (false, false);
        loop {
            let (during, cause) = match self.try_append(system, bytes) {
                Ok(()) => break,
                Err(failed) => failed,
            };
            let is_full = matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            self.cut_back(system).map_err(|cause| self.failed("cutting a half-written batch away", cause))?;
            if !is_full {
                return Err(self.failed(during, cause));
            }
            if is_last_try || waiting.on_full == OnFull::Stop {
                return Err(Error::Full { path: self.path.clone(), safe_bytes: self.safe_bytes });
            }
            if !has_said {
                system.say(format_args!(
                    "{}: the disk is full at byte {}; waiting for room, nothing more is acknowledged until then",
                    self.path.display(),
                    self.safe_bytes
                ));
                has_said = true;
            }
            let mut left = FULL_PAUSE;
            while !left.is_zero() {
                // There may be room since the last try.
                is_last_try = waiting.signals.end_wanted() || waiting.is_late(system);
                if is_last_try {
                    break;
                }
                if waiting.signals.reopen_wanted() {
                    return Ok(Appended::ReopenFirst);
                }
                let _ = system.sleep(CHECK_PAUSE);
                left = left.saturating_sub(CHECK_PAUSE);
            }
        }
        if has_said {
            system.say(format_args!("{}: there is room again, going on", self.path.display()));
        }
        self.safe_bytes += bytes.len() as u64;
        Ok(Appended::Whole)
    }

    /// Writes to a pipe or a terminal as fast as its reader takes it.
    fn append_to_reader(&mut self, system: &mut S, bytes: &[u8], waiting: Waiting<'_>) -> Result<Appended, Error> {
        let (mut rest, mut stalled) = (bytes, Duration::ZERO);
        while !rest.is_empty() {
            let is_ready = again(|| system.wait_writable(&mut self.file, CHECK_PAUSE));
            if is_ready.map_err(|cause| self.failed("waiting for its reader", cause))? {
                let piece = &rest[..rest.len().min(PIPE_BYTES)];
                let written = again(|| system.write(&mut self.file, piece));
                rest = &rest[written.map_err(|cause| self.failed("writing", cause))?.min(piece.len())..];
                stalled = Duration::ZERO;
            } else if waiting.signals.stop_wanted() || waiting.is_late(system) {
                stalled += CHECK_PAUSE;
                if stalled >= READER_GRACE {
                    return Err(Error::Stalled { path: self.path.clone() });
                }
            }
        }
        self.safe_bytes += bytes.len() as u64;
        Ok(Appended::Whole)
    }

    fn try_append(&mut self, system: &mut S, bytes: &[u8]) -> Result<(), (&'static str, io::Error)> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = again(|| system.write(&mut self.file, rest)).map_err(|cause| ("writing", cause))?;
            if written == 0 {
                return Err(("writing", io::ErrorKind::WriteZero.into()));
            }
            rest = &rest[written.min(rest.len())..];
        }
        again(|| system.sync(&mut self.file)).map_err(|cause| ("writing it to the disk", cause))
    }
}
