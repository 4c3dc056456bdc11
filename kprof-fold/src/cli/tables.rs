//! The subcommand `tables`. Stage: command line.
//!
//! In: the kernel's ELF file. Out: its compact unwind table, and what it costs.

use super::args::Tables;
use super::out::{not_written, put};
use super::talk::Talk;
use crate::error::Error;
use crate::unwind::compact::{Compact, compact};

/// `tables`.
///
/// # Errors
/// If the file has no unwind information or no build id, or its reserved section is too small.
pub fn run(args: &Tables) -> Result<u8, Error> {
    let data = std::fs::read(&args.kernel).map_err(|error| Error::io(&args.kernel, "read", error))?;
    let table = compact(&args.kernel, &data)?;
    let output = args.output.as_deref();
    let write = |error| not_written(output, error);
    put(output, args.quiet, &[&args.kernel], |out| out.write_all(&table.bytes).map_err(write))?;
    say(&table, Talk { quiet: args.quiet });
    Ok(0)
}

fn say(table: &Compact, talk: Talk) {
    let Compact { bytes, used, text, rows, functions, left_out } = table;
    let share = *used as f64 * 100.0 / (*text).max(1) as f64;
    talk.say(format_args!("{rows} rows for {functions} functions: {used} bytes, {share:.2} % of {text} bytes of code"));
    if bytes.len() > *used {
        talk.say(format_args!("the kernel's section has room for {} bytes", bytes.len()));
    }
    if *left_out > 0 {
        talk.say(format_args!(
            "{left_out} functions are left out: they move the stack pointer, and their description does not say so \
             (assembly?). Stacks are truncated there"
        ));
    }
}
