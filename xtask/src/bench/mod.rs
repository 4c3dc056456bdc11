//! `cargo xtask bench`: speed compared with that of other programs. There is a file per bench.

mod daemon;
mod fold;
mod kernel;
mod measure;
pub mod outside;
mod page;

pub use fold::{Random, functions};

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Measures speed compared with other programs, and says which goals are missed.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    Daemon(daemon::Arguments),
    Fold(fold::Arguments),
    Kernel(kernel::Arguments),
    Outside(outside::Arguments),
    Page(page::Arguments),
    #[command(hide = true)]
    Measured(measure::Arguments),
}

/// Runs the verb.
///
/// # Errors
/// If something cannot be built, installed or run.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.bench {
        Bench::Daemon(arguments) => daemon::run(arguments),
        Bench::Fold(arguments) => fold::run(arguments),
        Bench::Kernel(arguments) => kernel::run(arguments),
        Bench::Outside(arguments) => outside::run(arguments),
        Bench::Page(arguments) => page::run(arguments),
        Bench::Measured(arguments) => measure::child(arguments),
    }
}

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
