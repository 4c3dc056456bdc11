//! The binary `kprof-fold`: arguments in, exit code out. Everything else is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    kprof_fold::cli::main(std::env::args_os())
}
