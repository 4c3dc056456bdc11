//! The command line of `kprof-record`.
//!
//! In: arguments. Out: what to sample and what to run. Runs in: user process. The command is the first word that is not
//! an option and all words after it, or all words after `--`. Only the first word can be a verb.

use super::control::Control;
use super::probe::Probing;
use super::probe_options::Probe;
use crate::drain_loop::Options;
use crate::error::Error;
use crate::options::{Manual, Place, SampleFile, WIDTH, duration, parsed};
use crate::write::found::Maker;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, value_parser};
use kprof_format::command::{Command, Verb as CtlVerb};
use kprof_format::point::{PointState, Points};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const NOTES: &str = "\
Without a command: until Ctrl-C, SIGTERM, or the end of the terminal. Each of them also ends a command, by SIGTERM.
`record` as the first word is accepted, as by perf. What the options set, and sampling, is undone by the kernel when
kprof-record ends, also by a kill. Sampling that ran before goes on. An earlier recording at FILE becomes FILE.old; a
file of another program is neither renamed nor replaced. While profiled runs, the samples are copies of those that
profiled gets, which loses nothing by it.

Exit code: that of the command (128 + n when signal n ended it); 125 when kprof-record failed, 126 when the command
cannot be executed, 127 when it was not found, 2 for a wrong command line.

Example:
  kprof-record -o /root/cp.txt --hz 2000 -- cp /bin/sh /tmp/sh";

const STAT_NOTES: &str = "\
With -x the fields of a line are: the time since the start in seconds (only with -I), value, unit, name, nanoseconds
that were counted, 100.00, the spread in percent (only with -r), the rate or share, its unit. A point has a line of its
hits, and one of the sum of their weights, NAME:weight.

Examples:
  kprof-record stat -r 5 -- cp /bin/sh /tmp/sh
  kprof-record stat -e 'block.*' -e page.fault -- cp /bin/sh /tmp/sh";

/// Samples the kernel while a command runs
#[derive(Debug, Parser)]
#[command(name = "kprof-record", version, propagate_version = true, after_help = NOTES, term_width = WIDTH)]
#[command(args_override_self = true, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs (only as the first word)")]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    file: SampleFile,
    /// Records `idle` or `user` samples too; may be given twice
    #[arg(long, value_name = "WHAT", value_parser = one_line)]
    include: Vec<String>,
    /// Records the hits of this point (`block.*`: of all that begin so); `NAME count` counts
    #[arg(short = 'e', long = "event", value_name = "NAME", value_parser = event)]
    events: Vec<String>,
    #[command(flatten)]
    sampling: Sampling,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Counts and shares of time instead of samples; works while another program reads the samples
    #[command(args_override_self = true, after_help = STAT_NOTES)]
    Stat(Box<Stat>),
    /// Counts and times the calls of functions of the kernel, by probes on a running kernel (x86_64)
    #[command(args_override_self = true, after_help = super::probe_options::NOTES)]
    Probe(Box<Probe>),
    /// Shows the points that were hit since boot: name, unit, state
    List(Place),
    /// Shows the kernel's state and counters
    Status(Place),
    /// Starts sampling, which goes on until `stop`
    Start(Place),
    /// Stops sampling
    Stop(Place),
    #[command(flatten)]
    Manual(Manual),
}

/// What to sample, and what to run.
#[derive(Args, Clone, Debug)]
struct Sampling {
    /// Samples a second on each CPU; `N force` above 20000
    #[arg(short = 'F', long, value_name = "N", value_parser = one_line)]
    hz: Option<String>,
    /// Samples only these CPUs: 1,3 or 0-2
    #[arg(short = 'C', long, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<String>,
    /// The most frames of a sample
    #[arg(long, value_name = "N", value_parser = one_line)]
    depth: Option<String>,
    /// `random` or `fixed` intervals between samples
    #[arg(long, value_name = "WHAT", value_parser = one_line)]
    interval: Option<String>,
    /// Seed of the random intervals
    #[arg(long, value_name = "N", value_parser = one_line)]
    seed: Option<String>,
    /// `on` or `off`: a lower rate when sampling costs too much
    #[arg(long, value_name = "WHAT", value_parser = one_line)]
    backoff: Option<String>,
    /// Puts a mark into the data before the command
    #[arg(long, value_name = "NAME", value_parser = one_line)]
    mark: Vec<String>,
    /// Accepted, as by perf: all tasks are always sampled
    #[arg(short = 'a')]
    all: bool,
    /// Accepted, as by perf: samples always have their call stack
    #[arg(short = 'g')]
    graph: bool,
    #[arg(short, hide = true, num_args = 0..=1, default_missing_value = "")]
    pid: Option<OsString>,
    #[command(flatten)]
    place: Place,
    /// The program and its arguments
    #[arg(trailing_var_arg = true)]
    command: Vec<OsString>,
}

#[derive(Args, Debug)]
struct Stat {
    #[arg(long, hide = true)]
    include: Option<String>,
    /// Ends after TIME (90, 1.5s, 200ms, 10m, 2h)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Runs the command N times: means, and their standard error in percent
    #[arg(short, long, value_name = "N", value_parser = value_parser!(u32).range(1..), requires = "command")]
    repeat: Option<u32>,
    /// One line for each counter, with this between its fields
    #[arg(short = 'x', long, value_name = "SEP", value_parser = NonEmptyStringValueParser::new())]
    field_separator: Option<String>,
    /// Prints what was counted every MS milliseconds (10 or more)
    #[arg(short = 'I', long, value_name = "MS", value_parser = value_parser!(u64).range(10..))]
    #[arg(conflicts_with_all = ["repeat", "events"])]
    interval_print: Option<u64>,
    /// Counts hits of this point (`block.*`: of all that begin so), and adds up their weights
    #[arg(short = 'e', long = "event", value_name = "NAME", value_parser = counted_event)]
    events: Vec<String>,
    #[command(flatten)]
    sampling: Sampling,
}

/// How counts are printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counting {
    /// Run the command this often, and print means; `None` is once, without a spread.
    pub repeat: Option<u32>,
    /// One line for each counter, with this between its fields.
    pub separator: Option<String>,
    /// Print in these intervals.
    pub interval: Option<Duration>,
    /// Points to count, as the command line names them.
    pub points: Vec<String>,
}

/// What is printed at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The samples are written to a file and the account is printed.
    Record,
    /// Counts and shares are printed and the samples are discarded.
    Stat(Counting),
    /// Calls of functions are counted by probes, and a table of them is printed.
    Probe(Probing),
}

impl What {
    /// Whether the records are written to a file, whose older contents are kept.
    pub fn writes_a_file(&self) -> bool {
        matches!(self, Self::Record | Self::Probe(Probing { is_recording: true, .. }))
    }
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
    /// The probes of the kernel, with names from a file of places, in this folder of device files.
    Probes {
        /// The file of places.
        places: Option<PathBuf>,
        /// Whether they are used although it is not known whether they are of this kernel.
        force: bool,
        /// The folder.
        scheme: PathBuf,
    },
    /// A text on standard output, nothing else.
    Text(String),
}

/// Verbs of perf that `kprof-fold` has.
const OF_FOLD: [&str; 5] = ["report", "top", "script", "annotate", "diff"];

/// Parses the arguments of `kprof-record`, without the program's own name.
///
/// # Errors
/// [`Error::Usage`] names the option.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Wanted, Error> {
    // `record` is perf's word for what is done without a verb.
    let mut arguments = arguments.into_iter().peekable();
    if arguments.next_if(|first| first == "record").is_none()
        && let Some(verb) = arguments.peek().and_then(|first| OF_FOLD.iter().find(|verb| first == **verb))
    {
        let why = format!("`{verb}` is a verb of kprof-fold, which reads the file; `-- {verb}` runs a program");
        return Err(Error::Usage(why));
    }
    let cli: Cli = match parsed(arguments) {
        Ok(cli) => cli,
        Err(other) => return other.map(Wanted::Text),
    };
    match cli.verb {
        None => cli.sampling.session(
            What::Record,
            &[(CtlVerb::Include, &cli.include), (CtlVerb::Event, &cli.events)],
            cli.file.options(Maker::Record),
        ),
        Some(Verb::Stat(stat)) => stat.session(),
        Some(Verb::Probe(probe)) => probe.wanted(),
        Some(Verb::List(place)) => Ok(Wanted::Control(Control::List, place.scheme)),
        Some(Verb::Status(place)) => Ok(Wanted::Control(Control::Status, place.scheme)),
        Some(Verb::Start(place)) => Ok(Wanted::Control(Control::Start, place.scheme)),
        Some(Verb::Stop(place)) => Ok(Wanted::Control(Control::Stop, place.scheme)),
        Some(Verb::Manual(manual)) => manual.text::<Cli>("1").map(Wanted::Text),
    }
}

impl Stat {
    fn session(self) -> Result<Wanted, Error> {
        if self.include.is_some() {
            return Err(Error::Usage("stat counts user and idle time without --include".into()));
        }
        let counting = Counting {
            repeat: self.repeat,
            separator: self.field_separator.map(|text| text.replace("\\t", "\t")),
            interval: self.interval_print.map(Duration::from_millis),
            points: self.events,
        };
        let events: Vec<String> = counting.points.iter().map(|name| format!("{name} {}", PointState::Count)).collect();
        let options = Options { duration: self.duration, ..Options::new("/dev/null") };
        self.sampling.session(What::Stat(counting), &[(CtlVerb::Event, &events)], options)
    }
}

impl Sampling {
    fn session(self, what: What, more: &[(CtlVerb, &[String])], options: Options) -> Result<Wanted, Error> {
        if self.pid.is_some() {
            let why = "-p: CPUs are sampled, not processes; `kprof-fold --task NAME` shows the samples of one task";
            return Err(Error::Usage(why.into()));
        }
        let of = |verb: CtlVerb, values: &[String]| -> Vec<String> {
            values.iter().map(|value| format!("{verb} {value}")).collect()
        };
        // The kernel checks the range, and its reason is shown if the value is wrong. `lease` comes first: the kernel
        // undoes all commands after it when this process ends, also when it is killed.
        let commands = [
            vec![Command::Lease.to_string()],
            of(CtlVerb::Hz, self.hz.as_slice()),
            more.iter().flat_map(|(verb, values)| of(*verb, values)).collect(),
            of(CtlVerb::Cpus, self.cpus.as_slice()),
            of(CtlVerb::Depth, self.depth.as_slice()),
            of(CtlVerb::Interval, self.interval.as_slice()),
            of(CtlVerb::Seed, self.seed.as_slice()),
            of(CtlVerb::Backoff, self.backoff.as_slice()),
            of(CtlVerb::Mark, &self.mark),
            vec![Command::Start.to_string()],
        ];
        let options = Options { is_recording: true, commands: commands.concat(), ..options };
        let Place { scheme, quiet } = self.place;
        Ok(Wanted::Session(Box::new(Record { what, options, scheme, command: self.command, quiet })))
    }
}

/// The choice for a point: a name, which may have a state after it. Without one its hits are recorded.
fn event(value: &str) -> Result<String, String> {
    let value = match one_line(value)?.trim() {
        name if name.contains(' ') => name.to_owned(),
        name => format!("{name} {}", PointState::Record),
    };
    let command = format!("{} {value}", CtlVerb::Event);
    match Command::parse(command.as_bytes()) {
        Ok(_) => Ok(value),
        Err(_) => Err("NAME, or NAME and one of count, record, every N, by-weight N".into()),
    }
}

/// The name of a point to count, or what its name begins with and `*`.
fn counted_event(value: &str) -> Result<String, String> {
    match Points::of(value) {
        Some(_) => Ok(value.to_owned()),
        None => Err("the name of a point is expected; stat counts each hit, and `kprof-record -e` records them".into()),
    }
}

/// A list of CPUs as perf takes it, in the kernel's form, which has no ranges.
fn cpu_list(value: &str) -> Result<String, String> {
    let cpus = |part: &str| -> Option<Vec<String>> {
        let Some((first, last)) = part.split_once('-') else { return Some(vec![part.into()]) };
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        (first <= last).then(|| (first..=last).map(|cpu| cpu.to_string()).collect())
    };
    let all: Option<Vec<Vec<String>>> = one_line(value)?.split(',').map(cpus).collect();
    all.map(|all| all.concat().join(",")).ok_or_else(|| "CPUs are expected, as 1,3 or 0-2".into())
}

/// A value that is part of one command to the kernel.
fn one_line(value: &str) -> Result<String, String> {
    if value.contains('\n') { Err("one line is expected".into()) } else { Ok(value.into()) }
}

#[cfg(test)]
pub(super) mod tests;
