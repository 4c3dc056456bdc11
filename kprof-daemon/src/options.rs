//! The command line of `profiled`, and what both programs share: values, the sample file, errors, manual pages.
//!
//! In: arguments. Out: what to read, where to write, how long. Runs in: user process. An unknown option is refused, and
//! the error names it.

use crate::drain_loop;
use crate::error::Error;
use crate::write::append::OnFull;
use crate::write::compose::Form;
use crate::write::found::Maker;
use clap::{Args, CommandFactory, Parser, Subcommand};
use kprof_format::command::Command;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

const PROFILED_NOTES: &str = "\
A file that is there is continued after its last finished batch. SIGTERM and SIGINT write the rest and the account,
SIGHUP opens the file anew (after it was renamed).

Exit codes: 0 all written, 2 usage, 3 no source, 4 source or file in use, 5 source gone, 6 command refused,
7 source not understood (damaged text, newer version), 8 file cannot be written, 9 disk full.

Example:
  profiled -o /root/profiling.txt &
  echo start > /scheme/debug/ctl-profiling";

/// The width of help texts.
pub(crate) const WIDTH: usize = 120;

/// Drains the kernel's profiling rings into a file, nothing lost, nothing double
#[derive(Debug, Parser)]
#[command(name = "profiled", version, after_help = PROFILED_NOTES, term_width = WIDTH, subcommand_value_name = "VERB")]
#[command(args_override_self = true, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(subcommand_help_heading = "Verbs")]
struct Cli {
    #[command(subcommand)]
    manual: Option<Manual>,
    #[command(flatten)]
    file: SampleFile,
    /// Starts sampling, and stops it at the end
    #[arg(long)]
    start: bool,
    /// Writes the process id there when the session is ready; removed at the end
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// With --max-size: the file becomes FILE.1, that one FILE.2, up to N, and a new file begins
    #[arg(long, value_name = "N", default_value_t, hide_default_value = true)]
    rotate: u32,
    #[command(flatten)]
    place: Place,
}

/// Where the kernel is, and what is said.
#[derive(Args, Clone, Debug)]
pub(crate) struct Place {
    /// Folder with ctl-profiling and profiling-N
    #[arg(long, value_name = "DIR", default_value = "/scheme/debug")]
    pub scheme: PathBuf,
    /// Says only what went wrong
    #[arg(short, long)]
    pub quiet: bool,
}

/// What is written, where, and when it ends.
#[derive(Args, Clone, Debug)]
pub(crate) struct SampleFile {
    /// The sample file, or `-` [profiled: /root/profiling.txt, kprof-record: kprof-record.txt]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The binary form, for high rates
    #[arg(long)]
    binary: bool,
    /// On a full disk: `wait` for room, or `stop`
    #[arg(long, value_name = "WHAT", default_value = "wait", value_parser = ["wait", "stop"], hide_possible_values = true)]
    on_full: String,
    /// Ends after TIME (90, 1.5s, 200ms, 10m, 2h)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// The greatest length of the file (64K, 10M, 1G); the session ends there
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    max_size: Option<u64>,
}

impl SampleFile {
    /// The options of a session that writes this file.
    pub fn options(self, maker: Maker) -> drain_loop::Options {
        let (duration, max_bytes) = (self.duration, self.max_size);
        let form = if self.binary { Form::Binary } else { Form::Text };
        let on_full = if self.on_full == "stop" { OnFull::Stop } else { OnFull::Wait };
        let output = self.output.unwrap_or_else(|| maker.default_output().into());
        drain_loop::Options { maker, form, on_full, duration, max_bytes, ..drain_loop::Options::new(output) }
    }
}

/// Verbs that only print a text.
#[derive(Debug, Subcommand)]
pub(crate) enum Manual {
    /// Completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The manual page (roff), or that of a verb
    Man {
        /// The verb
        verb: Option<String>,
    },
}

impl Manual {
    /// The text of the program that `Cli` is the command line of. `section` is that of its manual page.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no such verb.
    pub fn text<Cli: CommandFactory>(self, section: &str) -> Result<String, Error> {
        let mut command = Cli::command();
        let name = command.get_name().to_owned();
        let mut text = Vec::new();
        match self {
            Self::Completions { shell } => clap_complete::generate(shell, &mut command, name, &mut text),
            Self::Man { verb } => {
                command.build();
                if let Some(verb) = verb {
                    let found = command.find_subcommand(&verb).cloned();
                    command = found.ok_or_else(|| Error::Usage(format!("{name} has no verb `{verb}`")))?;
                }
                // A `Vec` takes every write.
                let _ = clap_mangen::Man::new(command).section(section).render(&mut text);
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// A parsed command line.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// What to do with the records.
    pub options: drain_loop::Options,
    /// The folder of the device files.
    pub scheme: PathBuf,
    /// A file for the process id, which says that the session is ready.
    pub pid_file: Option<PathBuf>,
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
    let cli: Cli = match parsed(arguments) {
        Ok(cli) => cli,
        Err(other) => return other.map(Wanted::Text),
    };
    if let Some(manual) = cli.manual {
        return manual.text::<Cli>("8").map(Wanted::Text);
    }
    let mut options = cli.file.options(Maker::Profiled);
    options.keep_files = cli.rotate;
    if cli.start {
        options.commands.push(Command::Start.to_string());
    }
    if options.keep_files > 0 && options.max_bytes.is_none() {
        return Err(Error::Usage("--rotate says how many files, --max-size when: give both".into()));
    }
    let Place { scheme, quiet } = cli.place;
    Ok(Wanted::Session(Box::new(Profiled { options, scheme, pid_file: cli.pid_file, quiet })))
}

/// Parses arguments without the program's own name. If there is nothing to run, gives the text for standard output
/// (`--help`, `--version`) or the error.
pub(crate) fn parsed<Cli: Parser>(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, Result<String, Error>> {
    let name = Cli::command().get_name().into();
    Cli::try_parse_from([name].into_iter().chain(arguments)).map_err(|error| {
        let text = error.render().to_string();
        if !error.use_stderr() {
            return Ok(text);
        }
        // One line: the sentence and its hints, without the usage after them.
        let text = text.split("\n\nUsage:").next().unwrap_or_default().split("\n\nFor more").next().unwrap_or_default();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        Err(Error::Usage(lines.trim_start_matches("error: ").replace(":; ", ": ")))
    })
}

/// Writes a text to standard output. A closed pipe, such as that of `head`, is no error.
///
/// # Errors
/// [`Error::Write`], for example if standard output is a file on a full disk.
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Write { path: "standard output".into(), safe_bytes: 0, during: "writing", cause })
        }
        _ => Ok(()),
    }
}

/// Parses a length: a number with `K`, `M` or `G` (powers of 1024), or bytes if there is no unit.
///
/// # Errors
/// A sentence for anything else, and for 0.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "B" => Some(1_u64),
        "K" | "k" => Some(1 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        _ => None,
    };
    let value = digits.parse().ok().zip(factor).and_then(|(number, factor): (u64, u64)| number.checked_mul(factor));
    value.filter(|bytes| *bytes > 0).ok_or_else(|| format!("`{text}` is no size: a number and K, M or G"))
}

/// Parses a time: a number with `ms`, `s`, `m` or `h`, or seconds if there is no unit.
///
/// # Errors
/// A sentence for anything else, for zero, for a negative time, and for more than a century.
pub fn duration(text: &str) -> Result<Duration, String> {
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
        None => Err(format!("`{text}` is no time: a number and ms, s, m or h")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn session(words: &[&str]) -> Result<Profiled, Error> {
        match profiled(words.iter().map(OsString::from))? {
            Wanted::Session(wanted) => Ok(*wanted),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(duration("90").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("200ms").unwrap(), Duration::from_millis(200));
        assert_eq!(duration("1.5m").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("2h").unwrap(), Duration::from_secs(7200));
        for bad in ["", "s", "-1s", "0", "1d", "nan", "inf", "1e300h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!(bytes("10M").unwrap(), 10 << 20);
        assert_eq!([bytes("7"), bytes("7B")].map(Result::unwrap), [7, 7]);
        assert_eq!([bytes("3K"), bytes("3k")].map(Result::unwrap), [3 << 10, 3 << 10]);
        assert_eq!(bytes("2G").unwrap(), 2 << 30);
        for bad in ["", "0", "M", "1T", "-1", "99999999999G"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_error_is_one_line_that_names_the_option_and_says_what_is_accepted() {
        for (words, said) in [
            (&["--frobnicate"][..], "'--frobnicate'"),
            (&["--sceme", "x"], "'--scheme'"),
            (&["--on-full", "panic"], "'panic' for '--on-full <WHAT>'; [possible values: wait, stop]"),
            (&["--max-size", "ten"], "`ten` is no size: a number and K, M or G"),
            (&["--duration", "1d"], "`1d` is no time: a number and ms, s, m or h"),
            (&["--rotate", "3"], "--rotate says how many files, --max-size when: give both"),
            (&["-o"], "'--output <FILE>'"),
            (&["profile"], "'profile'"),
            (&["man", "start"], "profiled has no verb `start`"),
        ] {
            let error = session(words).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{words:?}");
            let error = error.to_string();
            assert!(error.contains(said) && error.ends_with("(see --help)") && error.lines().count() == 1, "{error}");
            assert!(!error.contains("error:") && !error.contains("Usage"), "{error}");
        }
    }

    /// The texts of a program and its verbs for `--help` and `man`, whose width nothing checks when they are printed.
    pub(crate) fn check_texts(parse: impl Fn(&[&str]) -> String, name: &str, section: &str, verbs: &[&str]) {
        for verb in verbs {
            let words = verb.split_whitespace().collect::<Vec<_>>();
            let help = parse(&[&words[..], &["--help"]].concat());
            assert!(help.contains(&format!("Usage: {name}")) && help.contains("--quiet"), "{verb}: {help}");
            assert!(help.lines().all(|line| line.len() <= WIDTH), "{verb}: {help}");
            let page = parse(&[&["man"][..], &words].concat());
            let title = [&[name][..], &words].concat().join("-");
            assert!(page.contains(&format!(".TH {title} {section} ")) && page.contains(".SH OPTIONS"), "{page}");
            let options =
                help.lines().filter_map(|line| line.trim_start().split_once("--")?.1.split([' ', ',']).next());
            // A `--` alone stands before a command.
            let named = options.filter(|option| !option.is_empty());
            for option in named.filter(|option| help.contains(&format!("--{option} <"))) {
                assert!(page.contains(&format!("\\-\\-{}\\fR", option.replace('-', "\\-"))), "{option}: {page}");
            }
        }
        for (shell, begins) in [("bash", "_"), ("zsh", "#compdef"), ("fish", "#")] {
            let text = parse(&["completions", shell]);
            assert!(text.starts_with(begins) && text.contains(name) && text.contains("on-full"), "{shell}: {text}");
        }
    }

    #[test]
    fn help_manual_page_and_completions_have_every_option() {
        let text = |words: &[&str]| match profiled(words.iter().map(OsString::from)).unwrap() {
            Wanted::Text(text) => text,
            other => panic!("{other:?}"),
        };
        check_texts(text, "profiled", "8", &[""]);
        assert_eq!(text(&["-V"]), concat!("profiled ", env!("CARGO_PKG_VERSION"), "\n"));
    }

    #[test]
    fn every_option_has_its_effect_and_the_last_one_counts() {
        let wanted = session(&[]).unwrap();
        assert_eq!((wanted.options.output.to_str(), wanted.options.form), (Some("/root/profiling.txt"), Form::Text));
        assert_eq!((wanted.scheme.to_str(), wanted.quiet), (Some("/scheme/debug"), false));
        assert_eq!((wanted.options.on_full, wanted.options.keep_files), (OnFull::Wait, 0));
        let words = "-q -q --output=- --binary --start --duration 2s --on-full stop --max-size 1K --max-size 2K \
                     --rotate 3 --scheme /dev/kprof --pid-file pid";
        let wanted = session(&words.split_whitespace().collect::<Vec<_>>()).unwrap();
        let options = &wanted.options;
        assert_eq!((options.output.to_str(), options.form), (Some("-"), Form::Binary));
        assert_eq!((options.duration, options.on_full), (Some(Duration::from_secs(2)), OnFull::Stop));
        assert_eq!((options.max_bytes, options.keep_files), (Some(2048), 3));
        assert_eq!(options.commands, ["start"]);
        assert_eq!((wanted.scheme.to_str(), wanted.quiet), (Some("/dev/kprof"), true));
        assert_eq!(wanted.pid_file, Some("pid".into()));
    }
}
