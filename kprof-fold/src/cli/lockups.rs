//! The subcommand `lockups`. Stage: command line.
//!
//! In: a profile or a serial log, and symbols. Out: the CPUs that the kernel has reported as locked up, where they were
//! meanwhile, and the newest stack of every CPU. A file without a lockup is not an error.

use super::args::{LockupFormat, Lockups};
use super::compat::Output;
use super::event::refuse_verb;
use super::load;
use super::out::{with_output, write_failed};
use crate::error::Error;
use crate::output::lockups;
use crate::symbols::name::visible_lines;
use crate::tally::{By, Tally};

/// `lockups`.
///
/// # Errors
/// If the input or the arguments are unusable.
pub fn run(args: &Lockups) -> Result<u8, Error> {
    let Lockups { input, choice, .. } = args;
    refuse_verb(choice, "lockups", "it shows where CPUs were that were locked up, which are no hits of a point")?;
    let format = LockupFormat::of(args.format, input.output.as_deref())?;
    let (opened, _) = load::open(input, choice, Output::Other, |select| Tally::new(select.clone(), By::None))?;
    let all: Vec<_> = opened.profile.boots.iter().flat_map(|boot| &boot.lockups).collect();
    let (symbols, tsc_hz) = (&opened.symbols, opened.tsc_hz);
    let text = match format {
        LockupFormat::Text if all.is_empty() => "no lockup was reported\n".to_owned(),
        LockupFormat::Text => visible_lines(&lockups::text(&all, symbols, tsc_hz)).into_owned(),
        LockupFormat::Json => format!("{:#}\n", lockups::document(&all, symbols, tsc_hz)),
        LockupFormat::Folded => lockups::folded(&all, symbols),
    };
    with_output(input, |out| out.write_all(text.as_bytes()).map_err(|error| write_failed(input, error)))?;
    Ok(opened.exit_code(input.limits(), opened.profile.kept_and_lost().0 as usize))
}
