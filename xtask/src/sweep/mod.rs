//! `cargo xtask sweep`: an NMI at every instruction of a call tree, of the entry stubs, and of the handler itself.
//!
//! In: runs under `-icount` in which the kernel sends itself an NMI after one instruction, after two, and so on
//! (`test-kernel/src/workload/sweep.rs`). Out: each instruction with its hits. The command fails if an instruction was
//! never hit, if a stack lacks a caller or has a wrong one, or if an NMI has changed the interrupted work. With
//! `--arch` the bare kernel is swept on another processor, from outside (`processors`).

mod code;
mod handler;
mod markers;
pub mod processors;
mod stubs;
mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::profile::Arch;
use crate::run;
use crate::test::scenario;
use crate::toolchain::Choice;
use crate::tools::Install;
use code::Code;

/// Hits every instruction of a call tree, of the entry stubs and of the handler with an NMI, and checks each stack.
#[derive(Args)]
#[command(after_help = "Example: cargo xtask sweep; cargo xtask sweep --arch riscv64")]
pub struct Arguments {
    /// The output folder
    #[arg(short, long, default_value = "target/sweep")]
    pub output: PathBuf,
    /// Only one part
    #[arg(long, conflicts_with = "arch")]
    pub only: Option<Part>,
    /// The processor
    #[arg(long, value_enum, default_value_t = Arch::X86)]
    pub arch: Arch,
}

/// The parts of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The call tree and the entry stubs.
    Entries,
    /// The handler of an NMI.
    Handler,
}

/// Maximum number of runs. QEMU's NMIs do not always come at the ordered instruction, so an instruction that was not
/// hit in one run may be hit in another.
const MAX_RUNS: usize = 3;
/// The seed of the random numbers in the first run.
const FIRST_SEED: u64 = 7;

/// Runs the verb.
///
/// # Errors
/// If an instruction was never hit, a stack is wrong, or the machine did not survive.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(processor) = arguments.arch.bare() {
        let failures = processors::run(processor, Choice::Auto, Install(true), &arguments.output)?;
        done(&failures)?;
        return Ok(ExitCode::SUCCESS);
    }
    let parts = Parts::prepare(Choice::Auto, Install(true))?;
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    let mut failures = Vec::new();
    if arguments.only != Some(Part::Handler) {
        failures.extend(entries(&parts, &kernel, &arguments.output)?);
    }
    if arguments.only != Some(Part::Entries) {
        failures.extend(handler(&parts, &kernel, &arguments.output)?);
    }
    done(&failures)?;
    Ok(ExitCode::SUCCESS)
}

/// Sweeps the call tree and the entry stubs. Returns what is wrong.
///
/// # Errors
/// If the machine did not survive, or a profile cannot be read.
pub fn entries(parts: &Parts, kernel: &Kernel, output: &Path) -> Result<Vec<String>> {
    let folder = output.join("sweep-entries");
    let code = Code::of(&kernel.elf)?;
    let profile = folder.join("root/profiling.txt");
    let (mut stacks, mut samples) = (Vec::new(), BTreeMap::new());
    let mut runs = 1;
    loop {
        scenario::one("sweep-entries", parts, kernel, &folder, "")?;
        let mut script = Command::new(&parts.fold);
        script.args(["script", "--strict"]).arg(&profile).arg(&kernel.elf);
        stacks.extend(tree::read_script(&run::output(&mut script)?)?);
        stubs::read_samples(&std::fs::read_to_string(&profile)?, &mut samples);
        let mut failures = tree::judge(&code, &stacks)?;
        let found = stubs::judge(&code, &samples)?;
        failures.extend(found.wrong);
        if !failures.is_empty() || found.never.is_empty() || runs == MAX_RUNS {
            failures.extend(found.never.into_iter().map(|text| format!("{text}: never hit")));
            return Ok(failures);
        }
        println!("not every instruction of the stubs was hit yet: once more");
        runs += 1;
    }
}

/// Sweeps the handler itself. Returns what is wrong.
///
/// # Errors
/// If the machine did not survive, or the log cannot be parsed.
pub fn handler(parts: &Parts, kernel: &Kernel, output: &Path) -> Result<Vec<String>> {
    let mut hits = BTreeMap::new();
    let code = Code::of(&kernel.elf)?;
    let mut found = Vec::new();
    for seed in FIRST_SEED..FIRST_SEED + MAX_RUNS as u64 {
        if seed > FIRST_SEED {
            println!("not every instruction of the handler was hit yet: once more, with other dice");
        }
        for name in ["sweep-handler", "sweep-small-ring"] {
            let folder = output.join(name);
            scenario::one(name, parts, kernel, &folder, &format!("random-seed={seed}"))?;
            handler::read_hits(&std::fs::read_to_string(folder.join("serial.log"))?, &mut hits)?;
        }
        found = handler::judge(&code, &hits)?;
        if found.is_empty() {
            break;
        }
    }
    let probes = output.join("probes.txt");
    parts.write_probes(kernel, "*", &probes)?;
    found.extend(handler::with_probes(&code, &std::fs::read_to_string(probes)?)?);
    Ok(found)
}

/// Makes an error of the failures, if there are any.
///
/// # Errors
/// If there is a failure.
pub fn done(failures: &[String]) -> Result<()> {
    if failures.is_empty() {
        return Ok(());
    }
    bail!("{} failures:\n{}", failures.len(), failures.join("\n"))
}
