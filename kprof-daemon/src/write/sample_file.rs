//! The sample file: only whole pieces are written, and they are on the disk before they are acknowledged.
//!
//! ```text
//! 0 ............ safe_bytes ......... length
//!   on the disk  │ being written; truncated away if a write or a sync fails
//! ```
//!
//! In: a path. Out: a file of mode 0600 that ends with its last finished piece. Runs in: user process. `append` and
//! `rotate` have files of their own. Never changes a file before it is known to be a profile.

use super::damaged;
use super::found::{self, Found, Maker};
use super::resume::{Resumed, Scan};
use super::rotate::finish_rotation;
use crate::error::Error;
use crate::system::{self, FileFacts, Open, System, again};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes read at once when an existing file is scanned.
const SCAN_BYTES: usize = 512 * 1024;

/// An open sample file.
pub struct SampleFile<S: System> {
    pub(super) path: PathBuf,
    pub(super) file: S::File,
    pub(super) safe_bytes: u64,
    /// Length of the header and the names at the beginning of the file, if this session has written them.
    pub(super) begins_bytes: u64,
    pub(super) is_regular: bool,
    pub(super) counts_names: bool,
}

impl<S: System> SampleFile<S> {
    /// Opens `path` (`-` is the standard output), truncates it to its last finished piece and returns what it holds.
    ///
    /// # Errors
    /// [`Error::Locked`] if another instance is writing it, [`Error::Malformed`] if it is not a kprof profile,
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
                "{}: its first {zeros} bytes are zero (truncated by another program, or lost at a power failure); \
                 it is kept as {}, and a new file begins",
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

    /// Renames an earlier recording to `NAME.old`, so that the file that is opened next is empty. A file that is no
    /// profile is left as it is; [`SampleFile::open`] refuses it.
    ///
    /// # Errors
    /// [`Error::Malformed`] if one of the two names is that of a file that `kprof-record` has not made,
    /// [`Error::Locked`] if another instance is writing it, [`Error::Write`] if the system refuses.
    pub fn keep_older(system: &mut S, path: &Path) -> Result<(), Error> {
        if path == Path::new("-") {
            return Ok(());
        }
        if found::look(system, path)? == Found::Foreign {
            return Ok(());
        }
        // `profiled` has not finished a rotation: the file with this suffix gets the name without it.
        let name = if found::check_own(system, path, Maker::Record)? { "old" } else { "new" };
        let beside = with_suffix(path, name);
        found::check_own(system, &beside, Maker::Record)?;
        if name == "new" {
            return Ok(());
        }
        again(|| system.rename(path, &beside)).map_err(|cause| Error::Write {
            path: path.into(),
            safe_bytes: 0,
            during: "renaming the file that is there to NAME.old",
            cause,
        })
    }

    /// Whether it is a file on a disk, and not a pipe or a terminal.
    pub fn is_regular(&self) -> bool {
        self.is_regular
    }

    /// Whether `more` bytes would make the file longer than `max`. A file always takes at least one piece.
    pub fn would_exceed(&self, more: u64, max: u64) -> bool {
        self.safe_bytes > self.begins_bytes && self.safe_bytes + more > max
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

    pub(super) fn make_private(&mut self, system: &mut S) {
        if let Err(error) = again(|| system.make_private(&mut self.file)) {
            let path = self.path.display();
            system.say(format_args!("{path}: others may read it, and its mode cannot be changed to 0600: {error}"));
        }
    }

    pub(super) fn cut_back(&mut self, system: &mut S) -> io::Result<()> {
        again(|| system.truncate(&mut self.file, self.safe_bytes))?;
        again(|| system.seek(&mut self.file, self.safe_bytes))
    }

    pub(super) fn failed(&self, during: &'static str, cause: io::Error) -> Error {
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

/// Locks a file that no other instance is writing.
pub(super) fn lock<S: System>(system: &mut S, file: &mut S::File, path: &Path) -> Result<(), Error> {
    again(|| system.lock(file)).map_err(|cause| match cause.kind() {
        io::ErrorKind::WouldBlock => Error::Locked { path: path.into() },
        _ => Error::Write { path: path.into(), safe_bytes: 0, during: "locking it", cause },
    })
}

/// The first bytes of a regular file, as many as tell whether it is a profile and of which program; `None` if it is not
/// a regular file.
pub(super) fn first_bytes<S: System>(system: &mut S, file: &mut S::File) -> io::Result<Option<Vec<u8>>> {
    let is_regular = again(|| system.facts_of(file))?.is_none_or(|facts| facts.is_regular);
    let mut first = vec![0; 128];
    let length = if is_regular { system::read(system, file, &mut first)? } else { 0 };
    first.truncate(length);
    Ok(is_regular.then_some(first))
}
