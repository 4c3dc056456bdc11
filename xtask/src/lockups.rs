//! `cargo xtask lockups`: no lockup is reported for a long time in which there is none.
//!
//! In: seconds of guest time, the load. Out: an error if the kernel has reported anything but the lockup that is
//! planted at the end. It runs the scenario `lockup-quiet` for longer than `cargo xtask test` does. Instructions are
//! counted, at 8 ns of guest time each. So every stretch of kernel code takes eight times longer than on the machines
//! of the other scenarios, and a guest second takes an eighth of the instructions.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

use crate::build;
use crate::parts::Parts;
use crate::test::scenario;
use crate::toolchain::Choice;
use crate::tools::Install;

/// Looks for lockups that are reported though there is none.
#[derive(Args)]
#[command(after_help = "Example: ten minutes of guest time of each load, which take an hour or so:
  cargo xtask lockups --seconds 600")]
pub struct Arguments {
    /// Seconds of guest time
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=36_000))]
    seconds: u32,
    /// Only this load: the mix of the storm, or programs that only compute
    #[arg(long, value_enum)]
    load: Option<Load>,
    /// The output folder
    #[arg(short, long, default_value = "target/lockups")]
    output: PathBuf,
    /// Installs nothing: says what is missing instead
    #[arg(long)]
    no_install: bool,
    /// The way to compile for the kernel's target
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    toolchain: Choice,
}

/// What the CPUs do.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Load {
    /// The mix of `cargo xtask storm`
    Storm,
    /// A program on each CPU that makes no system call
    User,
}

/// Runs the verb.
///
/// # Errors
/// If a lockup is reported, or the planted one is not.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let parts = Parts::prepare(arguments.toolchain, Install(!arguments.no_install))?;
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    let is_wanted = |load: &&Load| arguments.load.is_none_or(|wanted| wanted == **load);
    for load in Load::value_variants().iter().filter(is_wanted) {
        let name = load.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let append = format!("load={name} seconds={}", arguments.seconds);
        let folder = arguments.output.join(&name);
        scenario::one("lockup-quiet", &parts, &kernel, &folder, &append).context(append)?;
        println!("{name}: no lockup in {} seconds of guest time but the planted one", arguments.seconds);
    }
    Ok(ExitCode::SUCCESS)
}
