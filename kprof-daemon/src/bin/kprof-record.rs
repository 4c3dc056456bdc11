//! The binary `kprof-record`: samples while a command runs, and ends as the command ended.
//!
//! In: options and a command. Out: the sample file, the account on standard error, the command's exit code. Runs in:
//! user process.

use kprof_daemon::error::Error;
use kprof_daemon::options::print;
use kprof_daemon::record::control::control;
use kprof_daemon::record::options::{self, Record, Wanted};
use kprof_daemon::record::probe::list;
use kprof_daemon::record::{Failed, record};
use kprof_daemon::signals::Signals;
use kprof_daemon::system::System;
use kprof_daemon::system::host::Host;
use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    let ended = match options::parse(std::env::args_os().skip(1)) {
        Ok(Wanted::Text(text)) => print(&text).map(|()| 0).map_err(Failed::from),
        Ok(Wanted::Control(verb, scheme)) => {
            let mut system = Host::default();
            control(&mut system, &scheme, verb, &mut std::io::stdout()).map(|()| 0).map_err(Failed::from)
        }
        Ok(Wanted::Probes { places, force, scheme }) => {
            let (mut system, mut out) = (Host::default(), std::io::stdout());
            list(&mut system, &scheme, places.as_deref(), force, &mut out).map(|()| 0).map_err(Failed::from)
        }
        Ok(Wanted::Session(wanted)) => session(&wanted),
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(failed) => {
            Host::default().say(format_args!("kprof-record: {failed}"));
            ExitCode::from(failed.exit_code())
        }
    }
}

fn session(wanted: &Record) -> Result<u8, Failed> {
    let signals = Signals::of_recording().map_err(|error| Error::Usage(format!("cannot handle signals: {error}")))?;
    let mut system = Host::default();
    let mut talk = std::io::stderr();
    let is_terminal = talk.is_terminal();
    record(&mut system, wanted, &signals, &mut talk, is_terminal)
}
