//! `cargo xtask bench`: speed beside that of the peers, a file per bench.

mod fold;
mod kernel;
mod measure;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Measures speed beside the peers, and says where a goal is missed.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    Fold(fold::Arguments),
    Kernel(kernel::Arguments),
    #[command(hide = true)]
    Measured(measure::Arguments),
}

/// Runs the verb.
///
/// # Errors
/// If something cannot be built, installed or run.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.bench {
        Bench::Fold(arguments) => fold::run(arguments),
        Bench::Kernel(arguments) => kernel::run(arguments),
        Bench::Measured(arguments) => measure::child(arguments),
    }
}
