//! Progress of long work, on standard error when it is a terminal. Stage: command line.
//!
//! In: bytes read so far. Out: one line that is overwritten, at most ten times a second, and erased at the end. Nothing
//! is shown with `--quiet`, if standard error is not a terminal, or if the work is short.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// No bar is shown before the work has taken this long.
const PATIENCE: Duration = Duration::from_millis(300);
/// The time between two updates.
const STEP: Duration = Duration::from_millis(100);
/// Length of the bar in characters.
const WIDTH: u64 = 30;

/// A progress bar.
pub struct Progress {
    whole: Option<u64>,
    next: Option<Instant>,
    shown: bool,
}

impl Progress {
    /// A bar for a file of known length, or for a stream.
    pub fn new(file: &str, quiet: bool) -> Self {
        let length = std::fs::metadata(file).ok().map(|metadata| metadata.len()).filter(|len| *len > 0);
        // Of compressed files the length of the content is not known.
        let whole = length.filter(|_| ![".gz", ".zst"].iter().any(|end| file.ends_with(end)));
        let next = (!quiet && std::io::stderr().is_terminal()).then(|| Instant::now() + PATIENCE);
        Self { whole, next, shown: false }
    }

    /// Updates the bar: this many bytes have been read.
    pub fn at(&mut self, bytes: u64) {
        let Some(next) = self.next else { return };
        let now = Instant::now();
        if now < next {
            return;
        }
        self.next = Some(now + STEP);
        self.shown = true;
        let _ = write!(std::io::stderr(), "\r{}", line(bytes, self.whole));
    }

    /// Erases the bar.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(bytes: u64, whole: Option<u64>) -> String {
    let mib = bytes >> 20;
    match whole {
        Some(whole) => {
            let part = bytes.min(whole);
            let full = (u128::from(part) * u128::from(WIDTH) / u128::from(whole)) as usize;
            let percent = u128::from(part) * 100 / u128::from(whole);
            format!("reading [{:<width$}] {percent:3} % {mib} MiB", "#".repeat(full), width = WIDTH as usize)
        }
        None => format!("reading {mib} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_full_at_the_end_and_never_longer() {
        assert_eq!(line(0, Some(10)), format!("reading [{}]   0 % 0 MiB", " ".repeat(30)));
        assert_eq!(line(10, Some(10)), format!("reading [{}] 100 % 0 MiB", "#".repeat(30)));
        assert_eq!(line(99, Some(10)), line(10, Some(10)));
        assert_eq!(line(5 << 20, None), "reading 5 MiB");
    }
}
