//! The verbs of this repository: `cargo xtask profile`, `outside`, `repeat`, `gate`, `truth`, `storm`, `sweep`,
//! `bench`, `lockups`, `gdb`, `yardstick`, `mutants`, `test`.
//!
//! The modules in the order of a run: `tools`, `archive` and `toolchain` find what is needed, `build`, `initrd` and
//! `workloads` build it, `qemu` runs it; then a module for each verb.

mod archive;
mod bench;
mod build;
mod gate;
mod gdb;
mod initrd;
mod linux;
mod lockups;
mod mutants;
mod outside;
mod parts;
mod profile;
mod qemu;
mod repeat;
mod run;
mod stacks;
mod storm;
mod sweep;
mod test;
mod toolchain;
mod tools;
mod truth;
mod workloads;
mod yardstick;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// Builds, runs and tests kprof.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// The QEMU to use: a folder with `qemu-system-x86_64` and the others, or one of these programs [default: those on
    /// PATH]
    #[arg(long, global = true, value_name = "PATH")]
    qemu: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Verb {
    Profile(profile::Arguments),
    Outside(outside::Arguments),
    Repeat(repeat::Arguments),
    Gate(gate::Arguments),
    Gdb(gdb::Arguments),
    Truth(truth::Arguments),
    Storm(storm::Arguments),
    Lockups(lockups::Arguments),
    Sweep(sweep::Arguments),
    Bench(bench::Arguments),
    Yardstick(yardstick::Arguments),
    Mutants(mutants::Arguments),
    Test(test::Arguments),
}

fn main() -> ExitCode {
    if let Some(error) = test::become_compiler() {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    let arguments = Arguments::parse();
    match arguments.qemu.as_deref().map_or(Ok(()), qemu::choose).and_then(|()| run_verb(arguments.verb)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_verb(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Profile(arguments) => profile::run(&arguments),
        Verb::Outside(arguments) => outside::run(&arguments),
        Verb::Repeat(arguments) => repeat::run(&arguments),
        Verb::Gate(arguments) => gate::run(&arguments),
        Verb::Gdb(arguments) => gdb::run(&arguments),
        Verb::Truth(arguments) => truth::run(&arguments),
        Verb::Storm(arguments) => storm::run(&arguments),
        Verb::Lockups(arguments) => lockups::run(&arguments),
        Verb::Sweep(arguments) => sweep::run(&arguments),
        Verb::Bench(arguments) => bench::run(&arguments),
        Verb::Yardstick(arguments) => yardstick::run(&arguments),
        Verb::Mutants(arguments) => mutants::run(&arguments),
        Verb::Test(arguments) => test::run(&arguments, Arguments::command),
    }
}
