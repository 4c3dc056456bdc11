//! `kprof-record`: sampling around one command.
//!
//! In: options and a command. Out: the sample file, the account, and the command's own exit code. Runs in: user
//! process. The command runs as a child process; this process only drains. Without a command it runs until a signal or
//! the end of its terminal; a signal ends the command too.

pub mod account;
pub mod control;
pub mod options;
pub mod places;
pub mod probe;
mod probe_options;
pub mod stat;
mod stat_points;

use crate::by_point::ByPoint;
use crate::ctl::Ctl;
use crate::drain_loop::{Session, Totals};
use crate::error::Error;
use crate::pace::Pace;
use crate::signals::Signals;
use crate::source::Source;
use crate::source::kprof_device::KprofDevice;
use crate::system::System;
use crate::write::sample_file::SampleFile;
use account::Account;
use kprof_format::command::Command;
use kprof_format::fact::Fact;
use kprof_format::record::EVENT_NAMES;
use options::{Record, What};
use rustix::process::{Pid, Signal, kill_process};
use stat::Intervals;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Exit codes of `kprof-record` itself. They are those of `env` and `timeout`, because commands do not use them.
pub mod code {
    /// kprof-record failed.
    pub const FAILED: u8 = 125;
    /// The command cannot be executed.
    pub const NOT_EXECUTABLE: u8 = 126;
    /// The command was not found.
    pub const NOT_FOUND: u8 = 127;
}

/// The longest wait of a session. The end of the command ends a wait, unless the command ends between the check of the
/// flags and the wait. So no wait may be long.
const COMMAND_WAIT: Duration = Duration::from_millis(100);

/// Why `kprof-record` cannot return the exit code of a command.
#[derive(Debug)]
pub enum Failed {
    /// The session failed.
    Session(Error),
    /// The command could not be started.
    Command(OsString, std::io::Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Session(error)
    }
}

impl Failed {
    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Session(Error::Usage(_)) => 2,
            Self::Session(_) => code::FAILED,
            Self::Command(_, error) if error.kind() == std::io::ErrorKind::NotFound => code::NOT_FOUND,
            Self::Command(..) => code::NOT_EXECUTABLE,
        }
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Session(error) => error.fmt(f),
            Self::Command(command, error) => write!(f, "cannot run {}: {error}", command.display()),
        }
    }
}

/// Opens the kernel's device files. Beside another reader a recording gets copies of the records, and so do `stat`, for
/// the events by task, and `probe`.
fn open_source<S: System>(system: &mut S, wanted: &Record) -> Result<KprofDevice<S>, Error> {
    match KprofDevice::open(system, &wanted.scheme) {
        Err(Error::Busy { .. }) => {}
        other => return other,
    }
    match wanted.what {
        What::Stat(_) => match KprofDevice::open_copies(system, &wanted.scheme) {
            // One process at a time gets copies. The counters are for everybody; the table by task is left out.
            Err(Error::Busy { .. }) => KprofDevice::open_counters(system, &wanted.scheme),
            other => other,
        },
        // What the kernel counts is in the meta stream.
        What::Probe(_) => KprofDevice::open_copies(system, &wanted.scheme),
        What::Record => {
            let mut device = KprofDevice::open_copies(system, &wanted.scheme)?;
            // If the other reader is a recording too, it has the lease, and this one ends before it touches a file.
            device.command(system, &Command::Lease.to_string())?;
            if !wanted.quiet {
                let mut ctl = Ctl::default();
                device.observe(system, &mut ctl)?;
                system.say(format_args!(
                    "kprof-record: process {} reads the samples too (profiled, for example), and its file gets the \
                     same ones",
                    ctl.fact(Fact::Reader).unwrap_or("?")
                ));
            }
            Ok(device)
        }
    }
}

/// Samples while the command runs, and prints the account or the counts to `talk`. If that `is_terminal`, it also
/// prints the progress once a second. Returns the exit code of the (last) command, or 0 without a command.
///
/// # Errors
/// [`Failed`]: the session's error, returned after the command has ended; or the reason why the command could not be
/// started.
pub fn record<S: System>(
    system: &mut S,
    wanted: &Record,
    signals: &Signals,
    talk: &mut impl Write,
    is_terminal: bool,
) -> Result<u8, Failed> {
    let mut progress = Progress::new(is_terminal && !wanted.quiet);
    let counting = match &wanted.what {
        What::Record => {
            let run = run(system, wanted, signals, |totals, ctl, _| {
                progress.show(talk, totals, ctl);
                COMMAND_WAIT
            });
            progress.clear(talk);
            let run = run?;
            say_unknown_points(system, wanted, &run.ctl);
            let account = Account(&run.ctl);
            // If the terminal is gone, the file is there nevertheless.
            let _ = account.write_account(talk, &run.totals, &wanted.options.output, run.elapsed, wanted.quiet);
            return Ok(run.code);
        }
        What::Probe(probing) => return probe::probe(system, wanted, probing, signals, talk),
        What::Stat(counting) => counting,
    };
    if let Some(length) = counting.interval {
        let mut intervals = Intervals::new(length, counting.separator.clone());
        let run = run(system, wanted, signals, |_, ctl, elapsed| {
            if elapsed >= intervals.next {
                let _ = intervals.write(talk, ctl, elapsed);
            }
            // The kernel takes whole milliseconds, and a wait of 0 would return at once.
            COMMAND_WAIT.min(intervals.next.saturating_sub(elapsed).max(Pace::SHORTEST))
        })?;
        let _ = intervals.write(talk, &run.ctl, run.elapsed);
        return Ok(run.code);
    }
    let mut runs = Vec::new();
    for _ in 0..counting.repeat.unwrap_or(1) {
        let run = run(system, wanted, signals, |totals, ctl, _| {
            progress.show(talk, totals, ctl);
            COMMAND_WAIT
        });
        progress.clear(talk);
        let run = run?;
        // A run that a signal has cut short would make the means wrong.
        if !signals.stop_wanted() || runs.is_empty() {
            runs.push(run);
        }
        if signals.stop_wanted() {
            break;
        }
    }
    if let Some(last) = runs.last() {
        say_unknown_points(system, wanted, &last.ctl);
    }
    let _ = stat::write(talk, counting, &wanted.command, &runs);
    Ok(runs.last().map_or(0, |run| run.code))
}

/// Says which points of the command line were never hit: the name may be wrong, or that of an event of perf.
fn say_unknown_points(system: &mut impl System, wanted: &Record, ctl: &Ctl) {
    for command in &wanted.options.commands {
        if let Ok(Command::Event(points, _)) = Command::parse(command.as_bytes())
            && !ctl.points().any(|(name, ..)| points.contains(name))
        {
            system.say(format_args!(
                "kprof-record: no point `{}` was hit since boot; `kprof-record list` shows the names (samples by time \
                 need no -e)",
                points.as_str()
            ));
        }
    }
}

/// What one run of the command has given.
#[derive(Debug, Default)]
pub struct Run {
    /// Its exit code, or 0 without a command.
    pub code: u8,
    /// How long it took.
    pub elapsed: Duration,
    /// What was written.
    pub totals: Totals,
    /// The counters since its beginning.
    pub ctl: Ctl,
    /// Events by task.
    pub tasks: Vec<(String, [u64; EVENT_NAMES.len()])>,
    /// Hits of points; `None` if they are not known, because other programs read what the kernel says of them.
    pub points: Option<ByPoint>,
}

/// Runs the command once, in a session of its own. `each_round` also gets the time since the beginning, and returns the
/// longest wait before the next round.
fn run<S: System>(
    system: &mut S,
    wanted: &Record,
    signals: &Signals,
    mut each_round: impl FnMut(&Totals, &Ctl, Duration) -> Duration,
) -> Result<Run, Failed> {
    let source = open_source(system, wanted)?;
    if wanted.what.writes_a_file() {
        SampleFile::keep_older(system, &wanted.options.output)?;
    }
    let mut session = Session::open(system, source, wanted.options.clone(), signals.clone())?;
    signals.forget_child();
    let began = Instant::now();
    let mut child = None;
    if let Some((program, arguments)) = wanted.command.split_first() {
        match std::process::Command::new(program).args(arguments).spawn() {
            Ok(started) => child = Some(started),
            Err(error) => {
                signals.stop();
                session.run(|_, _| None)?;
                return Err(Failed::Command(program.clone(), error));
            }
        }
    }
    // What is read after the end of the command is not part of its time.
    let mut elapsed = None;
    let ended = session.run(|totals, ctl| {
        let longest = each_round(totals, ctl, began.elapsed());
        let goes_on = child.as_mut().is_none_or(is_running);
        elapsed = (!goes_on).then(|| began.elapsed());
        goes_on.then_some(longest)
    });
    // Also after an error of the session: this process does not end before its command. A signal that ends the
    // recording ends the command too, as with perf.
    let status = child.map(|mut child| {
        if signals.stop_wanted() && is_running(&mut child) {
            // If it has ended meanwhile, there is nothing to end.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        child.wait()
    });
    let totals = ended?;
    let elapsed = elapsed.unwrap_or_else(|| began.elapsed());
    let code = status.map_or(0, |status| status.map_or(code::FAILED, exit_code));
    let (ctl, tasks, points) = (session.ctl().clone(), session.by_task().table(), session.by_point().cloned());
    Ok(Run { code, elapsed, totals, ctl, tasks, points })
}

fn is_running(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

/// The exit code by the shell's convention.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(code::FAILED)
}

/// A progress line on a terminal, once a second.
struct Progress {
    is_on: bool,
    began: Instant,
    last: Instant,
    samples: u64,
}

impl Progress {
    fn new(is_on: bool) -> Self {
        let now = Instant::now();
        Self { is_on, began: now, last: now, samples: 0 }
    }

    fn show(&mut self, talk: &mut impl Write, totals: &Totals, ctl: &Ctl) {
        let since = self.last.elapsed();
        if !self.is_on || since < Duration::from_secs(1) {
            return;
        }
        let rate = (totals.samples - self.samples) as f64 / since.as_secs_f64();
        let lost: u64 = ctl.cpus().map(|(_, counters)| counters.lost()).sum();
        let seconds = self.began.elapsed().as_secs();
        // If the terminal is gone, the session continues.
        let _ = write!(talk, "\r\x1b[K{seconds} s  {} samples  {rate:.0}/s  {lost} lost", totals.samples);
        let _ = talk.flush();
        (self.last, self.samples) = (Instant::now(), totals.samples);
    }

    fn clear(&self, talk: &mut impl Write) {
        if self.is_on {
            let _ = write!(talk, "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_shown_once_a_second_with_the_rate_since_the_last_time() {
        let shown = |progress: &mut Progress, samples| {
            let (mut talk, totals) = (Vec::new(), Totals { samples, ..Totals::default() });
            progress.show(&mut talk, &totals, &Ctl::parse("cpu.1.lost-full 7\n"));
            String::from_utf8(talk).unwrap()
        };
        let earlier = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        let mut progress = Progress { is_on: true, began: earlier, last: earlier, samples: 100 };
        let text = shown(&mut progress, 300);
        assert!(text.contains("  300 samples  ") && text.ends_with("/s  7 lost"), "{text:?}");
        let rate: f64 = text.split("  ").nth(2).and_then(|rate| rate.strip_suffix("/s")).unwrap().parse().unwrap();
        // 200 samples in at least two seconds, and in at most the time until now.
        let least = 200.0 / earlier.elapsed().as_secs_f64() - 0.5;
        assert!(least <= rate && rate <= 100.0, "{text:?}");
        assert_eq!(progress.samples, 300);
        progress.last = Instant::now();
        assert_eq!(shown(&mut progress, 400), "");
        progress = Progress { is_on: false, began: earlier, last: earlier, samples: 0 };
        assert_eq!(shown(&mut progress, 400), "");
        let mut talk = Vec::new();
        progress.clear(&mut talk);
        assert!(talk.is_empty());
        Progress { is_on: true, ..progress }.clear(&mut talk);
        assert!(!talk.is_empty());
    }
}
