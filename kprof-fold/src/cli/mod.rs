//! The command line tool. Stage: all of the host end, from arguments to exit code.
//!
//! In: arguments. Out: data on standard output or in `-o FILE`, talk on standard error, an exit code that means
//! something. No panic, whatever the input is.

pub mod args;
pub mod between;
pub mod load;
pub mod progress;
pub mod single;
pub mod talk;
pub mod values;

use crate::error::Error;
use crate::output::{flamegraph, folded, report};
use args::{Choice, Cli, Command, Input};
use clap::Parser;
use load::Loaded;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use talk::Talk;

/// Runs the tool.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(Error::OutputClosed) => ExitCode::SUCCESS,
        Err(error) => {
            talk::print(format_args!("kprof-fold: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(cli: Cli) -> Result<u8, Error> {
    match (cli.command, cli.fold) {
        (Some(Command::Folded(args)), _) => fold(&args.input, &args.choice),
        (None, Some(input)) => fold(&input, &cli.choice),
        (Some(Command::Flamegraph(args)), _) => flamegraph(&args),
        (Some(Command::Report(args)), _) => report(&args),
        (Some(Command::Script(args)), _) => single::script(&args),
        (Some(Command::Info(args)), _) => single::info(&args),
        (Some(Command::Export(args)), _) => single::export(&args),
        (Some(Command::Heatmap(args)), _) => single::heatmap(&args),
        (None, None) => Err(Error::Usage("FILE and SYMS are needed; see --help".to_owned())),
    }
}

fn fold(input: &Input, choice: &Choice) -> Result<u8, Error> {
    let loaded = load::load(input, choice)?;
    with_output(input, |out| {
        folded::write(&loaded.folded, loaded.drawn_lost(), out).map_err(|error| write_failed(input, error))
    })?;
    let code = loaded.exit_code(input);
    // The process ends here; giving back each stack's memory first would only cost time.
    std::mem::forget(loaded);
    Ok(code)
}

fn flamegraph(args: &args::Flamegraph) -> Result<u8, Error> {
    let loaded = load::load(&args.input, &args.choice)?;
    let style = flamegraph::Style {
        title: args.title.clone(),
        subtitle: loaded.subtitle(),
        icicle: args.icicle,
        reverse: args.reverse,
        show_lost: true,
    };
    with_output(&args.input, |out| {
        flamegraph::write(&loaded.folded, loaded.drawn_lost(), &style, &args.input.file, out)
    })?;
    Ok(loaded.exit_code(&args.input))
}

fn report(args: &args::Report) -> Result<u8, Error> {
    let loaded = load::load(&args.input, &args.choice)?;
    let Loaded { folded, profile, account, lost, .. } = &loaded;
    if profile.samples() == 0 && account.sum("sent") == 0 {
        return Err(Error::unusable(
            &args.input.file,
            "no sample and no tick: nothing to report. Did the recording run?",
        ));
    }
    let style = report::Style { sort: args.sort, top: args.top, limit: args.limit };
    let input = report::Input { folded, profile, account, lost: *lost };
    with_output(&args.input, |out| {
        report::write(input, &style, out).map_err(|error| write_failed(&args.input, error))
    })?;
    let unbalanced = account.cpus.iter().any(|cpu| !cpu.faults.is_empty());
    Ok(if unbalanced { load::UNBALANCED } else { loaded.exit_code(&args.input) })
}

fn write_failed(input: &Input, error: io::Error) -> Error {
    Error::io(input.output.as_deref().unwrap_or("standard output"), "write", error)
}

/// Gives `write` the place that the user asked for.
fn with_output(input: &Input, write: impl FnOnce(&mut dyn Write) -> Result<(), Error>) -> Result<(), Error> {
    match input.output.as_deref() {
        None | Some("-") => write(&mut BufWriter::with_capacity(64 * 1024, io::stdout().lock())),
        Some(file) => {
            let opened = File::create(file).map_err(|error| Error::io(file, "create", error))?;
            let mut out = BufWriter::new(opened);
            write(&mut out)?;
            out.flush().map_err(|error| Error::io(file, "write", error))?;
            Talk { quiet: input.quiet }.say(format_args!("wrote {file}"));
            Ok(())
        }
    }
}
