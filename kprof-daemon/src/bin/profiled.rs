//! The binary `profiled`: drains until it is told to stop.
//!
//! In: arguments, signals. Out: the sample file; messages on standard error. Runs in: user process, started by init.
//! Its exit code says what went wrong.

use kprof_daemon::error::Error;
use kprof_daemon::options::{self, Profiled, Wanted, print};
use kprof_daemon::profiled::profiled;
use kprof_daemon::signals::Signals;
use kprof_daemon::system::System;
use kprof_daemon::system::host::Host;
use std::fs::OpenOptions;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let ended = options::profiled(std::env::args_os().skip(1)).and_then(|wanted| match wanted {
        Wanted::Text(text) => print(&text),
        Wanted::Session(wanted) => session(&wanted),
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            Host::default().say(format_args!("profiled: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

fn session(wanted: &Profiled) -> Result<(), Error> {
    let signals = Signals::of_profiled().map_err(|error| Error::Usage(format!("cannot handle signals: {error}")))?;
    profiled(&mut Host::default(), wanted, signals, || wanted.pid_file.as_deref().map(PidFile::write).transpose())
}

/// A file with the process id, from when the session is ready until it ends.
struct PidFile<'a>(&'a Path);

impl<'a> PidFile<'a> {
    /// Writes the file. An existing file must be empty or contain a number, which an earlier process has written.
    fn write(path: &'a Path) -> Result<Self, Error> {
        let fails = |during| move |cause| Error::Write { path: path.into(), safe_bytes: 0, during, cause };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o644).custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(path).map_err(fails("opening it"))?;
        let mut first = Vec::new();
        (&file).take(32).read_to_end(&mut first).map_err(fails("reading it"))?;
        if first.len() == 32 || !first.trim_ascii_end().iter().all(u8::is_ascii_digit) {
            let what = "not a file with a process id; use another --pid-file".into();
            return Err(Error::Malformed { path: path.into(), what });
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(fails("emptying it"))?;
        writeln!(file, "{}", std::process::id()).map_err(fails("writing"))?;
        Ok(Self(path))
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        // If the file cannot be removed, the next process overwrites it.
        let _ = std::fs::remove_file(self.0);
    }
}
