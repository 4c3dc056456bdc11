//! `kprof-qemu`: profiles a kernel in QEMU from outside. Stage: capture, command line.
//!
//! In: a QEMU command line. Out: a profile in kprof's text form, for `kprof-fold`. Runs in: user process, on the host.
//! Changes nothing in the guest, and ends no process.
#![forbid(unsafe_code)]

mod message;
mod profile;
mod record;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Profiles a kernel in QEMU from outside, without a changed line in it.
#[derive(Debug, Parser)]
#[command(name = "kprof-qemu", version, max_term_width = 120)]
struct Cli {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs QEMU and samples its vCPUs
    #[command(after_help = "Example:
  kprof-qemu record --kernel kernel.elf -- qemu-system-x86_64 -kernel kernel.elf -smp 4 -nographic")]
    Record(Record),
}

/// Arguments of `record`.
#[derive(Args, Debug)]
pub struct Record {
    /// The profile; an older file of this name becomes FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "profiling.txt")]
    pub output: PathBuf,
    /// Samples per second and vCPU, by the host's clock, on average
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub hz: u64,
    /// A sample every N executed instructions of a vCPU on average, instead of by time; with -icount such a run can be
    /// repeated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..))]
    pub every: Option<u64>,
    /// Seed of the random intervals
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Also record samples of user code (their first address); otherwise they are only counted
    #[arg(long)]
    pub user: bool,
    /// The kernel's ELF file: at the end, kprof-fold prints its report and draws FILE.html
    #[arg(long, value_name = "ELF")]
    pub kernel: Option<PathBuf>,
    /// The QEMU command line
    #[arg(last = true, required = true, value_name = "QEMU")]
    pub qemu: Vec<String>,
}

fn main() -> ExitCode {
    let Command::Record(arguments) = Cli::parse().command;
    match record::run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("kprof-qemu: {error:#}");
            ExitCode::from(2)
        }
    }
}
