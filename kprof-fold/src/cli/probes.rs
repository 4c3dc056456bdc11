//! The subcommand `probes`. Stage: command line.
//!
//! In: the kernel's ELF file and patterns of names. Out: the file of `kprof_format::probe`: the functions that can be
//! probed, with their exits, and those that cannot, with the reason. A pattern that no function fits is an error, so
//! that a mistyped name is not taken for a function without a probe.

use super::args::Probes;
use super::nearest::did_you_mean;
use super::out::{not_written, put};
use super::talk::{Talk, print};
use super::values::form_of_file;
use crate::error::Error;
use crate::probes::{Found, Function, find};
use crate::problems::Problems;
use crate::symbols::Symbols;
use crate::symbols::name::visible;
use kprof_format::probe::{Line, Place};
use std::fmt::Write as _;

/// How many functions with calls through pointers are named.
const SHOWN: usize = 6;

/// `probes`.
///
/// # Errors
/// If the file is no kernel for x86_64 with its handlers, or a pattern fits no function.
pub fn run(args: &Probes) -> Result<u8, Error> {
    form_of_file(args.output.as_deref(), &[("txt", ()), ("places", ()), ("probes", ())])?;
    let mut problems = Problems::default();
    let symbols = Symbols::open_with(&args.kernel, args.debug_file.as_deref(), &mut problems)?;
    print(&problems);
    let found = find(&args.kernel, &symbols, &args.handler)?;
    let chosen = chosen(&found, args)?;
    let elf = symbols.elf.as_ref();
    let head = (elf.and_then(|elf| elf.build_id.as_deref()), elf.map_or(0, |elf| elf.base));
    let text = text(&chosen, head);
    let inputs: Vec<&str> = std::iter::once(&args.kernel).chain(&args.debug_file).map(String::as_str).collect();
    let output = args.output.as_deref();
    let write = |error| not_written(output, error);
    put(output, args.quiet, &inputs, |out| out.write_all(text.as_bytes()).map_err(write))?;
    say(&found, &chosen, Talk { quiet: args.quiet });
    Ok(0)
}

/// The functions that the patterns mean; all of them without a pattern.
fn chosen<'a>(found: &'a Found, args: &Probes) -> Result<Vec<&'a Function>, Error> {
    let names = || found.functions.iter().map(|function| &function.name[..]);
    let meant: Vec<_> = args.patterns.iter().map(|pattern| pattern.among(names())).collect();
    if let Some((pattern, _)) = args.patterns.iter().zip(&meant).find(|(_, meant)| meant.closest.is_none()) {
        let hint = did_you_mean(pattern.as_str(), names());
        return Err(Error::unusable(&args.kernel, format!("no function `{}`{hint}", pattern.as_str())));
    }
    let is_meant = |function: &&Function| meant.is_empty() || meant.iter().any(|meant| meant.is(&function.name));
    Ok(found.functions.iter().filter(is_meant).collect())
}

/// The file. `build_id` and `load` are those of the kernel's file.
fn text(functions: &[&Function], (build_id, load): (Option<&str>, u64)) -> String {
    let head: [Line<'_, [u64; 0]>; 3] = [Line::First, Line::BuildId(build_id), Line::Load(load)];
    let mut text: String = head.iter().map(|line| format!("{line}\n")).collect();
    for function in functions {
        let name = &visible(&function.name)[..];
        let _ = match &function.exits {
            Ok(exits) => {
                let exits = exits.iter().copied();
                writeln!(text, "{}", Line::Place(Place { address: function.address, exits, name }))
            }
            Err(why) => {
                let why = format!("{name}: {}", visible(&why.to_string()));
                writeln!(text, "{}", Line::<[u64; 0]>::Refused(&why))
            }
        };
    }
    text
}

/// Says how many functions there are, and what is not known.
fn say(found: &Found, chosen: &[&Function], talk: Talk) {
    let places = || chosen.iter().filter_map(|function| function.exits.as_ref().ok());
    let exits: usize = places().map(Vec::len).sum();
    let (count, refused) = (places().count(), chosen.len() - places().count());
    talk.say(format_args!("{count} functions with {exits} exits can be probed, {refused} cannot"));
    talk.say(format_args!("handlers of NMIs and breakpoints: {}", found.handlers.join(", ")));
    let (shown, rest) = found.with_unknown_calls.split_at(found.with_unknown_calls.len().min(SHOWN));
    if !shown.is_empty() {
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        talk.say(format_args!(
            "what these handlers call through pointers is not known, and may be among the functions that can be \
             probed; give it with --handler. Such calls are in {}{more}",
            shown.join(", ")
        ));
    }
}
