//! Talk: messages to the user, on standard error. Stage: command line.
//!
//! In: lines. Out: the lines, unless `--quiet`. If standard error is closed, the work continues.

use crate::symbols::name::visible_lines;
use std::io::Write;

/// How many messages are printed.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    /// Whether only errors are printed.
    pub quiet: bool,
}

impl Talk {
    /// Prints a message, unless `quiet`.
    pub fn say(self, text: impl std::fmt::Display) {
        if !self.quiet {
            print(text);
        }
    }
}

/// Prints a message that must always be shown.
pub fn print(text: impl std::fmt::Display) {
    let text = text.to_string();
    let text = visible_lines(text.trim_end());
    if !text.is_empty() {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}
