//! Shows a text, through a pager if it is longer than the screen. Stage: command line, the last step of `report`.
//!
//! In: a text. Out: the text on standard output or in `-o FILE`. A pager is started only on a terminal: that of
//! `PAGER`, otherwise `less`. An empty `PAGER` means none. If the pager cannot be started, the text is printed without
//! one.

use super::args::Input;
use super::out::{with_output, write_failed};
use crate::error::Error;
use ratatui::crossterm::terminal;
use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

/// What is known of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Its width in characters, if it is known.
    pub columns: Option<usize>,
    /// Its height in lines, if it is known.
    pub rows: Option<usize>,
    /// Whether colours are wanted (<https://no-color.org>).
    pub is_coloured: bool,
}

/// The terminal that the output goes to, if it goes to one.
pub fn screen(output: Option<&str>) -> Option<Screen> {
    let is_terminal = output.is_none() && std::io::stdout().is_terminal();
    is_terminal.then(|| of_size(terminal::size().unwrap_or((0, 0))))
}

/// A terminal of this size. One of a container or of a test may say that it has no columns and no rows, which means
/// that its size is not known.
fn of_size((columns, rows): (u16, u16)) -> Screen {
    let is_coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let known = |size: u16| (size > 0).then_some(size.into());
    Screen { columns: known(columns), rows: known(rows), is_coloured }
}

/// Shows a text.
///
/// # Errors
/// If the output cannot be written.
pub fn show(input: &Input, text: &str) -> Result<(), Error> {
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    if needs_pager(screen(input.output.as_deref()), text, &pager) && through(&pager, text) {
        return Ok(());
    }
    with_output(input, |out| out.write_all(text.as_bytes()).map_err(|error| write_failed(input, error)))
}

fn needs_pager(screen: Option<Screen>, text: &str, pager: &str) -> bool {
    screen.and_then(|screen| screen.rows).is_some_and(|rows| text.lines().count() >= rows) && !pager.trim().is_empty()
}

/// Gives the text to a pager; returns false if it could not be started.
fn through(pager: &str, text: &str) -> bool {
    let mut command = Command::new("sh");
    // Without these options `less` shows colours as text and cuts nothing.
    let options = std::env::var("LESS").unwrap_or_else(|_| "-FRSX".to_owned());
    let child = command.args(["-c", pager]).env("LESS", options).stdin(Stdio::piped()).spawn();
    let Ok(mut child) = child else { return false };
    // The user may leave before the end of the text, which closes the pipe.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(text.as_bytes()));
    // The shell says with these codes that there is no such program.
    child.wait().is_ok_and(|status| !matches!(status.code(), Some(126 | 127)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_that_is_longer_than_a_terminal_goes_through_a_pager() {
        let screen = Some(of_size((80, 3)));
        for (screen, text, pager, needs) in [
            (screen, "a\nb\nc\n", "less", true),
            // The prompt of the shell needs a line.
            (screen, "a\nb\n", "less", false),
            (screen, "a\nb\nc\n", "", false),
            (None, "a\nb\nc\n", "less", false),
            (Some(of_size((0, 0))), "a\nb\nc\n", "less", false),
        ] {
            assert_eq!(needs_pager(screen, text, pager), needs, "{text:?} {pager}");
        }
    }

    #[test]
    fn a_terminal_without_a_size_cuts_no_line() {
        assert_eq!((of_size((0, 0)).columns, of_size((80, 24)).columns), (None, Some(80)));
    }

    #[test]
    fn a_pager_that_does_not_exist_shows_nothing() {
        assert!(!through("/nowhere/pager", "a"));
        assert!(through("cat > /dev/null", "a"));
        assert!(through("true", &"a\n".repeat(100_000)));
    }
}
