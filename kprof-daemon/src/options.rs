//! The command line of `profiled`.
//!
//! In: arguments. Out: what to read, where to write, how long. Runs in: user process. An unknown option is refused, and
//! the error names it.

use crate::drain_loop::Options;
use crate::error::Error;
use crate::write::compose::Form;
use crate::write::sample_file::OnFull;
use lexopt::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What `profiled --help` prints.
pub const PROFILED_HELP: &str = "\
profiled: drains the kernel's profiling rings into a file, nothing lost, nothing double

Usage: profiled [options]

  -o, --output FILE    the sample file [/root/profiling.txt]; `-` writes to standard output
      --scheme DIR     folder with ctl-profiling and profiling-N [/scheme/debug]
      --source PATH    reads a recording instead: profiling-N.bin, or a folder of them with contexts.txt
      --binary         the binary form, for high rates
      --plain          without markers, for Redox's own tools
      --start          starts sampling, and stops it at the end
      --duration TIME  ends after TIME (90, 1.5s, 200ms, 10m, 2h)
      --on-full WHAT   on a full disk: `wait` for room [wait] or `stop`
      --max-size SIZE  the greatest length of the file (64K, 10M, 1G); the session ends there, unless
      --rotate N       it becomes FILE.1, that one FILE.2, up to N, and a new file begins
      --stream DEVICE  sends the same to a character device too: serial lines, or chunks with --binary
  -q, --quiet          says only what went wrong
  -h, --help           prints this
  -V, --version        prints the version

A file that is there is continued after its last finished batch. SIGTERM and SIGINT write the rest and the account,
SIGHUP opens the file anew (after it was renamed).

Exit codes: 0 all written, 2 usage, 3 no source, 4 source or file in use, 5 source gone, 6 command refused,
7 source not understood (damaged text, newer version), 8 file cannot be written, 9 disk full.

Example:
  profiled -o /root/profiling.txt &
  echo start > /scheme/debug/ctl-profiling
";

/// A parsed command line.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// What to do with the records.
    pub options: Options,
    /// The folder of the device files.
    pub scheme: PathBuf,
    /// A recording to read instead of the device files.
    pub recording: Option<PathBuf>,
    /// Whether only errors are printed.
    pub quiet: bool,
}

/// What the command line asks for.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// A session.
    Session(Box<Profiled>),
    /// A text on standard output, nothing else.
    Text(String),
}

/// Parses the arguments of `profiled`, without the program's own name.
///
/// # Errors
/// [`Error::Usage`] names the option.
pub fn profiled(arguments: impl IntoIterator<Item = OsString>) -> Result<Wanted, Error> {
    let usage = |error: lexopt::Error| Error::Usage(error.to_string());
    let mut wanted = Profiled {
        options: Options::new("/root/profiling.txt"),
        scheme: "/scheme/debug".into(),
        recording: None,
        quiet: false,
    };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Short('o') | Long("output") => wanted.options.output = parser.value().map_err(usage)?.into(),
            Long("scheme") => wanted.scheme = parser.value().map_err(usage)?.into(),
            Long("source") => wanted.recording = Some(parser.value().map_err(usage)?.into()),
            Long("plain") => wanted.options.form = Form::Plain,
            Long("binary") => wanted.options.form = Form::Binary,
            Long("start") => wanted.options.commands.push("start".into()),
            Long("duration") => {
                wanted.options.duration = Some(duration(&parser.value().and_then(|v| v.string()).map_err(usage)?)?);
            }
            Long("max-size") => {
                let text = parser.value().and_then(|v| v.string()).map_err(usage)?;
                wanted.options.max_bytes = Some(bytes(&text)?);
            }
            Long("rotate") => {
                wanted.options.keep_files = parser.value().and_then(|v| v.parse()).map_err(usage)?;
            }
            Long("stream") => wanted.options.live = Some(parser.value().map_err(usage)?.into()),
            Long("on-full") => {
                wanted.options.on_full = match parser.value().and_then(|v| v.string()).map_err(usage)?.as_str() {
                    "wait" => OnFull::Wait,
                    "stop" => OnFull::Stop,
                    other => return Err(Error::Usage(format!("--on-full {other}: `wait` or `stop`"))),
                }
            }
            Short('q') | Long("quiet") => wanted.quiet = true,
            Short('h') | Long("help") => return Ok(Wanted::Text(PROFILED_HELP.into())),
            Short('V') | Long("version") => {
                return Ok(Wanted::Text(concat!("profiled ", env!("CARGO_PKG_VERSION"), "\n").into()));
            }
            other => return Err(usage(other.unexpected())),
        }
    }
    if wanted.options.keep_files > 0 && wanted.options.max_bytes.is_none() {
        return Err(Error::Usage("--rotate says how many files, --max-size when: give both".into()));
    }
    Ok(Wanted::Session(Box::new(wanted)))
}

/// Parses a length: a number with `K`, `M` or `G` (powers of 1024), or bytes if there is no unit.
///
/// # Errors
/// [`Error::Usage`] for anything else, and for 0.
pub fn bytes(text: &str) -> Result<u64, Error> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "B" => Some(1_u64),
        "K" | "k" => Some(1 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        _ => None,
    };
    let value = digits.parse().ok().zip(factor).and_then(|(number, factor): (u64, u64)| number.checked_mul(factor));
    value.filter(|bytes| *bytes > 0).ok_or_else(|| Error::Usage(format!("`{text}` is no size: a number and K, M or G")))
}

/// Parses a time: a number with `ms`, `s`, `m` or `h`, or seconds if there is no unit.
///
/// # Errors
/// [`Error::Usage`] for anything else, for zero, for a negative time, and for more than a century.
pub fn duration(text: &str) -> Result<Duration, Error> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => 0.0,
    };
    let seconds = digits.parse::<f64>().ok().map(|number| number * factor);
    match seconds.filter(|seconds| *seconds > 0.0 && *seconds < 3.2e9) {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
        None => Err(Error::Usage(format!("`{text}` is no time: a number and ms, s, m or h"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(duration("90").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("200ms").unwrap(), Duration::from_millis(200));
        assert_eq!(duration("1.5m").unwrap(), Duration::from_secs(90));
        for bad in ["", "s", "-1s", "0", "1d", "nan", "inf", "1e300h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!(bytes("10M").unwrap(), 10 << 20);
        assert_eq!(bytes("7").unwrap(), 7);
        for bad in ["", "0", "M", "1T", "-1", "99999999999G"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_unknown_option_is_named() {
        let error = profiled(["--frobnicate".into()]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--frobnicate"), "{error}");
    }
}
