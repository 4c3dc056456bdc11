//! The commands that are written to ctl, one per line.
//!
//! In: a line. Out: a command with its values in range, or what was expected instead. A [`Command`] also prints itself
//! as the line that it was parsed from. Runs in: any. Only the kernel decides whether a command fits its state.

mod argument;
mod probe;

use crate::point::{PointState, Points};
use crate::settings::Setting;
pub use crate::settings::{MAX_DEPTH, MAX_HZ, MAX_HZ_BY_FORCE, MAX_LOCKUP_MS, Mode};
use crate::text::{EVENT_PREFIX, decimal};
pub use crate::verb::{BadCommand, Verb};
pub use argument::{ArgumentType, ArgumentTypes, Condition, EXPECTED_CONDITION, MAX_CONDITIONS};
use core::fmt;
pub use probe::{ProbePlaces, Removed};

/// A longer `wait` is shortened to this many milliseconds.
pub const MAX_WAIT_MS: u64 = 60_000;
/// Bytes of the longest name of a mark.
pub const MAX_NAME: usize = 1024;

/// One of the streams of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamName {
    /// The samples of this CPU.
    Cpu(usize),
    /// The recorded hits of points on this CPU.
    Event(usize),
    /// Task names, images, marks, settings, counts of events by task.
    Meta,
}

impl fmt::Display for StreamName {
    /// Writes the name of the device file of the stream.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(cpu) => write!(f, "profiling-{cpu}"),
            Self::Event(cpu) => write!(f, "profiling-{EVENT_PREFIX}{cpu}"),
            Self::Meta => f.write_str("profiling-meta"),
        }
    }
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `protocol 1` claims the streams, `protocol 0` gives them up.
    Protocol(bool),
    /// `copy 1` begins to read copies, `copy 0` ends it.
    Copy(bool),
    /// `lease`
    Lease,
    /// `start`, or `1`
    Start,
    /// `stop`, or `0`
    Stop,
    /// Sets a setting: `hz N`, `include idle`, ...
    Set(Setting),
    /// `cpus LIST` or `cpus all`
    Cpus(CpuList<'a>),
    /// `freeze`
    Freeze,
    /// `thaw`
    Thaw,
    /// `mark NAME`
    Mark(&'a str),
    /// `flush`
    Flush,
    /// `event NAME off`, `event NAME count`, `event NAME record`, `event NAME every N`, `event NAME by-weight N`
    Event(Points<'a>, PointState),
    /// `probe ADDRESS EXIT... args TYPE,... if CONDITION...`
    Probe(ProbePlaces<'a>),
    /// `unprobe ADDRESS`, `unprobe lease` or `unprobe all`
    Unprobe(Removed),
    /// `ack STREAM POSITION`
    Ack(StreamName, u64),
    /// `wait MS`
    WaitMs(u64),
}

/// A checked list of CPUs. It is kept as text, because there is no memory for a set of unknown size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuList<'a>(&'a str);

impl CpuList<'_> {
    /// Whether the list contains this CPU.
    pub fn contains(self, cpu: usize) -> bool {
        self.0 == "all" || self.0.split(',').any(|number| decimal(number) == Some(cpu))
    }

    /// The greatest CPU number in the list.
    pub fn greatest(self) -> Option<usize> {
        self.0.split(',').filter_map(decimal).max()
    }
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.verb();
        let word = |f: &mut fmt::Formatter<'_>, value: &str| write!(f, "{verb} {value}");
        match *self {
            Self::Lease | Self::Start | Self::Stop | Self::Freeze | Self::Thaw | Self::Flush => write!(f, "{verb}"),
            Self::Protocol(yes) | Self::Copy(yes) => word(f, if yes { "1" } else { "0" }),
            Self::Set(setting) => setting.fmt(f),
            Self::Cpus(CpuList(list)) => word(f, list),
            Self::Mark(name) => word(f, name),
            Self::Ack(StreamName::Cpu(cpu), position) => write!(f, "{verb} {cpu} {position}"),
            Self::Ack(StreamName::Event(cpu), position) => write!(f, "{verb} {EVENT_PREFIX}{cpu} {position}"),
            Self::Ack(StreamName::Meta, position) => write!(f, "{verb} meta {position}"),
            Self::Event(points, state) => write!(f, "{verb} {} {state}", points.as_str()),
            Self::Probe(places) => write!(f, "{verb} {places}"),
            Self::Unprobe(removed) => write!(f, "{verb} {removed}"),
            Self::WaitMs(ms) => write!(f, "{verb} {ms}"),
        }
    }
}

impl<'a> Command<'a> {
    /// The first word of the command.
    pub const fn verb(&self) -> Verb {
        match self {
            Self::Protocol(_) => Verb::Protocol,
            Self::Copy(_) => Verb::Copy,
            Self::Lease => Verb::Lease,
            Self::Start => Verb::Start,
            Self::Stop => Verb::Stop,
            Self::Set(setting) => setting.verb(),
            Self::Cpus(_) => Verb::Cpus,
            Self::Freeze => Verb::Freeze,
            Self::Thaw => Verb::Thaw,
            Self::Mark(_) => Verb::Mark,
            Self::Flush => Verb::Flush,
            Self::Event(..) => Verb::Event,
            Self::Probe(_) => Verb::Probe,
            Self::Unprobe(_) => Verb::Unprobe,
            Self::Ack(..) => Verb::Ack,
            Self::WaitMs(_) => Verb::Wait,
        }
    }

    /// Parses a line, given without its line end.
    ///
    /// # Errors
    /// [`BadCommand`] says what was expected.
    ///
    /// ```
    /// use kprof_format::command::{BadCommand, Command};
    /// use kprof_format::settings::Setting;
    /// let command = Command::parse(b"hz 50000 force").unwrap();
    /// assert_eq!(command, Command::Set(Setting::Hz(50_000)));
    /// assert_eq!(command.to_string(), "hz 50000 force");
    /// assert_eq!(Command::parse(b"protocol 2"), Err(BadCommand::Value("protocol 0 or 1")));
    /// ```
    pub fn parse(line: &'a [u8]) -> Result<Self, BadCommand> {
        let line = core::str::from_utf8(line).map_err(|_| BadCommand::Value("a line of UTF-8"))?;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        let verb = match (word, rest) {
            ("1", "") => Verb::Start,
            ("0", "") => Verb::Stop,
            _ => Verb::of(word).ok_or(BadCommand::Unknown)?,
        };
        let wrong = |expected| Err(BadCommand::Value(expected));
        let without_arguments = |command| if rest.is_empty() { Ok(command) } else { Err(BadCommand::Unknown) };
        let one_of = |yes, no, expected| match rest {
            _ if rest == yes => Ok(true),
            _ if rest == no => Ok(false),
            _ => Err(BadCommand::Value(expected)),
        };
        if let Some(setting) = Setting::parse(verb, rest) {
            return setting.map(Self::Set);
        }
        match verb {
            Verb::Start => without_arguments(Self::Start),
            Verb::Stop => without_arguments(Self::Stop),
            Verb::Lease => without_arguments(Self::Lease),
            Verb::Freeze => without_arguments(Self::Freeze),
            Verb::Thaw => without_arguments(Self::Thaw),
            Verb::Flush => without_arguments(Self::Flush),
            Verb::Protocol => one_of("1", "0", "protocol 0 or 1").map(Self::Protocol),
            Verb::Copy => one_of("1", "0", "copy 0 or 1").map(Self::Copy),
            Verb::Cpus if rest == "all" || rest.split(',').all(|number| decimal::<usize>(number).is_some()) => {
                Ok(Self::Cpus(CpuList(rest)))
            }
            Verb::Cpus => wrong("cpus all, or numbers with commas"),
            Verb::Mark if !rest.is_empty() && rest.len() <= MAX_NAME => Ok(Self::Mark(rest)),
            Verb::Mark => wrong("mark NAME, 1 to 1024 bytes"),
            Verb::Event => {
                let event = rest.split_once(' ').and_then(|(points, state)| {
                    Some(Self::Event(Points::of(points)?, PointState::of(state.trim_start())?))
                });
                event.ok_or(BadCommand::Value("event NAME off|count|record|every N|by-weight N"))
            }
            Verb::Probe => ProbePlaces::parse(rest).map(Self::Probe).ok_or(BadCommand::Value(probe::EXPECTED)),
            Verb::Unprobe => Removed::parse(rest)
                .map(Self::Unprobe)
                .ok_or(BadCommand::Value("unprobe all, unprobe lease, or unprobe ADDRESS, hexadecimal")),
            Verb::Ack => ack(rest),
            Verb::Wait => decimal(rest)
                .map(|ms: u64| Self::WaitMs(ms.min(MAX_WAIT_MS)))
                .ok_or(BadCommand::Value("wait MILLISECONDS")),
            // A verb of a setting, which `Setting::parse` knows.
            Verb::Hz
            | Verb::Interval
            | Verb::Seed
            | Verb::Include
            | Verb::Exclude
            | Verb::Backoff
            | Verb::Depth
            | Verb::Mode
            | Verb::Lockup => Err(BadCommand::Unknown),
        }
    }
}

fn ack(rest: &str) -> Result<Command<'static>, BadCommand> {
    let parts = rest.split_once(' ').and_then(|(stream, position)| {
        let stream = match stream.strip_prefix(EVENT_PREFIX) {
            Some(cpu) => StreamName::Event(decimal(cpu)?),
            None if stream == "meta" => StreamName::Meta,
            None => StreamName::Cpu(decimal(stream)?),
        };
        Some((stream, decimal(position.trim_start())?))
    });
    parts
        .map(|(stream, position)| Command::Ack(stream, position))
        .ok_or(BadCommand::Value("ack CPU|event-CPU|meta POSITION"))
}

#[cfg(test)]
mod tests;
