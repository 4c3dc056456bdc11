//! The command line of `kprof-record`.
//!
//! In: arguments. Out: what to sample and what to run. Runs in: user process. The command is the first word that is not
//! an option and all words after it, or all words after `--`.

use super::control::Control;
use crate::drain_loop::Options;
use crate::error::Error;
use crate::options::{bytes, duration};
use crate::write::compose::Form;
use crate::write::sample_file::OnFull;
use lexopt::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;

/// What `kprof-record --help` prints.
pub const HELP: &str = "\
kprof-record: samples the kernel while a command runs

Usage: kprof-record [options] [--] COMMAND [ARGS...]
       kprof-record stat [options] [--] COMMAND [ARGS...]
       kprof-record status | start | stop [--scheme DIR]

Without a command: until Ctrl-C. `stat` prints counts and shares of time and keeps no samples; it works while another
program reads the samples. What the options set, and sampling, is undone by the kernel when kprof-record ends, also by a
kill. Sampling that ran before goes on. `status` shows the kernel's state and counters; what `start` begins goes on
until `stop`.

  -o, --output FILE    the sample file [/root/profiling.txt]; an older profile there becomes FILE.old; `-` writes to
                       standard output
  -F, --hz N           samples a second on each CPU; `N force` above 20000
      --include WHAT   records `idle` or `user` samples too; may be given twice
  -C, --cpus LIST      samples only these CPUs: 1,3
      --depth N        frames at most
      --interval WHAT  `random` or `fixed` distances
      --seed N         seed of the random distances
      --backoff WHAT   `on` or `off`
      --mark NAME      puts a mark into the data before the command
      --binary         the binary form
      --plain          without markers, for Redox's own tools
      --duration TIME  ends after TIME (90, 1.5s, 200ms, 10m, 2h)
      --max-size SIZE  the greatest length of the file (64K, 10M, 1G)
      --stream DEVICE  sends the same to a character device too
      --on-full WHAT   on a full disk: `wait` for room [wait] or `stop`
      --scheme DIR     folder with ctl-profiling and profiling-N [/scheme/debug]
  -a, -g               accepted, as by perf: all tasks are always sampled, with their call stacks
  -q, --quiet          says only what went wrong
  -h, --help           prints this
  -V, --version        prints the version

Exit code: that of the command (128 + n when signal n ended it); 125 when kprof-record failed, 126 when the command
cannot be executed, 127 when it was not found, 2 for a wrong command line.

Example:
  kprof-record -o /root/cp.txt --hz 2000 -- cp /bin/sh /tmp/sh
";

/// What is printed at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The samples are written to a file and the account is printed.
    Record,
    /// Counts and shares are printed and the samples are discarded.
    Stat,
}

/// A parsed command line.
#[derive(Clone, Debug)]
pub struct Record {
    /// Samples or counts.
    pub what: What,
    /// What to do with the records, and the commands for the kernel.
    pub options: Options,
    /// The folder of the device files.
    pub scheme: PathBuf,
    /// The program and its arguments; may be empty.
    pub command: Vec<OsString>,
    /// Whether only errors are printed.
    pub quiet: bool,
}

/// What the command line asks for.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// A session.
    Session(Box<Record>),
    /// Only the kernel's state, in this folder of device files.
    Control(Control, PathBuf),
    /// A text on standard output, nothing else.
    Text(String),
}

/// Parses the arguments of `kprof-record`, without the program's own name.
///
/// # Errors
/// [`Error::Usage`] names the option.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Wanted, Error> {
    let mut wanted = Record {
        what: What::Record,
        options: Options::new("/root/profiling.txt"),
        scheme: "/scheme/debug".into(),
        command: Vec::new(),
        quiet: false,
    };
    let mut arguments = arguments.into_iter().peekable();
    let mut control = None;
    match arguments.peek().and_then(|word| word.to_str()) {
        Some("stat") => wanted.what = What::Stat,
        Some("status") => control = Some(Control::Status),
        Some("start") => control = Some(Control::Start),
        Some("stop") => control = Some(Control::Stop),
        _ => {}
    }
    if control.is_some() || wanted.what == What::Stat {
        arguments.next();
    }
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Value(word) if control.is_some() => {
                return Err(Error::Usage(format!("{}: nothing comes after this verb", word.display())));
            }
            Value(program) => {
                wanted.command.push(program);
                wanted.command.extend(parser.raw_args().map_err(usage)?);
            }
            Short('h') | Long("help") => return Ok(Wanted::Text(HELP.into())),
            Short('V') | Long("version") => {
                return Ok(Wanted::Text(concat!("kprof-record ", env!("CARGO_PKG_VERSION"), "\n").into()));
            }
            Short('q') | Long("quiet") => wanted.quiet = true,
            Short('o') => wanted.options.output = parser.value().map_err(usage)?.into(),
            Long("scheme") => wanted.scheme = parser.value().map_err(usage)?.into(),
            other if control.is_some() => return Err(usage(other.unexpected())),
            Short('a' | 'g') => {}
            Short('F') => long(&mut wanted.options, "hz", &mut parser)?,
            Short('C') => long(&mut wanted.options, "cpus", &mut parser)?,
            Short('p') => {
                let why = "-p: CPUs are sampled, not processes; `kprof-fold --task NAME` shows the samples of one task";
                return Err(Error::Usage(why.into()));
            }
            Long("binary") => wanted.options.form = Form::Binary,
            Long("plain") => wanted.options.form = Form::Plain,
            Long(name) => {
                let name = name.to_owned();
                long(&mut wanted.options, &name, &mut parser)?;
            }
            other => return Err(usage(other.unexpected())),
        }
    }
    if let Some(control) = control {
        return Ok(Wanted::Control(control, wanted.scheme));
    }
    if wanted.what == What::Stat {
        if wanted.options.commands.iter().any(|command| command.starts_with("include")) {
            return Err(Error::Usage("stat counts user and idle time without --include".into()));
        }
        wanted.options.output = "/dev/null".into();
    }
    wanted.options.is_recording = true;
    // `lease` comes first: the kernel undoes all commands after it when this process ends, also when it is killed.
    wanted.options.commands.insert(0, "lease".into());
    wanted.options.commands.push("start".into());
    Ok(Wanted::Session(Box::new(wanted)))
}

/// An option with a value.
fn long(options: &mut Options, name: &str, parser: &mut lexopt::Parser) -> Result<(), Error> {
    let known = ["hz", "include", "cpus", "depth", "interval", "seed", "backoff", "mark"];
    let others = ["output", "duration", "max-size", "stream", "on-full"];
    if !known.contains(&name) && !others.contains(&name) {
        return Err(Error::Usage(format!("invalid option '--{name}'")));
    }
    let value = parser.value().and_then(ValueExt::string).map_err(usage)?;
    match name {
        "output" => options.output = value.into(),
        "duration" => options.duration = Some(duration(&value)?),
        "max-size" => options.max_bytes = Some(bytes(&value)?),
        "stream" => options.live = Some(value.into()),
        "on-full" => options.on_full = on_full(&value)?,
        _ if value.contains('\n') => return Err(Error::Usage(format!("--{name}: one line"))),
        // The kernel checks the range, and its reason is shown if the value is wrong.
        _ => options.commands.push(format!("{name} {value}")),
    }
    Ok(())
}

fn on_full(value: &str) -> Result<OnFull, Error> {
    match value {
        "wait" => Ok(OnFull::Wait),
        "stop" => Ok(OnFull::Stop),
        other => Err(Error::Usage(format!("--on-full {other}: `wait` or `stop`"))),
    }
}

fn usage(error: lexopt::Error) -> Error {
    Error::Usage(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(words: &[&str]) -> Record {
        match parse(words.iter().map(OsString::from)).unwrap() {
            Wanted::Session(record) => *record,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_keeps_its_own_options() {
        let record = session(&["--hz", "2000 force", "-o", "x", "cp", "-r", "--", "a"]);
        assert_eq!(record.command, ["cp", "-r", "--", "a"]);
        assert_eq!(record.options.commands, ["lease", "hz 2000 force", "start"]);
        assert_eq!(session(&["--include=user", "--", "-x"]).command, ["-x"]);
        assert_eq!(session(&["stat", "--", "stat"]).command, ["stat"]);
        assert_eq!(session(&["stat", "stat"]).what, What::Stat);
        assert_eq!(session(&["stat", "stat"]).command, ["stat"]);
        assert_eq!(session(&["--", "stat"]).what, What::Record);
    }

    #[test]
    fn options_of_perf_are_understood() {
        let record = session(&["-a", "-g", "-F", "99", "-C", "1,2", "--", "true"]);
        assert_eq!(record.options.commands, ["lease", "hz 99", "cpus 1,2", "start"]);
        let error = parse(["-p", "7"].map(OsString::from)).unwrap_err().to_string();
        assert!(error.contains("--task"), "{error}");
    }

    #[test]
    fn a_verb_is_the_first_word_and_takes_nothing_but_the_folder() {
        let wanted = |words: &[&str]| parse(words.iter().map(OsString::from));
        let control = wanted(&["status", "--scheme", "/dev/kprof"]);
        assert!(
            matches!(control, Ok(Wanted::Control(Control::Status, folder)) if folder.as_path() == std::path::Path::new("/dev/kprof"))
        );
        assert!(wanted(&["start", "now"]).is_err() && wanted(&["stop", "--hz", "1"]).is_err());
        assert_eq!(session(&["--", "status"]).command, ["status"]);
        assert_eq!(session(&["-q", "stop"]).command, ["stop"], "only the first word is a verb");
    }

    #[test]
    fn an_option_that_is_none_is_named() {
        for words in [&["--frob", "1"][..], &["-x"], &["--hz"], &["--mark", "a\nstop"], &["--on-full", "panic"]] {
            let error = parse(words.iter().map(OsString::from)).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{words:?}: {error}");
        }
    }
}
