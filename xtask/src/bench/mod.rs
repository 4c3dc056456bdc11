//! `cargo xtask bench`: speed compared with that of other programs. There is a file per bench.

mod daemon;
pub mod fold;
mod goals;
mod kernel;
mod measure;
pub mod outside;
mod page;

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
