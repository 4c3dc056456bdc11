//! The command line. Stage: all of the host end.
//!
//! In: arguments. Out: typed ones. Every option has one meaning in all subcommands. Times and letters of the reference's
//! four arguments are understood in [`super::values`].

use crate::output::report::Sort;
use crate::read::form::Form;
use crate::select::Pattern;
use crate::tally::By;
use clap::{Args, Parser, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  kprof-fold profiling.txt syms.txt 2.2 | inferno-flamegraph > graph.svg
  kprof-fold flamegraph profiling.txt kernel.elf -o graph.svg
  kprof-fold report profiling.txt kernel.elf --top 20
  nm -CS kernel.elf > syms.txt; ssh host cat profiling.txt | kprof-fold - syms.txt

Folded stacks go to standard output, everything else to standard error.
Exit codes: 0 done; 1 something was skipped (--strict); 2 unusable input or arguments;
3 more lost than --max-loss; 4 a claim of diff --fail-if holds; 5 the account does not balance (report; with --strict everywhere).";

/// From a kernel profile to folded stacks, flame graphs and tables.
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
    /// What of it.
    #[command(flatten)]
    pub choice: Choice,
    /// The form of the output; without it the extension of -o FILE decides (.svg, .perf, .speedscope.json,
    /// .perfetto.json, .json, .pb), else
    /// folded stacks
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
    /// pprof's protocol buffers
    Pprof,
    /// Chrome's JSON trace, for Perfetto
    Perfetto,
}

impl Format {
    /// What the name of a file asks for.
    pub fn of_file(name: &str) -> Self {
        let ends = |end: &str| name.ends_with(end);
        match () {
            () if ends(".svg") => Self::Flamegraph,
            () if ends(".perf") || ends(".script") => Self::PerfScript,
            () if ends(".speedscope.json") => Self::Speedscope,
            () if ends(".perfetto.json") || ends(".trace.json") => Self::Perfetto,
            () if ends(".json") => Self::Firefox,
            () if ends(".pb") || ends(".pprof") => Self::Pprof,
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
    /// Header, account, rate, gaps, contexts
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
    /// The manual page (roff)
    Man,
    /// When within each second did samples fall: a heat map (SVG)
    Heatmap(Heatmap),
    /// Tables: functions by own and total time, where the time went, the account of each CPU
    Report(Report),
}

/// Symbols of an image beside the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// Its name in the profile.
    pub name: String,
    /// Its ELF file, or what nm prints of it.
    pub file: String,
}

/// What makes an exit code although there is output.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Exit code 1 if anything was skipped, 5 if the account does not balance
    #[arg(long)]
    pub strict: bool,
    /// Exit code 3 if more than this part of the samples was lost, such as 1%
    #[arg(long, value_name = "PART", value_parser = super::values::part)]
    pub max_loss: Option<f64>,
}

/// What to read, and what of it.
#[derive(Args, Clone, Debug)]
pub struct Input {
    /// Profile (profiling.txt, Redox's older texts); `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: String,
    /// Symbols: the kernel's ELF file, or what `nm -CS`, `nm` or `llvm-nm` prints of it
    #[arg(value_name = "SYMS")]
    pub syms: String,
    /// TSC clock in GHz where the header has none or is to be overridden (also: LETTERS GHZ as of redox-kprofiling)
    #[arg(value_name = "GHZ", num_args = 0..=3)]
    pub rest: Vec<String>,
    /// The form of FILE, where it is not recognised
    #[arg(long, value_name = "FORM")]
    pub form: Option<Form>,
    /// Symbols of a program or module that the profile names: an ELF file, or what nm prints; may be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = super::values::image)]
    pub image: Vec<ImageFile>,
    /// Fold although the symbols do not belong to the profile
    #[arg(long)]
    pub force: bool,
    /// Exit code 1 if anything was skipped, 5 if the account does not balance
    #[arg(long)]
    pub strict: bool,
    /// Exit code 3 if more than this part of the samples was lost, such as 1%
    #[arg(long, value_name = "PART", value_parser = super::values::part)]
    pub max_loss: Option<f64>,
    /// No talk on standard error but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Where to write instead of standard output; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
}

impl Input {
    /// What is no success. (Its arguments stand in this group themselves: clap knows no optional group with another inside.)
    pub fn limits(&self) -> Limits {
        Limits { strict: self.strict, max_loss: self.max_loss }
    }
}

/// What counts.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Choosing")]
pub struct Choice {
    /// Only these CPUs, such as 1,3
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cpu: Vec<u32>,
    /// Only contexts of this name (`*` for anything); may be repeated
    #[arg(long, value_name = "NAME")]
    pub context: Vec<Pattern>,
    /// Only from one time to another: seconds since the first sample, @seconds of the TSC clock, 0xTSC, a mark, start, end
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], allow_hyphen_values = true)]
    pub between: Vec<String>,
    /// Only stacks with this function, from it inwards (`*` for anything); may be repeated
    #[arg(long, value_name = "FUNCTION")]
    pub under: Vec<Pattern>,
    /// No stacks with this function; may be repeated
    #[arg(long, value_name = "FUNCTION")]
    pub not: Vec<Pattern>,
    /// Only samples taken with interrupts off
    #[arg(long, conflicts_with = "irq_on")]
    pub irq_off: bool,
    /// Only samples taken with interrupts on
    #[arg(long)]
    pub irq_on: bool,
    /// User samples and the user part of stacks too
    #[arg(long)]
    pub user: bool,
    /// Idle samples that the recording kept
    #[arg(long, value_enum, default_value = "show")]
    pub idle: Shown,
    /// One frame for all instances of a generic function
    #[arg(long)]
    pub merge_generics: bool,
    /// What is shown beside the samples
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lost")]
    pub show: Vec<Beside>,
    /// Without inlined frames (they need an ELF file with DWARF)
    #[arg(long)]
    pub no_inline: bool,
    /// File and line behind each name (they need an ELF file with DWARF)
    #[arg(long)]
    pub lines: bool,
    /// A root frame for each context or CPU
    #[arg(long, value_enum, default_value = "none")]
    pub by: By,
}

/// What is no sample and can be shown all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Beside {
    /// Lost samples
    Lost,
    /// Merged ticks
    Merged,
    /// Nothing
    None,
}

/// Shown or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shown {
    /// It counts.
    Show,
    /// It does not.
    Hide,
}

/// Arguments of `folded`.
#[derive(Args, Clone, Debug)]
pub struct Folded {
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// What of it.
    #[command(flatten)]
    pub choice: Choice,
}

/// Arguments of `flamegraph`.
#[derive(Args, Clone, Debug)]
pub struct Flamegraph {
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// What of it.
    #[command(flatten)]
    pub choice: Choice,
    /// Title
    #[arg(long, default_value = "")]
    pub title: String,
    /// Roots at the top
    #[arg(long)]
    pub icicle: bool,
    /// Leaves become roots: who called this?
    #[arg(long)]
    pub reverse: bool,
}

/// Arguments of `report`.
#[derive(Args, Clone, Debug)]
pub struct Report {
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// What of it.
    #[command(flatten)]
    pub choice: Choice,
    /// Order of the functions
    #[arg(long, value_enum, default_value = "both")]
    pub sort: Sort,
    /// Functions shown at most; 0 shows all
    #[arg(long, default_value_t = 20)]
    pub top: usize,
    /// Callers and callees as a tree instead of the table
    #[arg(long, value_enum, value_name = "DIRECTION")]
    pub tree: Option<crate::output::tree::Direction>,
    /// Leave out functions below this part of all samples, such as 0.2%
    #[arg(long, value_name = "PART", value_parser = super::values::part, default_value = "0%")]
    pub limit: f64,
}

/// Arguments of `script`.
#[derive(Args, Clone, Debug)]
pub struct Script {
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// What of it.
    #[command(flatten)]
    pub choice: Choice,
    /// Offsets within functions (the letter o of redox-kprofiling)
    #[arg(long)]
    pub offsets: bool,
    /// Offsets as frames of their own (the letter x)
    #[arg(long)]
    pub expand_offsets: bool,
    /// A stack ends where no function is known (the letter i)
    #[arg(long)]
    pub stop_at_unknown: bool,
}

/// Arguments of `info`.
#[derive(Args, Clone, Debug)]
pub struct Info {
    /// Profile; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: String,
    /// TSC clock in GHz where the header has none or is to be overridden
    #[arg(value_name = "GHZ")]
    pub ghz: Option<String>,
    /// The form of FILE, where it is not recognised
    #[arg(long, value_name = "FORM")]
    pub form: Option<Form>,
    /// What is no success.
    #[command(flatten)]
    pub limits: Limits,
}

/// Arguments of `export`.
#[derive(Args, Clone, Debug)]
pub struct Export {
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// What of it.
    #[command(flatten)]
    pub choice: Choice,
    /// The viewer
    #[arg(long, value_enum)]
    pub to: Viewer,
}

/// Viewers that profiles can be exported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Viewer {
    /// profiler.firefox.com (processed profile, JSON)
    Firefox,
    /// speedscope.app (JSON)
    Speedscope,
    /// pprof (protocol buffers, not compressed)
    Pprof,
    /// ui.perfetto.dev (Chrome's JSON trace)
    Perfetto,
}

/// Arguments of `heatmap`.
#[derive(Args, Clone, Debug)]
pub struct Heatmap {
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// What of it.
    #[command(flatten)]
    pub choice: Choice,
}

/// Arguments of `diff`.
#[derive(Args, Clone, Debug)]
pub struct Diff {
    /// The profile before (with --syms), or its folded stacks
    #[arg(value_name = "OLD")]
    pub old: String,
    /// The profile after (with --syms), or its folded stacks
    #[arg(value_name = "NEW")]
    pub new: String,
    /// Symbols of both profiles; without symbols OLD and NEW are folded stacks
    #[arg(long, value_name = "SYMS", conflicts_with_all = ["old_syms", "new_syms"])]
    pub syms: Option<String>,
    /// Symbols of OLD
    #[arg(long, value_name = "SYMS", requires = "new_syms")]
    pub old_syms: Option<String>,
    /// Symbols of NEW
    #[arg(long, value_name = "SYMS", requires = "old_syms")]
    pub new_syms: Option<String>,
    /// The form of the result
    #[arg(long, value_enum, default_value = "text")]
    pub format: DiffFormat,
    /// Confidence that not one row of the table is called changed by chance
    #[arg(long, value_name = "PART", value_parser = super::values::part, default_value = "99%")]
    pub confidence: f64,
    /// Exit code 4 if this holds, such as 'mm::* > +2%' (percent of all samples); may be repeated
    #[arg(long, value_name = "CLAIM")]
    pub fail_if: Vec<crate::diff::claim::Claim>,
    /// What is no success, of either side.
    #[command(flatten)]
    pub limits: Limits,
    /// Compare paths from the root too
    #[arg(long)]
    pub subtrees: bool,
    /// Rows shown at most; 0 shows all
    #[arg(long, default_value_t = 20)]
    pub top: usize,
    /// No talk on standard error but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Where to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    /// What of it.
    #[command(flatten)]
    pub choice: Choice,
}

/// Forms of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// A table
    Text,
    /// A table for a pull request
    Markdown,
    /// For programs
    Json,
    /// A differential flame graph (SVG): red grew, blue shrank
    Flamegraph,
}

/// Arguments of `annotate`.
#[derive(Args, Clone, Debug)]
pub struct Annotate {
    /// The function (`*` for anything)
    #[arg(value_name = "FUNCTION")]
    pub function: Pattern,
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// What of it.
    #[command(flatten)]
    pub choice: Choice,
}

/// Arguments of `top`.
#[derive(Args, Clone, Debug)]
pub struct Top {
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// What of it.
    #[command(flatten)]
    pub choice: Choice,
    /// Print the table once, as text
    #[arg(long)]
    pub once: bool,
    /// Functions shown at most with --once
    #[arg(long, default_value_t = 20)]
    pub top: usize,
    /// Seconds between two looks at the file
    #[arg(long, default_value_t = 1.0)]
    pub interval: f64,
}
