//! Arguments of the subcommands that look at one profile. Stage: command line.

use super::{Choice, Input, Limits};
use crate::output::report::Sort;
use crate::read::form::Form;
use crate::select::Pattern;
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

/// Arguments of `flamegraph`.
#[derive(Args, Clone, Debug)]
pub struct Flamegraph {
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
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
    /// Which samples count, and how they are shown.
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
    #[arg(long, value_name = "PART", value_parser = crate::cli::values::part, default_value = "0%")]
    pub limit: f64,
}

/// Arguments of `script`.
#[derive(Args, Clone, Debug)]
pub struct Script {
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
    /// Offsets within functions
    #[arg(long)]
    pub offsets: bool,
    /// Offsets as frames of their own
    #[arg(long)]
    pub expand_offsets: bool,
    /// A stack ends where no function is known
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
    /// What gives an exit code other than 0.
    #[command(flatten)]
    pub limits: Limits,
}

/// Arguments of `export`.
#[derive(Args, Clone, Debug)]
pub struct Export {
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
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
    /// `go tool pprof` (protocol buffers, gzipped)
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
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
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
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
}

/// Arguments of `top`.
#[derive(Args, Clone, Debug)]
pub struct Top {
    /// What to read.
    #[command(flatten)]
    pub input: Input,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
    /// Print the table once, as text
    #[arg(long)]
    pub once: bool,
    /// Functions shown at most with --once
    #[arg(long, default_value_t = 20)]
    pub top: usize,
    /// Seconds between two reads of the file
    #[arg(long, default_value_t = 1.0)]
    pub interval: f64,
}
