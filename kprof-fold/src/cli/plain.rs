//! What the subcommands share that need no symbols of a kernel: info, latency, waits. Stage: command line.
//!
//! In: their common arguments. Out: the profile, read; the text or the document, written, and the exit code.

use super::args::{Plain, TableFormat};
use super::out::{not_written, put};
use super::{load, probe_names, talk};
use crate::account::Account;
use crate::error::Error;
use crate::output::info::csv;
use crate::read::consumer::Consumer;
use crate::read::{self, Reading, Source};
use crate::symbols::name::visible_lines;
use serde_json::Value;

/// Reads the profile. With symbols the points of probes have the names of their functions.
///
/// # Errors
/// If the form of the output is not known, or a file cannot be read.
pub fn read<C: Consumer>(args: &Plain, syms: Option<&str>, consumer: C) -> Result<Reading<C>, Error> {
    TableFormat::of(args.format, args.output.as_deref())?;
    let source = Source { file: &args.file, form: args.form, boot: None, progress: &mut |_| {} };
    let mut reading = read::read(source, consumer)?;
    probe_names::rename(&args.file, syms, &mut reading.profile)?;
    talk::print(&reading.problems);
    Ok(reading)
}

/// Writes the text or the document, and returns the exit code.
///
/// # Errors
/// If the output cannot be written.
pub fn write<C>(
    args: &Plain,
    reading: &Reading<C>,
    text: impl FnOnce() -> String,
    document: impl FnOnce() -> Value,
) -> Result<u8, Error> {
    let output = args.output.as_deref();
    let text = match TableFormat::of(args.format, output)? {
        TableFormat::Text => visible_lines(&text()).into_owned(),
        TableFormat::Json => format!("{:#}\n", document()),
        TableFormat::Csv => csv::text(&document()).map_err(|error| not_written(output, error))?,
    };
    put(output, true, &[&args.file], |out| out.write_all(text.as_bytes()).map_err(|error| not_written(output, error)))?;
    let kept = (reading.profile.samples(), reading.profile.lost());
    Ok(load::exit_code(args.limits, &reading.problems, &Account::of(&reading.profile), kept))
}
