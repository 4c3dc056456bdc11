//! The errors that can end a session, and the exit code of each.
//!
//! In: a failed system call or foreign data. Out: one sentence that names the file and the position, and says what to
//! do. Runs in: user process. Never hides a cause. Records that were acknowledged before stay on disk in every case.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a session ended early.
#[derive(Debug)]
pub enum Error {
    /// The command line does not make sense.
    Usage(String),
    /// The source cannot be opened.
    SourceMissing {
        /// The file that could not be opened.
        path: PathBuf,
        /// The operating system's error.
        cause: io::Error,
    },
    /// Another reader holds the source.
    Busy {
        /// The file that is in use.
        path: PathBuf,
    },
    /// Another process is writing the sample file.
    Locked {
        /// The sample file.
        path: PathBuf,
    },
    /// The ctl file is that of Redox's own profiler.
    NotKprof {
        /// The ctl file.
        path: PathBuf,
    },
    /// The source worked and then failed.
    SourceGone {
        /// The file that failed.
        path: PathBuf,
        /// The operation that failed.
        during: &'static str,
        /// The operating system's error.
        cause: io::Error,
    },
    /// The kernel refused a command.
    Refused {
        /// The ctl file.
        path: PathBuf,
        /// The command.
        command: String,
        /// The kernel's reason, or the operating system's.
        reason: String,
    },
    /// The source's text cannot be understood.
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        what: String,
    },
    /// The records are of a version that this program does not know. None of them was acknowledged.
    Newer {
        /// Where they came from.
        stream: String,
        /// Position of the first one, in words.
        position: u64,
        /// Their version.
        version: u8,
    },
    /// The sample file cannot be written.
    Write {
        /// The file.
        path: PathBuf,
        /// Length in bytes up to which the file is complete.
        safe_bytes: u64,
        /// The operation that failed.
        during: &'static str,
        /// The operating system's error.
        cause: io::Error,
    },
    /// The disk is full and the options say not to wait.
    Full {
        /// The file.
        path: PathBuf,
        /// Length in bytes up to which the file is complete.
        safe_bytes: u64,
    },
    /// The session was asked to end while a pipe or a terminal accepted nothing.
    Stalled {
        /// The file.
        path: PathBuf,
    },
    /// The sample file was deleted while the program was running.
    FileGone {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    /// The exit code of the process: one per kind, as documented in `--help`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::SourceMissing { .. } => 3,
            Self::Busy { .. } | Self::Locked { .. } => 4,
            Self::SourceGone { .. } => 5,
            Self::Refused { .. } | Self::NotKprof { .. } => 6,
            Self::Malformed { .. } | Self::Newer { .. } => 7,
            Self::Write { .. } | Self::Stalled { .. } | Self::FileGone { .. } => 8,
            Self::Full { .. } => 9,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) => write!(f, "{what} (see --help)"),
            Self::SourceMissing { path, cause } => write!(
                f,
                "cannot open {}: {cause}; is the kernel built with profiling, and is --scheme right?",
                path.display()
            ),
            Self::Busy { path } => {
                write!(f, "{} is in use by another profiled or kprof-record; stop that one first", path.display())
            }
            Self::Locked { path } => write!(
                f,
                "{} is being written by another process (profiled, or another recording); use another -o",
                path.display()
            ),
            Self::NotKprof { path } => write!(
                f,
                "{} knows no `protocol 1` and cannot be read: the profiler of an unmodified Redox kernel, which only \
                 profiled can drain",
                path.display()
            ),
            Self::SourceGone { path, during, cause } => {
                write!(f, "{}: {during} failed: {cause}; all that was acknowledged is on disk", path.display())
            }
            Self::Refused { path, command, reason } => {
                write!(f, "{} refused `{command}`: {reason}", path.display())
            }
            Self::Malformed { path, what } => write!(f, "{}: {what}", path.display()),
            Self::Newer { stream, position, version } => write!(
                f,
                "stream {stream}, position {position}: records of version {version}, this program reads version {}; \
                 use the profiled of that kernel (nothing was acknowledged, it will find them all)",
                kprof_format::record::VERSION
            ),
            Self::Write { path, safe_bytes, during, cause } => {
                write!(f, "{}: {during} failed: {cause}; the file is whole up to byte {safe_bytes}", path.display())
            }
            Self::Full { path, safe_bytes } => write!(
                f,
                "{}: the disk is full; the file is whole up to byte {safe_bytes}; make room and start again with the \
                 same file, or use --on-full wait",
                path.display()
            ),
            Self::Stalled { path } => write!(
                f,
                "{}: its reader takes nothing, so the session has ended before all was written; what was not \
                 acknowledged stays in the kernel",
                path.display()
            ),
            Self::FileGone { path } => write!(
                f,
                "{} has been deleted while it was written; to rotate, rename it and send SIGHUP",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::SourceMissing { cause, .. } | Self::SourceGone { cause, .. } | Self::Write { cause, .. } => {
                Some(cause)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn an_error_of_the_system_is_the_source_of_the_error_that_names_the_file() {
        let (path, cause) = (PathBuf::from("/x"), || io::Error::from(io::ErrorKind::NotFound));
        let with = [
            Error::SourceMissing { path: path.clone(), cause: cause() },
            Error::SourceGone { path: path.clone(), during: "reading it", cause: cause() },
            Error::Write { path: path.clone(), safe_bytes: 0, during: "writing", cause: cause() },
        ];
        assert!(with.iter().all(|error| error.source().is_some_and(|source| source.is::<io::Error>())));
        assert!(Error::Busy { path }.source().is_none());
    }
}
