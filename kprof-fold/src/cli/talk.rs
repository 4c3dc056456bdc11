//! Talk: messages to the person, on standard error. Stage: command line.
//!
//! In: lines. Out: the lines, unless `--quiet`. A closed standard error never ends the work.

use crate::symbols::name::visible_lines;
use std::io::Write;

/// How much is said.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    /// Only errors.
    pub quiet: bool,
}

impl Talk {
    /// Something worth knowing.
    pub fn say(self, text: impl std::fmt::Display) {
        if !self.quiet {
            print(text);
        }
    }
}

/// Something that must be known.
pub fn print(text: impl std::fmt::Display) {
    let text = text.to_string();
    let text = visible_lines(text.trim_end());
    if !text.is_empty() {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}
