//! `kprof-qemu`: profiles a kernel in QEMU from outside. Stage: capture, command line.
//!
//! In: a QEMU command line. Out: a profile in kprof's text form, for `kprof-fold`, or exact counts. Runs in: user
//! process, on the host. Changes nothing in the guest, and ends no process.
#![forbid(unsafe_code)]

mod arguments;
mod attach;
mod calls;
mod count;
mod counted;
mod drawn;
mod fallback;
mod found;
mod framed;
mod functions;
mod gdb;
mod guest;
mod machine;
mod message;
mod orc;
mod packet;
mod place;
mod probe;
mod profile;
mod record;
mod recording;
mod run;
mod slowdown;
mod syscalls;
mod table;
mod tables;
mod window;

/// The plugin's search for the kernel.
#[allow(dead_code, missing_docs)]
#[path = "../plugin/place/mod.rs"]
mod finder;

/// The plugin's numbers for functions.
#[allow(dead_code, missing_docs)]
#[path = "../plugin/functions.rs"]
mod plugin;

/// The plugin's ranges of times.
#[allow(dead_code, missing_docs)]
#[path = "../plugin/histogram.rs"]
mod histogram;

/// What the plugin sends at the end.
#[allow(dead_code)]
#[path = "../plugin/totals.rs"]
mod totals;

/// The plugin's walk of a stack.
#[allow(dead_code, missing_docs)]
#[path = "../plugin/walk/mod.rs"]
mod walk;

use arguments::{Attach, Count, Record};
use clap::{Parser, Subcommand};
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
  kprof-qemu record --kernel kernel.elf -- qemu-system-x86_64 -kernel kernel.elf -smp 4 -nographic

A QEMU without plugins, of version 9.0 or 9.1, or with KVM is sampled by its gdb stub, as attach does.

The exit code is QEMU's (1 if a signal has ended it); 2 if QEMU could not be run, if it was killed before all samples
were written, or if the page of --kernel was not drawn.")]
    Record(Record),
    /// Samples a machine that already runs, through its gdb stub
    #[command(
        after_help = "Examples: a machine that was started with -gdb tcp:127.0.0.1:1234; for ten seconds; and until
Ctrl-C, two of its vCPUs at a low rate
  kprof-qemu attach --gdb 127.0.0.1:1234 --duration 10 --kernel kernel.elf
  kprof-qemu attach --gdb 127.0.0.1:1234 --cpu 0 --cpu 2 --hz 100 -o two.txt

The machine is stopped for each sample, and runs in between for at least as long. It runs on at the end.
If the program was killed with SIGKILL, the machine may be stopped: attach to it once more.

The exit code is 0, or 2 if the machine could not be sampled or the page of --kernel was not drawn."
    )]
    Attach(Attach),
    /// Runs QEMU and counts every executed instruction, by function and by calling context
    #[command(after_help = "Examples:
  kprof-qemu count --kernel kernel.elf --flamegraph flamegraph.svg --folded calls.folded -- \\
      qemu-system-x86_64 -kernel kernel.elf -nographic -icount shift=0,sleep=off
  kprof-qemu count --flat --kernel kernel.elf --image init -- qemu-system-x86_64 ...

The exit code is QEMU's (1 if a signal has ended it); 2 if QEMU could not be run or if two counts of the same
instructions differ.")]
    Count(Box<Count>),
    /// Runs QEMU and counts the instructions of each system call
    #[command(after_help = syscalls::HELP)]
    Syscalls(syscalls::Arguments),
    /// Runs QEMU and watches functions: calls, callers, times, arguments
    #[command(after_help = probe::HELP)]
    Probe(probe::Arguments),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Record(arguments) => record::run(&arguments),
        Command::Attach(arguments) => attach::run(&arguments),
        Command::Count(arguments) => count::run(&arguments),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Syscalls(arguments) => syscalls::run(&arguments),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("kprof-qemu: {error:#}");
            ExitCode::from(2)
        }
    }
}
