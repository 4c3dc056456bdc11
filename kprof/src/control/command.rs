//! One line of ctl, taken apart. Pure. In: bytes. Out: a command with its values in range, or what was expected
//! instead.

use crate::config::Mode;
use crate::errors::{CommandError, MAX_DEPTH, StreamName};

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command<'a> {
    Protocol(bool),
    Start,
    Stop,
    Hz(u32),
    RandomInterval(bool),
    Seed(u64),
    /// Bits: 1 idle, 2 user; kept or dropped.
    Include(bool, Who),
    Backoff(bool),
    Depth(u16),
    Cpus(CpuList<'a>),
    Mode(Mode),
    Freeze,
    Thaw,
    Mark(&'a str),
    Ack(StreamName, u64),
    WaitMs(u64),
    Lease,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Idle,
    User,
}

/// A checked list of CPUs, kept as its text: there is no memory for a set of unknown size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuList<'a>(&'a str);

impl CpuList<'_> {
    pub(crate) fn contains(self, cpu: usize) -> bool {
        self.0 == "all" || self.0.split(',').any(|number| number.parse() == Ok(cpu))
    }

    /// The greatest CPU named.
    pub(crate) fn greatest(self) -> Option<usize> {
        self.0.split(',').filter_map(|number| number.parse().ok()).max()
    }
}

/// The rate above which `force` is needed.
const MAX_HZ: u32 = 20_000;
/// The rate that nothing goes above.
const MAX_HZ_BY_FORCE: u32 = 100_000;
/// A longer `wait` is shortened to this.
const MAX_WAIT_MS: u64 = 60_000;
/// Longest name of a mark.
const MAX_NAME: usize = crate::state::meta::MAX_TEXT;

/// Takes a line without its end apart.
pub(crate) fn parse(line: &[u8]) -> Result<Command<'_>, CommandError> {
    let line = core::str::from_utf8(line).map_err(|_| CommandError::Value("a line of UTF-8"))?;
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    match (verb, rest) {
        ("start" | "1", "") => Ok(Command::Start),
        ("stop" | "0", "") => Ok(Command::Stop),
        ("lease", "") => Ok(Command::Lease),
        ("freeze", "") => Ok(Command::Freeze),
        ("thaw", "") => Ok(Command::Thaw),
        ("protocol", "0") => Ok(Command::Protocol(false)),
        ("protocol", "1") => Ok(Command::Protocol(true)),
        ("protocol", _) => Err(CommandError::Value("protocol 0 or 1")),
        ("hz", _) => hz(rest),
        ("interval", "random") => Ok(Command::RandomInterval(true)),
        ("interval", "fixed") => Ok(Command::RandomInterval(false)),
        ("interval", _) => Err(CommandError::Value("interval random or fixed")),
        ("seed", _) => rest.parse().map(Command::Seed).map_err(|_| CommandError::Value("seed 0 to 2^64-1")),
        ("include" | "exclude", _) => {
            let who = match rest {
                "idle" => Who::Idle,
                "user" => Who::User,
                _ => return Err(CommandError::Value("idle or user")),
            };
            Ok(Command::Include(verb == "include", who))
        }
        ("backoff", "on") => Ok(Command::Backoff(true)),
        ("backoff", "off") => Ok(Command::Backoff(false)),
        ("backoff", _) => Err(CommandError::Value("backoff on or off")),
        ("depth", _) => match rest.parse() {
            Ok(depth) if (1..=MAX_DEPTH).contains(&depth) => Ok(Command::Depth(depth)),
            _ => Err(CommandError::Value("depth 1 to 250")),
        },
        ("cpus", _) => cpus(rest),
        ("mode", "drop") => Ok(Command::Mode(Mode::Drop)),
        ("mode", "overwrite") => Ok(Command::Mode(Mode::Overwrite)),
        ("mode", _) => Err(CommandError::Value("mode drop or overwrite")),
        ("mark", name) if !name.is_empty() && name.len() <= MAX_NAME => Ok(Command::Mark(name)),
        ("mark", _) => Err(CommandError::Value("mark NAME, 1 to 1024 bytes")),
        ("ack", _) => ack(rest),
        ("wait", _) => rest
            .parse()
            .map(|ms: u64| Command::WaitMs(ms.min(MAX_WAIT_MS)))
            .map_err(|_| CommandError::Value("wait MILLISECONDS")),
        _ => Err(CommandError::Unknown),
    }
}

fn hz(rest: &str) -> Result<Command<'static>, CommandError> {
    let (number, most) = match rest.strip_suffix(" force") {
        Some(number) => (number.trim_end(), MAX_HZ_BY_FORCE),
        None => (rest, MAX_HZ),
    };
    match number.parse() {
        Ok(hz) if (1..=most).contains(&hz) => Ok(Command::Hz(hz)),
        _ => Err(CommandError::Value("hz 1 to 20000, or up to 100000 with `force` behind it")),
    }
}

fn cpus(rest: &str) -> Result<Command<'_>, CommandError> {
    let good = rest == "all" || rest.split(',').all(|number| number.parse::<usize>().is_ok());
    if good { Ok(Command::Cpus(CpuList(rest))) } else { Err(CommandError::Value("cpus all, or numbers with commas")) }
}

fn ack(rest: &str) -> Result<Command<'static>, CommandError> {
    let parts = rest.split_once(' ').and_then(|(stream, position)| {
        let stream = if stream == "meta" { StreamName::Meta } else { StreamName::Cpu(stream.parse().ok()?) };
        Some((stream, position.trim_start().parse().ok()?))
    });
    parts.map(|(stream, position)| Command::Ack(stream, position)).ok_or(CommandError::Value("ack CPU|meta POSITION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_contract_is_understood() {
        let cases: [(&str, Command<'_>); 16] = [
            ("start", Command::Start),
            ("1", Command::Start),
            ("0", Command::Stop),
            ("hz 20000", Command::Hz(20_000)),
            ("hz 100000 force", Command::Hz(100_000)),
            ("interval fixed", Command::RandomInterval(false)),
            ("seed 18446744073709551615", Command::Seed(u64::MAX)),
            ("include idle", Command::Include(true, Who::Idle)),
            ("exclude user", Command::Include(false, Who::User)),
            ("depth 250", Command::Depth(250)),
            ("mark two words", Command::Mark("two words")),
            ("ack 3 1024", Command::Ack(StreamName::Cpu(3), 1024)),
            ("ack meta 8", Command::Ack(StreamName::Meta, 8)),
            ("wait 100", Command::WaitMs(100)),
            ("wait 18446744073709551615", Command::WaitMs(60_000)),
            ("lease", Command::Lease),
        ];
        for (line, command) in cases {
            assert_eq!(parse(line.as_bytes()), Ok(command), "{line}");
        }
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for line in [
            "",
            "begin",
            "start now",
            "hz",
            "hz 0",
            "hz 20001",
            "hz 100001 force",
            "hz -1",
            "depth 0",
            "depth 251",
            "cpus",
            "cpus 1,,2",
            "cpus a",
            "mark",
            "ack 1",
            "ack x 5",
            "ack 1 -5",
            "wait",
            "protocol 2",
            "interval",
            "include all",
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
        assert!(parse(b"mark \xff").is_err());
    }

    #[test]
    fn a_cpu_list_knows_its_members() {
        let Ok(Command::Cpus(list)) = parse(b"cpus 1,3") else { panic!("not a list") };
        assert_eq!([0, 1, 2, 3].map(|cpu| list.contains(cpu)), [false, true, false, true]);
        assert_eq!(list.greatest(), Some(3));
    }
}
