//! Arguments of the subcommands that look at one profile. Stage: command line.

use super::{Choice, Input, Limits};
use crate::cli::values::form_of_file;
use crate::error::Error;
use crate::output::report::Sort;
use crate::read::form::Form;
use crate::select::{Cpus, Pattern};
use clap::{Args, ValueEnum};

/// Arguments of `folded`.
#[derive(Args, Clone, Debug)]
pub struct Folded {
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
}

/// Arguments of `doctor`.
#[derive(Args, Clone, Debug)]
pub struct Doctor {
    /// The form of the output; without it the extension of -o FILE decides (.json, .csv, .txt), otherwise text
    #[arg(long, value_enum, value_name = "text|json|csv", hide_possible_values = true)]
    pub format: Option<TableFormat>,
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
}

/// Arguments of `flamegraph`.
#[derive(Args, Clone, Debug)]
pub struct Flamegraph {
    /// Title
    #[arg(long, default_value = "")]
    pub title: String,
    /// Roots at the top
    #[arg(long)]
    pub icicle: bool,
    /// Leaves become roots: who called this?
    #[arg(long)]
    pub reverse: bool,
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
}

/// Arguments of `html`.
#[derive(Args, Clone, Debug)]
pub struct Html {
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
    /// Title [default: the name of the profile]
    #[arg(long, default_value = "")]
    pub title: String,
    /// An older profile to compare with: changes are colored, in full color if they are more than chance
    #[arg(long, value_name = "FILE")]
    pub compare: Option<String>,
    /// Symbols of the older profile [default: SYMS]
    #[arg(long, value_name = "SYMS", requires = "compare")]
    pub compare_syms: Option<String>,
    /// Confidence that not one function is shown as changed by chance
    #[arg(long, value_name = "PART", value_parser = crate::cli::values::part, default_value = "99%")]
    pub confidence: f64,
}

/// Arguments of `report`.
#[derive(Args, Clone, Debug)]
pub struct Report {
    /// Order of the functions; `both` makes two tables, by self and by total time
    #[arg(long, value_enum, value_name = "both|self|total|name", hide_possible_values = true, default_value = "both")]
    pub sort: Sort,
    /// Rows shown at most; 0 shows all [default: 20 in text, all in JSON and CSV]
    #[arg(long, value_name = "ROWS")]
    pub top: Option<usize>,
    /// The form of the output; without it the extension of -o FILE decides (.json, .csv, .txt), otherwise text
    #[arg(long, value_enum, value_name = "text|json|csv", hide_possible_values = true)]
    pub format: Option<TableFormat>,
    /// A tree instead of the table: from callers to callees, or from callees to callers
    #[arg(long, value_enum, value_name = "callees|callers", hide_possible_values = true)]
    #[arg(num_args = 0..=1, default_missing_value = "callees")]
    pub tree: Option<crate::output::tree::Direction>,
    /// Who called this function: a tree of its callers, of stacks with it (named as for --under); may be repeated
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["tree", "callees"])]
    pub callers: Vec<Pattern>,
    /// What this function called: a tree from it inwards; may be repeated
    #[arg(long, value_name = "FUNCTION", conflicts_with = "tree")]
    pub callees: Vec<Pattern>,
    /// Leave out functions below this part of all samples, such as 0.2%
    #[arg(long, value_name = "PART", value_parser = crate::cli::values::part, default_value = "0%")]
    pub limit: f64,
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
}

/// Forms of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// For reading
    #[default]
    Text,
    /// For programs, with everything in it
    Json,
    /// For spreadsheets
    Csv,
}

impl TableFormat {
    /// The form that was asked for, or that the extension of the output asks for.
    ///
    /// # Errors
    /// If the extension is that of no form.
    pub fn of(given: Option<Self>, output: Option<&str>) -> Result<Self, Error> {
        let known = [("txt", Self::Text), ("json", Self::Json), ("csv", Self::Csv)];
        given.map_or_else(|| form_of_file(output, &known), Ok)
    }
}

/// Arguments of `script`.
#[derive(Args, Clone, Debug)]
pub struct Script {
    /// Offsets within functions
    #[arg(long)]
    pub offsets: bool,
    /// Offsets as frames of their own
    #[arg(long)]
    pub expand_offsets: bool,
    /// A stack ends where no function is known
    #[arg(long)]
    pub stop_at_unknown: bool,
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
}

/// What the subcommands read and write that need no symbols of a kernel.
#[derive(Args, Clone, Debug)]
pub struct Plain {
    /// Profile; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: String,
    /// The form of the output; without it the extension of -o FILE decides (.json, .csv, .txt), otherwise text. JSON
    /// and CSV have everything
    #[arg(long, value_enum, value_name = "text|json|csv", hide_possible_values = true)]
    pub format: Option<TableFormat>,
    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    /// The form of FILE, where it is not recognised: kprof, binary, serial, redox (0.2), redox-0.1
    #[arg(long, value_name = "FORM", hide_possible_values = true)]
    pub form: Option<Form>,
    /// What gives an exit code other than 0.
    #[command(flatten)]
    pub limits: Limits,
}

/// Arguments of `info`.
#[derive(Args, Clone, Debug)]
pub struct Info {
    /// What to read, and where to write.
    #[command(flatten)]
    pub plain: Plain,
    /// The kernel's ELF file or symbols, for the names of functions that have had a probe
    #[arg(value_name = "SYMS", help_heading = None::<&str>)]
    syms: Option<String>,
    /// TSC clock in GHz, where the header has none
    #[arg(value_name = "GHZ", help_heading = None::<&str>)]
    ghz: Option<String>,
}

impl Info {
    /// The symbols and the clock. A number that is no file is the clock, because symbols are seldom needed here.
    pub fn syms_and_ghz(&self) -> [Option<&str>; 2] {
        let is_clock = |word: &&str| crate::cli::values::ghz(word).is_ok() && !std::path::Path::new(word).exists();
        match [self.syms.as_deref(), self.ghz.as_deref()] {
            [Some(word), None] if is_clock(&word) => [None, Some(word)],
            given => given,
        }
    }
}

/// Arguments of `latency`.
#[derive(Args, Clone, Debug)]
pub struct Latency {
    /// What to read, and where to write.
    #[command(flatten)]
    pub plain: Plain,
    /// The kernel's ELF file or symbols, for the names of functions that have had a probe
    #[arg(value_name = "SYMS", help_heading = None::<&str>)]
    pub syms: Option<String>,
    /// Only this point; `block.*` is every point whose name begins with `block.`; may be repeated
    #[arg(long = "event", value_name = "NAME", help_heading = None::<&str>)]
    pub names: Vec<String>,
    /// Only hits on these CPUs, such as 0-3,7
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = crate::cli::values::cpus)]
    #[arg(help_heading = None::<&str>)]
    pub cpu: Vec<Cpus>,
    /// Recorded requests to disks, by disk and size
    #[arg(long, help_heading = None::<&str>)]
    pub by_size: bool,
}

/// Arguments of `waits`.
#[derive(Args, Clone, Debug)]
pub struct Waits {
    /// What to read, and where to write.
    #[command(flatten)]
    pub plain: Plain,
    /// Only tasks of this name (`*` for anything, /REGEX/); may be repeated
    #[arg(long, value_name = "NAME", help_heading = None::<&str>)]
    pub task: Vec<Pattern>,
}

/// Arguments of `lockups`.
#[derive(Args, Clone, Debug)]
pub struct Lockups {
    /// The form of the output; without it the extension of -o FILE decides (.folded, .json, .txt), otherwise text
    #[arg(long, value_enum, value_name = "text|json|folded", hide_possible_values = true)]
    pub format: Option<LockupFormat>,
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
}

/// Forms of lockups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LockupFormat {
    /// For reading
    #[default]
    Text,
    /// For programs, with everything in it
    Json,
    /// Where the CPUs were while they were locked up, as folded stacks
    Folded,
}

impl LockupFormat {
    /// The form that was asked for, or that the extension of the output asks for.
    ///
    /// # Errors
    /// If the extension is that of no form.
    pub fn of(given: Option<Self>, output: Option<&str>) -> Result<Self, Error> {
        let known = [("txt", Self::Text), ("json", Self::Json), ("folded", Self::Folded)];
        given.map_or_else(|| form_of_file(output, &known), Ok)
    }
}

/// Arguments of `export`.
#[derive(Args, Clone, Debug)]
pub struct Export {
    /// The viewer: firefox (profiler.firefox.com), speedscope, pprof (`go tool pprof`), perfetto (ui.perfetto.dev),
    /// perf.data (perf, hotspot, samply); parquet and otlp with the cargo features of these names
    #[arg(long, value_enum, value_name = "VIEWER", hide_possible_values = true)]
    pub to: Viewer,
    /// The name of the machine, for --to parquet
    #[cfg(feature = "parquet")]
    #[arg(long, value_name = "NAME", default_value = "")]
    pub machine: String,
    /// The name of the kernel's build instead of its build id, for --to parquet
    #[cfg(feature = "parquet")]
    #[arg(long, value_name = "NAME")]
    pub build: Option<String>,
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
}

impl Export {
    /// An export without further options.
    pub fn new(input: Input, choice: Choice, to: Viewer) -> Self {
        Self {
            input,
            choice,
            to,
            #[cfg(feature = "parquet")]
            machine: String::new(),
            #[cfg(feature = "parquet")]
            build: None,
        }
    }
}

/// Viewers that profiles can be exported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Viewer {
    /// profiler.firefox.com (processed profile, JSON)
    Firefox,
    /// speedscope.app (JSON)
    Speedscope,
    /// `go tool pprof` (protocol buffers; gzipped unless the file is named .pb)
    Pprof,
    /// ui.perfetto.dev (trace packets, protocol buffers)
    Perfetto,
    /// Linux perf, hotspot, samply (perf.data); needs the kernel's ELF file
    #[value(name = "perf.data")]
    PerfData,
    /// DuckDB, Spark, Polars, ClickHouse: tables in the folder of -o (docs/fleet.md)
    #[cfg(feature = "parquet")]
    Parquet,
    /// OpenTelemetry's profiles (protocol buffers); experimental, as the standard is (docs/fleet.md)
    #[cfg(feature = "otlp")]
    Otlp,
}

/// Arguments of `annotate`.
#[derive(Args, Clone, Debug)]
pub struct Annotate {
    /// The function: its name, the end or any part of it, `*` for anything, /REGEX/
    #[arg(value_name = "FUNCTION", index = 3)]
    pub function: Pattern,
    /// All instructions in the order of their addresses, instead of source lines
    #[arg(long)]
    pub instructions: bool,
    /// A folder with the kernel's source, where it is not at the place that the compiler has noted; may be repeated
    #[arg(long, value_name = "DIR")]
    pub source: Vec<String>,
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
}

/// Arguments of `top`.
#[derive(Args, Clone, Debug)]
pub struct Top {
    /// Print the table once, as text
    #[arg(long)]
    pub once: bool,
    /// Functions shown at most with --once
    #[arg(long, default_value_t = 20)]
    pub top: usize,
    /// Seconds between two reads of the file
    #[arg(long, default_value_t = 1.0)]
    pub interval: f64,
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
}

/// Arguments of `probes`.
#[derive(Args, Clone, Debug)]
pub struct Probes {
    /// The kernel's ELF file, for x86_64
    #[arg(value_name = "KERNEL")]
    pub kernel: String,
    /// Only these functions: a name, the end or any part of one, `*` for anything, /REGEX/ [default: all]
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<Pattern>,
    /// A function that handles NMIs or breakpoints and is not found by its name or by DWARF; it, its callers and all
    /// that it calls are refused; may be repeated
    #[arg(long, value_name = "NAME")]
    pub handler: Vec<String>,
    /// The debug file of a stripped KERNEL, where `.gnu_debuglink` does not lead to it
    #[arg(long, value_name = "FILE")]
    pub debug_file: Option<String>,
    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    /// Print only errors on standard error
    #[arg(short, long)]
    pub quiet: bool,
}

/// Arguments of `tables`.
#[derive(Clone, Debug, Args)]
pub struct Tables {
    /// The kernel's ELF file, for x86_64, with .eh_frame or .debug_frame, and a build id
    #[arg(value_name = "KERNEL")]
    pub kernel: String,
    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    /// Print only errors on standard error
    #[arg(short, long)]
    pub quiet: bool,
}
