//! The command line of the host tool. Stage: command line, before everything else.
//!
//! In: arguments as text. Out: typed arguments. An option has the same meaning in all subcommands. Values are parsed in
//! [`super::values`], and the arguments of redox-kprofiling in [`super::compat`].

pub mod boot;
mod choice;
mod diff;
mod examples;
mod input;
mod verbs;

pub use super::values::ImageFile;
pub use choice::{Beside, Choice, Shown};
pub use diff::{Diff, DiffFormat};
pub use input::{Input, Limits};
pub use verbs::{
    Annotate, Doctor, Export, Flamegraph, Folded, Html, Info, Latency, LockupFormat, Lockups, Plain, Probes, Report,
    Script, TableFormat, Tables, Top, Viewer, Waits,
};

use crate::error::Error;
use clap::{Parser, Subcommand, ValueEnum};

/// Makes folded stacks, flame graphs and tables from a kernel profile.
#[derive(Debug, Parser)]
#[command(name = "kprof-fold", version, after_help = examples::ALL)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, max_term_width = 120)]
pub struct Cli {
    /// What to make; without a subcommand: folded stacks.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The form of the output; without it the extension of -o FILE decides (.folded, .txt, .svg, .html,
    /// .perf, .speedscope.json, .pftrace, .json for Firefox, .pb.gz), otherwise folded stacks
    #[arg(long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub format: Option<Format>,
    /// The default: folded stacks.
    #[command(flatten)]
    pub fold: Option<Input>,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
}

/// Forms of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Folded stacks
    #[default]
    Folded,
    /// As `perf script` and redox-kprofiling print it
    PerfScript,
    /// An SVG
    Flamegraph,
    /// An interactive page
    Html,
    /// The Firefox Profiler's JSON
    Firefox,
    /// speedscope's JSON
    Speedscope,
    /// pprof's protocol buffers, gzipped
    Pprof,
    /// Perfetto's trace
    Perfetto,
}

impl Format {
    /// The form for the extension of the output.
    ///
    /// # Errors
    /// If the extension is that of no form.
    pub fn of_file(output: Option<&str>) -> Result<Self, Error> {
        let known = [
            ("folded", Self::Folded),
            ("txt", Self::Folded),
            ("svg", Self::Flamegraph),
            ("html", Self::Html),
            ("perf", Self::PerfScript),
            ("script", Self::PerfScript),
            ("speedscope.json", Self::Speedscope),
            ("pftrace", Self::Perfetto),
            ("perfetto-trace", Self::Perfetto),
            ("json", Self::Firefox),
            ("pb", Self::Pprof),
            ("pb.gz", Self::Pprof),
            ("pprof", Self::Pprof),
        ];
        super::values::form_of_file(output, &known)
    }
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Folded stacks, as without a subcommand
    #[command(after_help = examples::FOLDED)]
    Folded(Folded),
    /// A flame graph (SVG)
    #[command(after_help = examples::FLAMEGRAPH)]
    Flamegraph(Flamegraph),
    /// An interactive page: timeline, flame graph, table, in one file that needs no network
    #[command(after_help = examples::HTML)]
    Html(Html),
    /// Every sample with its time and stack, as `perf script` prints them
    #[command(after_help = examples::SCRIPT)]
    Script(Script),
    /// Header, account, rate, intervals, tasks
    #[command(after_help = examples::INFO)]
    Info(Info),
    /// Hits of points, and how their weights (times, bytes) are distributed
    #[command(after_help = examples::LATENCY)]
    Latency(Latency),
    /// How the time of each task is divided into running, ready to run, and blocked, by reason
    #[command(after_help = examples::WAITS)]
    Waits(Waits),
    /// CPUs that the kernel has reported as locked up: where they were, and the newest stack of every CPU
    #[command(after_help = examples::LOCKUPS)]
    Lockups(Lockups),
    /// For another viewer: Firefox Profiler, speedscope, pprof, Perfetto
    #[command(after_help = examples::EXPORT)]
    Export(Export),
    /// What changed from one profile to another, and whether that is more than chance
    #[command(after_help = examples::DIFF)]
    Diff(Diff),
    /// A function's source lines and instructions with their share (needs an ELF file)
    #[command(after_help = examples::ANNOTATE, mut_arg("rest", |rest| rest.index(4)))]
    Annotate(Annotate),
    /// A growing file, or a stream on standard input, as a live table
    #[command(after_help = examples::TOP)]
    Top(Top),
    /// What is wrong with this kernel and this profile?
    #[command(after_help = examples::DOCTOR)]
    Doctor(Doctor),
    /// Completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The manual page (roff), or that of a subcommand
    Man {
        /// The subcommand
        subcommand: Option<String>,
    },
    /// The functions of a kernel that can be probed while it runs, and the instructions that leave them
    #[command(after_help = examples::PROBES)]
    Probes(Probes),
    /// Tables: functions by self and total time, where the time went, the account of each CPU
    #[command(after_help = examples::REPORT)]
    Report(Report),
    /// The unwind table for a kernel without frame pointers, made from its own unwind information
    #[command(after_help = examples::TABLES)]
    Tables(Tables),
}
