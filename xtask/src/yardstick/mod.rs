//! `cargo xtask yardstick`: the instructions of each system call, Linux's and the test kernel's.
//!
//! In: nothing. Out: a row for each call with the medians of both and their ratio, and the functions where the test
//! kernel's surplus is. Both kernels run the same script with the same static busybox in the same QEMU under
//! `kprof-qemu syscalls`. It counts instructions, not time: cache misses, TLB misses and the cost of the hardware's own
//! entry and exit are not in it.

mod drawn;
pub mod machines;
mod orc;
mod planted;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

pub use machines::{Calls, Row, boot, ours};
pub use planted::check as check_planted;

use crate::build;
use crate::linux;
use crate::parts::Parts;
use crate::run;
use crate::toolchain::Choice;
use crate::tools::Install;

/// The instructions of each system call, beside those of Debian's Linux.
#[derive(Args)]
#[command(after_help = "Examples:
  cargo xtask yardstick --functions 3
  cargo xtask yardstick --planted --runs 20
  cargo xtask yardstick --flamegraph
  cargo xtask yardstick --suite trixie")]
pub struct Arguments {
    /// For each call, the N functions of the test kernel with the most instructions
    #[arg(long, value_name = "N", default_value_t = 2)]
    functions: usize,
    /// Instead: a function of 200 instructions is planted in one system call after the other, and must be found
    #[arg(long)]
    planted: bool,
    /// With --planted: the number of runs, each with another call and another seed
    #[arg(long, value_name = "N", default_value_t = 20, requires = "planted")]
    runs: usize,
    /// Instead of the table: flame graphs of Linux in target/yardstick/drawn, an exact one, and one of samples by its
    /// unwind tables, whose stacks are compared with the exact ones
    #[arg(long)]
    flamegraph: bool,
    /// The Linux of this suite of Debian, as `trixie` or `sid` [default: that of this system]
    #[arg(long, value_name = "SUITE", conflicts_with = "planted")]
    suite: Option<String>,
    /// Installs nothing: says what is missing instead
    #[arg(long)]
    no_install: bool,
}

/// Runs both kernels and prints the table.
///
/// # Errors
/// If something cannot be built, fetched or run.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let install = Install(!arguments.no_install);
    let parts = Parts::prepare(Choice::Auto, install)?;
    let folder: PathBuf = run::root().join("target/yardstick");
    let tool = build::tool("kprof-qemu")?;
    if arguments.planted {
        planted::check(&parts, &folder, &tool, arguments.runs)?;
        return Ok(ExitCode::SUCCESS);
    }
    let linux = || linux::kernel_of(arguments.suite.as_deref(), install);
    if arguments.flamegraph {
        drawn::run(&parts, &linux()?, &folder.join("drawn"), &tool, install)?;
        return Ok(ExitCode::SUCCESS);
    }
    let kernel = build::kernel(parts.toolchain, "", &[])?;
    let ours = ours(&parts, &kernel, &folder.join("ours"), &tool)?;
    let theirs = machines::theirs(&parts, &linux()?, &folder.join("theirs"), &tool)?;
    table::print(&theirs, &ours, arguments.functions);
    Ok(ExitCode::SUCCESS)
}
