//! What is there under a name that a session is about to rename, to replace or to continue.
//!
//! ```text
//! profiled       FILE   FILE.1 to FILE.N   each is free, or its own     kprof-record   FILE   FILE.old
//! ```
//!
//! In: a name. Out: whether it is free, a file of the program that asks, or neither; then the error names it. Runs in:
//! user process, before a file is opened and before each renaming. Never changes a file, and never lets a file be
//! renamed or replaced that another program has made, whatever it is called.

use super::resume::is_profile;
use super::sample_file::{first_bytes, lock, with_suffix};
use crate::error::Error;
use crate::system::{Open, System, again};
use kprof_format::line::RECORDING_LINE;
use std::io;
use std::path::Path;

/// The program that a file is of, as its header says. It alone may rename, replace or continue the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maker {
    /// `profiled`, or any other program that writes profiles.
    #[default]
    Profiled,
    /// `kprof-record`.
    Record,
}

impl Maker {
    /// The sample file if the command line names none. A recording is beside who makes it, as perf's are.
    pub const fn default_output(self) -> &'static str {
        match self {
            Self::Profiled => "/root/profiling.txt",
            Self::Record => "kprof-record.txt",
        }
    }
}

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A profile that this program has made.
    Profile(Maker),
    /// A file that is no profile, a pipe or a device.
    Foreign,
}

/// Looks at a name. A file that another process is writing is an error. A symbolic link is an error, too: after a
/// renaming the new file would be on another disk than the file that the link leads to.
///
/// # Errors
/// [`Error::Locked`], [`Error::Malformed`] for a link, [`Error::Write`] if it cannot be looked at.
pub fn look<S: System>(system: &mut S, path: &Path) -> Result<Found, Error> {
    let fails = |during| move |cause| Error::Write { path: path.into(), safe_bytes: 0, during, cause };
    let mut file = match again(|| system.open(path, Open::ProbeNoLink)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            // A link to a pipe or a device, as `/dev/stdout`, is never renamed.
            if let Ok(mut file) = again(|| system.open(path, Open::Probe))
                && let Ok(None) = first_bytes(system, &mut file)
            {
                return Ok(Found::Foreign);
            }
            let what = "a symbolic link, and a renaming would leave its target; use the name of the target";
            return Err(Error::Malformed { path: path.into(), what: what.into() });
        }
        other => other.map_err(fails("looking at the file that is there"))?,
    };
    let first = first_bytes(system, &mut file).map_err(fails("reading the file that is there"))?;
    let Some(first) = first else { return Ok(Found::Foreign) };
    lock(system, &mut file, path)?;
    Ok(maker_of(&first).map_or(Found::Foreign, Found::Profile))
}

/// Who has made the file that begins with these bytes; `None` if it is no profile. The line is in both forms: in the
/// binary form it is in the first chunk.
fn maker_of(first: &[u8]) -> Option<Maker> {
    let line = format!("\n{RECORDING_LINE}\n");
    let is_recording = first.windows(line.len()).any(|window| window == line.as_bytes());
    is_profile(first).then_some(if is_recording { Maker::Record } else { Maker::Profiled })
}

/// Checks a name that this program is about to rename or to replace. Returns whether there is a file.
///
/// # Errors
/// As [`look`]; [`Error::Malformed`] if there is a file that this program has not made.
pub fn check_own<S: System>(system: &mut S, path: &Path, maker: Maker) -> Result<bool, Error> {
    match look(system, path)? {
        Found::Nothing => Ok(false),
        Found::Profile(found) if found == maker => Ok(true),
        Found::Profile(found) => Err(of_other(path, found)),
        Found::Foreign => {
            let what = "not a file of this program, and an older profile would get its name; move it away, or use \
                        another -o";
            Err(Error::Malformed { path: path.into(), what: what.into() })
        }
    }
}

/// Checks the names of the older files of `path`, of which the rotation keeps `keep`.
///
/// # Errors
/// As [`check_own`].
pub fn check_older<S: System>(system: &mut S, path: &Path, keep: u32) -> Result<(), Error> {
    // Only the names up to the first free one are used.
    for number in 1..=keep {
        if !check_own(system, &with_suffix(path, &number.to_string()), Maker::Profiled)? {
            break;
        }
    }
    Ok(())
}

/// Checks the name of a file that `profiled` is about to continue. A file that is no profile is refused when it is
/// opened.
///
/// # Errors
/// [`Error::Malformed`] if it is a recording: the next recording renames it, with all that was added.
pub fn check_continued<S: System>(system: &mut S, path: &Path) -> Result<(), Error> {
    if let Ok(mut file) = again(|| system.open(path, Open::Probe))
        && let Ok(Some(first)) = first_bytes(system, &mut file)
        && maker_of(&first) == Some(Maker::Record)
    {
        return Err(of_other(path, Maker::Record));
    }
    Ok(())
}

fn of_other(path: &Path, maker: Maker) -> Error {
    let what = match maker {
        Maker::Record => "a recording of kprof-record, which it renames at the next one",
        Maker::Profiled => "a profile that kprof-record has not made (profiled has, for example)",
    };
    Error::Malformed { path: path.into(), what: format!("{what}; use another -o, or move it away") }
}
