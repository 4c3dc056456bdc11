//! Errors after which the program ends, because it cannot give a result. Stage: the whole host tool.
//!
//! A damaged piece of an otherwise good file is not an error but a [`crate::problems::Problem`]. The program prints the
//! error and its sources once, and ends with [`Error::exit_code`].

use std::fmt;
use std::io;

/// Why there is no result.
#[derive(Debug)]
pub enum Error {
    /// A file could not be opened, read or written.
    Io {
        /// The name as given by the user; `standard input` for `-`.
        file: String,
        /// The operation that failed, as a verb: `open`, `read`, `write`.
        doing: &'static str,
        /// The reason that the operating system gave.
        source: io::Error,
    },
    /// A file was read but cannot be used.
    Unusable {
        /// The name as given by the user.
        file: String,
        /// What is wrong, with line or byte if that is known, and what to do.
        why: String,
    },
    /// The arguments do not fit together.
    Usage(String),
    /// The reader of standard output has closed the pipe. This is not a failure: it needs no more output, as `head`
    /// does.
    OutputClosed,
}

impl Error {
    /// The exit code for this error: 2, or 0 if the reader of the output closed the pipe.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::OutputClosed) { 0 } else { 2 }
    }

    /// An error of the operating system for `file`. A closed pipe becomes [`Error::OutputClosed`].
    pub fn io(file: &str, doing: &'static str, source: io::Error) -> Self {
        if doing == "write" && source.kind() == io::ErrorKind::BrokenPipe {
            return Self::OutputClosed;
        }
        Self::Io { file: file.to_owned(), doing, source }
    }

    /// `file` was read but cannot be used, because of `why`.
    pub fn unusable(file: &str, why: impl Into<String>) -> Self {
        Self::Unusable { file: file.to_owned(), why: why.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { file, doing, source } => write!(f, "cannot {doing} {file}: {source}"),
            Self::Unusable { file, why } => write!(f, "{file}: {why}"),
            Self::Usage(text) => f.write_str(text),
            Self::OutputClosed => f.write_str("the reader of the output has gone away"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_ends_quietly_and_other_errors_end_with_two() {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(Error::io("standard output", "write", closed()).exit_code(), 0);
        assert_eq!(Error::io("in", "read", closed()).exit_code(), 2);
        assert_eq!(Error::unusable("x", "y").exit_code(), 2);
    }
}
