//! The binary `profiled`: a session that drains until it is told to stop.
//!
//! In: arguments, signals. Out: the sample file; messages on standard error. Runs in: user process, started by init.
//! Its exit code says what went wrong. It never loses a record that it has acknowledged.

use kprof_daemon::drain_loop::{Session, Totals};
use kprof_daemon::error::Error;
use kprof_daemon::options::{self, Profiled, Wanted, print};
use kprof_daemon::signals::Signals;
use kprof_daemon::source::Source;
use kprof_daemon::source::kprof_device::KprofDevice;
use kprof_daemon::source::recorded::Recorded;
use kprof_daemon::source::redox_device::RedoxDevice;
use kprof_daemon::source::told::{Told, WakeAt};
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
    let signals = Signals::installed().map_err(|error| Error::Usage(format!("cannot handle signals: {error}")))?;
    let mut system = Host::default();
    if let Some(recording) = &wanted.recording {
        let source = Recorded::open(&mut system, recording)?;
        return drain(&mut system, source, wanted, signals);
    }
    match KprofDevice::open(&mut system, &wanted.scheme) {
        Err(Error::NotKprof { .. }) => {
            let source = RedoxDevice::open(&mut system, &wanted.scheme)?;
            if !wanted.quiet {
                system.say(format_args!(
                    "profiled: this kernel speaks Redox's raw words: they are consumed when read, nothing is acknowledged"
                ));
            }
            drain(&mut system, source, wanted, signals)
        }
        source => drain(&mut system, source?, wanted, signals),
    }
}

fn drain(system: &mut Host, source: impl Source<Host>, wanted: &Profiled, signals: Signals) -> Result<(), Error> {
    let from = source.path().display().to_string();
    let source = Told::new(system, source, "profiled", wanted.verbose, WakeAt::default());
    let mut session = Session::open(system, source, wanted.options.clone(), signals)?;
    let mut talk = Host::default();
    if !wanted.quiet {
        talk.say(format_args!("profiled: draining {from} to {}", wanted.options.output.display()));
    }
    let _pid_file = wanted.pid_file.as_deref().map(PidFile::write).transpose()?;
    let mut rounds = 0_u64;
    let totals = session.run(|_, _| {
        rounds += 1;
        true
    })?;
    if wanted.verbose {
        talk.say(format_args!("profiled: {rounds} rounds"));
    }
    if !wanted.quiet {
        summary(&mut talk, &totals);
    }
    Ok(())
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

fn summary(system: &mut Host, totals: &Totals) {
    system.say(format_args!("profiled: {} samples, {} bytes", totals.samples, totals.bytes));
    if totals.events > 0 {
        system.say(format_args!("profiled: {} recorded hits of points", totals.events));
    }
    if totals.reached_max {
        system.say(format_args!("profiled: the file has reached --max-size; the rest stays in the kernel"));
    }
    if totals.again > 0 {
        system.say(format_args!(
            "profiled: {} records were in the file already and were not written again",
            totals.again
        ));
    }
    if totals.live + totals.live_dropped > 0 {
        system.say(format_args!("profiled: live stream: {} sent, {} dropped", totals.live, totals.live_dropped));
    }
    if totals.corrupt > 0 {
        system.say(format_args!("profiled: {} damaged ranges were skipped; the file says where", totals.corrupt));
    }
    if totals.unknown > 0 {
        system.say(format_args!("profiled: {} records of unknown kinds were skipped", totals.unknown));
    }
}
