//! The command line. Stage: all of the host end.
//!
//! In: arguments as text. Out: typed arguments. An option has the same meaning in all subcommands. Values are parsed in
//! [`super::values`], and the arguments of redox-kprofiling in [`super::compat`].

mod choice;
mod diff;
mod input;
mod verbs;

pub use super::values::ImageFile;
pub use choice::{Beside, Choice, Shown};
pub use diff::{Diff, DiffFormat};
pub use input::{Input, Limits};
pub use verbs::{Annotate, Export, Flamegraph, Folded, Heatmap, Info, Report, Script, Top, Viewer};

use clap::{Parser, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  kprof-fold profiling.txt syms.txt 2.2 | inferno-flamegraph > graph.svg
  kprof-fold flamegraph profiling.txt kernel.elf -o graph.svg
  kprof-fold report profiling.txt kernel.elf --top 20
  nm -CS kernel.elf > syms.txt; ssh host cat profiling.txt | kprof-fold - syms.txt

Folded stacks go to standard output, everything else to standard error.
Exit codes: 0 done; 1 something was skipped (--strict); 2 unusable input or arguments;
3 more lost than --max-loss; 4 a claim of diff --fail-if holds; 5 the account does not balance (report; with --strict everywhere).";

/// Makes folded stacks, flame graphs and tables from a kernel profile.
#[derive(Debug, Parser)]
#[command(name = "kprof-fold", version, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, max_term_width = 120)]
pub struct Cli {
    /// What to make; without a subcommand: folded stacks.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The default: folded stacks.
    #[command(flatten)]
    pub fold: Option<Input>,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
    /// The form of the output; without it the extension of -o FILE decides (.svg, .perf, .speedscope.json,
    /// .perfetto.json, .json, .pb.gz), otherwise folded stacks
    #[arg(long, value_enum)]
    pub format: Option<Format>,
}

/// Forms of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Folded stacks
    Folded,
    /// As `perf script` and redox-kprofiling print it
    PerfScript,
    /// An SVG
    Flamegraph,
    /// The Firefox Profiler's JSON
    Firefox,
    /// speedscope's JSON
    Speedscope,
    /// pprof's protocol buffers, gzipped
    Pprof,
    /// Chrome's JSON trace, for Perfetto
    Perfetto,
}

impl Format {
    /// The form for the extension of a file's name.
    pub fn of_file(name: &str) -> Self {
        let ends = |end: &str| name.ends_with(end);
        match () {
            () if ends(".svg") => Self::Flamegraph,
            () if ends(".perf") || ends(".script") => Self::PerfScript,
            () if ends(".speedscope.json") => Self::Speedscope,
            () if ends(".perfetto.json") || ends(".trace.json") => Self::Perfetto,
            () if ends(".json") => Self::Firefox,
            () if ends(".pb") || ends(".pb.gz") || ends(".pprof") => Self::Pprof,
            () => Self::Folded,
        }
    }
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Folded stacks, as without a subcommand
    Folded(Folded),
    /// A flame graph (SVG)
    Flamegraph(Flamegraph),
    /// Every sample with its time and stack, as `perf script` prints them
    Script(Script),
    /// Header, account, rate, intervals, tasks
    Info(Info),
    /// For another viewer: Firefox Profiler, speedscope, pprof, Perfetto
    Export(Export),
    /// What changed from one profile to another, and whether that is more than chance
    Diff(Diff),
    /// A function's source lines with their share (needs an ELF file with DWARF)
    Annotate(Annotate),
    /// A growing file, or a stream on standard input, as a live table
    Top(Top),
    /// What is wrong with this kernel and this profile?
    Doctor(Folded),
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
    /// When within each second did samples fall: a heat map (SVG)
    Heatmap(Heatmap),
    /// Tables: functions by self and total time, where the time went, the account of each CPU
    Report(Report),
}
