//! The sample file: only whole pieces are written, and they are on the disk before they are acknowledged.
//!
//! ```text
//! 0 ............ safe_bytes ......... length
//!   on the disk  │ being written; truncated away if a write or a sync fails
//! ```
//!
//! In: bytes of whole batches. Out: a file of mode 0600. Runs in: user process. On a full disk nothing is acknowledged
//! and the half-written piece is truncated away. Then either the session ends, or it tries again once a second. A pipe
//! or a terminal that accepts nothing is waited for. Each of these waits ends when the session is to end.

use super::damaged;
use super::resume::{Resumed, Scan, is_profile};
use crate::error::Error;
use crate::signals::Signals;
use crate::system::{self, FileFacts, Open, PIPE_BYTES, System, again};
use std::io;
use std::path::{Path, PathBuf};
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
/// Bytes read at once when an existing file is scanned.
const SCAN_BYTES: usize = 512 * 1024;

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

/// An open sample file.
pub struct SampleFile<S: System> {
    path: PathBuf,
    file: S::File,
    safe_bytes: u64,
    /// Length of the header and the names at the beginning of the file, if this session has written them.
    begins_bytes: u64,
    is_regular: bool,
    counts_names: bool,
}

impl<S: System> SampleFile<S> {
    /// Opens `path` (`-` is the standard output), truncates it to its last finished piece and returns what it holds.
    ///
    /// # Errors
    /// [`Error::Busy`] if another instance is writing it, [`Error::Malformed`] if it is not a kprof profile,
    /// [`Error::Write`] if the system refuses.
    pub fn open(system: &mut S, path: &Path, is_binary: bool) -> Result<(Self, Resumed), Error> {
        let fails = |during| move |cause| Error::Write { path: path.into(), safe_bytes: 0, during, cause };
        let to_stdout = path == Path::new("-");
        if !to_stdout {
            finish_rotation(system, path);
        }
        let mut file = if to_stdout {
            again(|| system.stdout()).map_err(fails("taking the standard output"))?
        } else {
            again(|| system.open(path, Open::SampleFile)).map_err(fails("opening it"))?
        };
        let facts = again(|| system.facts_of(&mut file)).map_err(fails("looking at it"))?;
        let is_regular = !to_stdout && facts.is_none_or(|facts| facts.is_regular);
        let counts_names = facts.is_some_and(|facts| facts.names > 0);
        let mut this = Self { path: path.into(), file, safe_bytes: 0, begins_bytes: 0, is_regular, counts_names };
        if !is_regular {
            return Ok((this, Resumed::default()));
        }
        lock(system, &mut this.file, path)?;
        let refused = match this.resume(system, is_binary) {
            Ok(resumed) => {
                again(|| system.sync_folder(path)).map_err(fails("writing its folder to the disk"))?;
                return Ok((this, resumed));
            }
            Err(refused) => refused,
        };
        if matches!(refused, Error::Malformed { .. })
            && let Some(zeros) =
                damaged::zeros_at_head(system, &mut this.file).map_err(fails("reading what it holds"))?
        {
            let kept = damaged::move_away(system, path)?;
            system.say(format_args!(
                "{}: its first {zeros} bytes are zero (cut by another program, or lost at a power failure); it is kept \
                 as {}, and a new file begins",
                path.display(),
                kept.display()
            ));
            return Self::open(system, path, is_binary);
        }
        Err(refused)
    }

    /// Scans the file and truncates it to its last finished piece.
    fn resume(&mut self, system: &mut S, is_binary: bool) -> Result<Resumed, Error> {
        again(|| system.seek(&mut self.file, 0)).map_err(|cause| self.failed("going to its start", cause))?;
        let resumed = self.scan(system, is_binary)?;
        // Only now is it known to be a file of this program, which may be changed.
        self.make_private(system);
        self.safe_bytes = resumed.finished_bytes;
        self.cut_back(system).map_err(|cause| self.failed("cutting it back to its last finished batch", cause))?;
        // What was just read may not be on the disk yet. It is synced here, because it is acknowledged next.
        again(|| system.sync(&mut self.file)).map_err(|cause| self.failed("writing it to the disk", cause))?;
        Ok(resumed)
    }

    /// Whether another program has truncated the file. Then it is scanned again, and the next piece is appended after
    /// the last finished piece that is left. The header and names have to be written again.
    ///
    /// # Errors
    /// As [`SampleFile::open`].
    pub fn was_truncated(&mut self, system: &mut S, is_binary: bool) -> Result<bool, Error> {
        if !self.is_regular {
            return Ok(false);
        }
        let facts = again(|| system.facts_of(&mut self.file)).map_err(|cause| self.failed("looking at it", cause))?;
        let Some(FileFacts { bytes, .. }) = facts.filter(|facts| facts.bytes < self.safe_bytes) else {
            return Ok(false);
        };
        system.say(format_args!(
            "{}: another program has truncated it to {bytes} bytes; it continues there with a new header. To rotate, \
             rename the file and send SIGHUP",
            self.path.display()
        ));
        self.resume(system, is_binary)?;
        self.begins_bytes = self.safe_bytes;
        Ok(true)
    }

    /// Renames an existing profile to `NAME.old`, so that the file that is opened next is empty. Another file is left
    /// as it is; [`SampleFile::open`] refuses it.
    ///
    /// # Errors
    /// [`Error::Busy`] if another instance is writing it, [`Error::Write`] if the system refuses.
    pub fn keep_older(system: &mut S, path: &Path) -> Result<(), Error> {
        let fails = |during| move |cause| Error::Write { path: path.into(), safe_bytes: 0, during, cause };
        if path == Path::new("-") {
            return Ok(());
        }
        let mut file = match again(|| system.open(path, Open::Probe)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(fails("looking at the file that is there"))?,
        };
        let first = first_bytes(system, &mut file).map_err(fails("reading the file that is there"))?;
        if !first.is_some_and(|first| is_profile(&first)) {
            return Ok(());
        }
        lock(system, &mut file, path)?;
        let old = with_suffix(path, "old");
        again(|| system.rename(path, &old)).map_err(fails("renaming the file that is there to NAME.old"))
    }

    /// Length of the file, in bytes, all of it on the disk.
    pub fn safe_bytes(&self) -> u64 {
        self.safe_bytes
    }

    /// Whether it is a file on a disk, and not a pipe or a terminal.
    pub fn is_regular(&self) -> bool {
        self.is_regular
    }

    /// Whether `more` bytes would make the file longer than `max`. A file always takes at least one piece.
    pub fn would_exceed(&self, more: u64, max: u64) -> bool {
        self.safe_bytes > self.begins_bytes && self.safe_bytes + more > max
    }

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
        let mut has_said = false;
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
                if waiting.on_full == OnFull::Stop || waiting.signals.end_wanted() || waiting.is_late(system) {
                    return Err(Error::Full { path: self.path.clone(), safe_bytes: self.safe_bytes });
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

    /// Begins a new file with these bytes; this one becomes `NAME.1`, the previous `NAME.1` becomes `NAME.2`, and so on
    /// up to `keep`.
    ///
    /// The new file is whole and on the disk, under `NAME.new`, before the first name changes; so at whatever moment
    /// the program is killed, [`SampleFile::open`] finds either the old or the new one.
    ///
    /// # Errors
    /// As [`SampleFile::append`].
    pub fn rotate(
        &mut self,
        system: &mut S,
        keep: u32,
        begins_with: &[u8],
        waiting: Waiting<'_>,
    ) -> Result<Appended, Error> {
        let new_path = with_suffix(&self.path, "new");
        let open = again(|| system.open(&new_path, Open::NextFile));
        let mut file = open.map_err(|cause| self.failed("opening the next file", cause))?;
        let first = first_bytes(system, &mut file).map_err(|cause| self.failed("looking at the next file", cause))?;
        // A killed rotation has left an unfinished profile there, or nothing.
        if !first.is_some_and(|first| first.is_empty() || is_profile(&first)) {
            let what = "not a file of this program, and the next file has this name; move it away".into();
            return Err(Error::Malformed { path: new_path, what });
        }
        let counts_names = self.counts_names;
        let mut new = Self { path: new_path, file, safe_bytes: 0, begins_bytes: 0, is_regular: true, counts_names };
        new.make_private(system);
        new.cut_back(system).map_err(|cause| new.failed("emptying it", cause))?;
        let _ = again(|| system.lock(&mut new.file));
        if new.append(system, begins_with, waiting)? == Appended::ReopenFirst {
            return Ok(Appended::ReopenFirst);
        }
        let fails = |cause| self.failed("renaming it", cause);
        again(|| system.sync_folder(&self.path)).map_err(fails)?;
        // Renames only up to the first free number. An interrupted rotation leaves a free number, and no file is lost
        // when it is filled.
        let numbered = |number: u32| with_suffix(&self.path, &number.to_string());
        let mut is_taken = |number: &u32| again(|| system.open(&numbered(*number), Open::Probe)).is_ok();
        let taken = (1..keep).take_while(&mut is_taken).last().unwrap_or(0);
        for number in (1..=taken).rev() {
            again(|| system.rename(&numbered(number), &numbered(number + 1))).map_err(fails)?;
        }
        match again(|| system.rename(&self.path, &numbered(1))) {
            // Another program has already moved the file away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(fails)?,
        }
        again(|| system.rename(&new.path, &self.path)).map_err(fails)?;
        again(|| system.sync_folder(&self.path)).map_err(fails)?;
        new.begins_bytes = new.safe_bytes;
        new.path.clone_from(&self.path);
        *self = new;
        Ok(Appended::Whole)
    }

    /// Whether the file still has a name.
    ///
    /// # Errors
    /// [`Error::FileGone`] when it was deleted.
    pub fn check_it_is_there(&mut self, system: &mut S) -> Result<(), Error> {
        if self.is_regular
            && self.counts_names
            && let Ok(Some(facts)) = system.facts_of(&mut self.file)
            && facts.names == 0
        {
            return Err(Error::FileGone { path: self.path.clone() });
        }
        Ok(())
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

    fn make_private(&mut self, system: &mut S) {
        if let Err(error) = again(|| system.make_private(&mut self.file)) {
            let path = self.path.display();
            system.say(format_args!("{path}: others may read it, and its mode cannot be changed to 0600: {error}"));
        }
    }

    fn cut_back(&mut self, system: &mut S) -> io::Result<()> {
        again(|| system.truncate(&mut self.file, self.safe_bytes))?;
        again(|| system.seek(&mut self.file, self.safe_bytes))
    }

    fn failed(&self, during: &'static str, cause: io::Error) -> Error {
        Error::Write { path: self.path.clone(), safe_bytes: self.safe_bytes, during, cause }
    }

    fn scan(&mut self, system: &mut S, is_binary: bool) -> Result<Resumed, Error> {
        let mut scan = Scan::new(is_binary);
        let mut buffer = vec![0; SCAN_BYTES];
        let mut held = 0;
        loop {
            let got = system::read(system, &mut self.file, &mut buffer[held..])
                .map_err(|cause| self.failed("reading what it holds", cause))?;
            held += got;
            if held == 0 {
                return Ok(scan.end());
            }
            let used = scan
                .take(&buffer[..held], got == 0)
                .map_err(|what| Error::Malformed { path: self.path.clone(), what })?;
            if got == 0 {
                return Ok(scan.end());
            }
            buffer.copy_within(used..held, 0);
            held -= used;
            if held == buffer.len() {
                // This piece is longer than the buffer, so the buffer grows. The daemon's own pieces are not much
                // longer.
                buffer.resize(2 * held, 0);
            }
        }
    }
}

/// Returns `NAME.suffix`.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Completes a rotation that was killed between its last two renames: the new file is complete but still called
/// `NAME.new`. Another file of this name stays where it is.
fn finish_rotation<S: System>(system: &mut S, path: &Path) {
    let new_path = with_suffix(path, "new");
    if again(|| system.open(path, Open::Probe)).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        && let Ok(mut file) = again(|| system.open(&new_path, Open::ProbeNoLink))
        && first_bytes(system, &mut file).is_ok_and(|first| first.is_some_and(|first| is_profile(&first)))
    {
        // If the renaming fails, the session begins a new file.
        let _ = again(|| system.rename(&new_path, path));
    }
}

/// Locks a file that no other instance is writing.
fn lock<S: System>(system: &mut S, file: &mut S::File, path: &Path) -> Result<(), Error> {
    again(|| system.lock(file)).map_err(|cause| match cause.kind() {
        io::ErrorKind::WouldBlock => Error::Busy { path: path.into() },
        _ => Error::Write { path: path.into(), safe_bytes: 0, during: "locking it", cause },
    })
}

/// The first bytes of a regular file, as many as tell whether it is a profile; `None` if it is not a regular file.
fn first_bytes<S: System>(system: &mut S, file: &mut S::File) -> io::Result<Option<Vec<u8>>> {
    let is_regular = again(|| system.facts_of(file))?.is_none_or(|facts| facts.is_regular);
    let mut first = vec![0; 64];
    let length = if is_regular { system::read(system, file, &mut first)? } else { 0 };
    first.truncate(length);
    Ok(is_regular.then_some(first))
}
