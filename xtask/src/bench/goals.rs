//! The goals of a bench: figures that are judged as they are measured.
//!
//! In: a figure and its limit. Out: a line for each, and how many were missed.

use std::process::ExitCode;

/// The results.
#[derive(Default)]
pub struct Goals {
    met: usize,
    missed: usize,
}

impl Goals {
    /// Judges a figure that must not be above `most`.
    pub fn at_most(&mut self, what: &str, is: f64, most: f64) {
        self.judge(is <= most, &format!("{what}: {is:.3} (at most {most})"));
    }

    /// Judges a figure that must not be below `least`.
    pub fn at_least(&mut self, what: &str, is: f64, least: f64) {
        self.judge(is >= least, &format!("{what}: {is:.3} (at least {least})"));
    }

    fn judge(&mut self, met: bool, line: &str) {
        *(if met { &mut self.met } else { &mut self.missed }) += 1;
        println!("{} {line}", if met { "ok    " } else { "MISSED" });
    }

    /// Prints the last line, and returns the exit code.
    pub fn end(&self) -> ExitCode {
        println!("{} goals met, {} missed", self.met, self.missed);
        if self.missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
