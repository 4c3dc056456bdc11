//! The command line tool. Stage: the whole host tool, from arguments to exit code.
//!
//! In: arguments. Out: data on standard output or in `-o FILE`, messages on standard error, a documented exit code.
//! Never panics, whatever the input is.

pub mod args;
pub mod between;
pub mod boots;
pub mod causes;
pub mod clocks;
pub mod compare;
pub mod compat;
pub mod doctor;
pub mod event;
mod event_export;
pub mod heap;
pub mod html;
pub mod images;
pub mod latency;
pub mod load;
pub mod lockups;
mod matched;
pub mod mistakes;
pub mod nearest;
mod of_perf;
pub mod out;
pub mod pager;
mod pass;
pub mod places;
pub mod placing;
mod plain;
pub mod probe_names;
pub mod probes;
pub mod progress;
mod prologue;
pub mod report;
pub mod single;
mod source;
pub mod spool;
mod tables;
pub mod talk;
pub mod top;
pub mod users;
pub mod values;
pub mod waits;

use crate::error::Error;
use crate::output::tree::Direction;
use crate::output::{flamegraph, folded};
use args::{Choice, Cli, Command, Export, Flamegraph, Format, Html, Input, Script, Viewer};
use clap::{CommandFactory, Parser, ValueEnum};
use out::{to_stdout, with_output, write_failed};
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the tool.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(tree_without_value(arguments)) {
        Ok(cli) => cli,
        Err(error) => {
            match of_perf::option(&error) {
                Some(answer) => talk::print(format_args!("kprof-fold: {answer}")),
                None => drop(error.print()),
            }
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(Error::OutputClosed) => ExitCode::SUCCESS,
        Err(error) => {
            talk::print(format_args!("kprof-fold: {error}{}", mistakes::similar_files(&error)));
            ExitCode::from(error.exit_code())
        }
    }
}

/// The value of `report --tree` may be left out. The parser would take a file's name after `--tree` for the value, so a
/// word that is no value of `--tree` gets the default before it.
fn tree_without_value(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut arguments = arguments.peekable();
    std::iter::from_fn(move || {
        let word = arguments.next()?;
        let is_value = |next: &OsString| next.to_str().is_some_and(|next| Direction::from_str(next, false).is_ok());
        let lacks_value = word == "--tree" && arguments.peek().is_some_and(|next| !is_value(next));
        Some(if lacks_value { "--tree=callees".into() } else { word })
    })
}

fn run(cli: Cli) -> Result<u8, Error> {
    match (cli.command, cli.fold) {
        (Some(Command::Folded(args)), _) => {
            values::form_of_file(args.input.output.as_deref(), &[("folded", ()), ("txt", ())])?;
            fold(&args.input, &args.choice)
        }
        (None, Some(input)) => {
            mistakes::verb(&input)?;
            let format = cli.format.map_or_else(|| Format::of_file(input.output.as_deref()), Ok)?;
            in_format(format, input, cli.choice)
        }
        (Some(Command::Flamegraph(args)), _) => {
            values::form_of_file(args.input.output.as_deref(), &[("svg", ())])?;
            flamegraph(&args)
        }
        (Some(Command::Html(args)), _) => html::run(&args),
        (Some(Command::Report(args)), _) => report::run(&args),
        (Some(Command::Diff(args)), _) => compare::run(&args),
        (Some(Command::Annotate(args)), _) => single::annotate(&args),
        (Some(Command::Top(args)), _) => top::run(&args),
        (Some(Command::Doctor(args)), _) => doctor::run(&args),
        (Some(Command::Completions { shell }), _) => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "kprof-fold", &mut text);
            print_all(&text)
        }
        (Some(Command::Man { subcommand }), _) => {
            let mut text = Vec::new();
            let rendered = clap_mangen::Man::new(manual(subcommand.as_deref())?).render(&mut text);
            rendered.map_err(|error| Error::io("the manual page", "render", error))?;
            print_all(&text)
        }
        (Some(Command::Script(args)), _) => {
            let forms = [("txt", ()), ("perf", ()), ("script", ())];
            values::form_of_file(args.input.output.as_deref(), &forms)?;
            single::script(&args)
        }
        (Some(Command::Info(args)), _) => single::info(&args),
        (Some(Command::Latency(args)), _) => latency::run(&args),
        (Some(Command::Waits(args)), _) => waits::run(&args),
        (Some(Command::Lockups(args)), _) => lockups::run(&args),
        (Some(Command::Export(args)), _) => single::export(&args),
        (Some(Command::Probes(args)), _) => probes::run(&args),
        (Some(Command::Tables(args)), _) => tables::run(&args),
        (None, None) => Err(Error::Usage("FILE and SYMS are needed; see --help".to_owned())),
    }
}

/// The command whose manual page is wanted.
fn manual(subcommand: Option<&str>) -> Result<clap::Command, Error> {
    let mut whole = Cli::command();
    whole.build();
    let Some(name) = subcommand else { return Ok(whole) };
    let found = whole.find_subcommand(name).cloned();
    found.ok_or_else(|| Error::Usage(format!("there is no subcommand {name}; see --help")))
}

/// Runs the default command with an output other than folded stacks: the same as the subcommand for that output.
fn in_format(format: Format, input: Input, choice: Choice) -> Result<u8, Error> {
    let export = |to| single::export(&Export::new(input.clone(), choice.clone(), to));
    match format {
        Format::Folded => fold(&input, &choice),
        Format::PerfScript => {
            let (offsets, expand_offsets, stop_at_unknown) = (false, false, false);
            single::script(&Script { input, choice, offsets, expand_offsets, stop_at_unknown })
        }
        Format::Html => html::run(&Html {
            input,
            choice,
            title: String::new(),
            compare: None,
            compare_syms: None,
            confidence: 0.99,
        }),
        Format::Flamegraph => {
            flamegraph(&Flamegraph { input, choice, title: String::new(), icicle: false, reverse: false })
        }
        Format::Firefox => export(Viewer::Firefox),
        Format::Speedscope => export(Viewer::Speedscope),
        Format::Pprof => export(Viewer::Pprof),
        Format::Perfetto => export(Viewer::Perfetto),
    }
}

fn fold(input: &Input, choice: &Choice) -> Result<u8, Error> {
    let loaded = load::load(input, choice)?;
    with_output(input, |out| {
        folded::write_with(&loaded.folded, &loaded.beside, out).map_err(|error| write_failed(input, error))
    })?;
    let code = loaded.exit_code(input.limits());
    // The process ends next, so freeing the memory of each stack would only take time.
    std::mem::forget(loaded);
    Ok(code)
}

fn flamegraph(args: &Flamegraph) -> Result<u8, Error> {
    let loaded = load::load(&args.input, &args.choice)?;
    let style = flamegraph::Style {
        title: args.title.clone(),
        subtitle: loaded.subtitle(),
        icicle: args.icicle,
        reverse: args.reverse,
        unit: loaded.event.as_ref().map_or_else(String::new, |event| event.unit.clone()),
    };
    let mut svg = Vec::new();
    flamegraph::write(&loaded.folded, &loaded.beside, &style, &args.input.file, &mut svg)?;
    with_output(&args.input, |out| out.write_all(&svg).map_err(|error| write_failed(&args.input, error)))?;
    Ok(loaded.exit_code(args.input.limits()))
}

fn print_all(text: &[u8]) -> Result<u8, Error> {
    to_stdout(|out| out.write_all(text).map_err(|error| Error::io("standard output", "write", error)))?;
    Ok(0)
}
