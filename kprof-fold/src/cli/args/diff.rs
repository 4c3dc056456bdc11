//! Arguments of `diff`. Stage: command line.

use super::{Choice, ImageFile, Limits};
use clap::{Args, ValueEnum};

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
    /// Symbols of a program or module that both profiles name; may be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = crate::cli::values::image)]
    pub image: Vec<ImageFile>,
    /// Symbols of a program or module of OLD; may be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = crate::cli::values::image)]
    pub old_image: Vec<ImageFile>,
    /// Symbols of a program or module of NEW; may be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = crate::cli::values::image)]
    pub new_image: Vec<ImageFile>,
    /// Compare although the symbols do not belong to the profiles
    #[arg(long)]
    pub force: bool,
    /// The form of the result
    #[arg(long, value_enum, default_value = "text")]
    pub format: DiffFormat,
    /// Confidence that not one row of the table is called changed by chance
    #[arg(long, value_name = "PART", value_parser = crate::cli::values::part, default_value = "99%")]
    pub confidence: f64,
    /// Exit code 4 if this holds, such as 'mm::* > +2%' (percent of all samples); may be repeated
    #[arg(long, value_name = "CLAIM")]
    pub fail_if: Vec<crate::diff::claim::Claim>,
    /// What gives an exit code other than 0, on either side.
    #[command(flatten)]
    pub limits: Limits,
    /// Compare paths from the root too
    #[arg(long)]
    pub subtrees: bool,
    /// Both sides did the same work at the same rate: compare numbers of samples, not shares
    #[arg(long)]
    pub same_work: bool,
    /// Rows shown at most; 0 shows all
    #[arg(long, default_value_t = 20)]
    pub top: usize,
    /// Print only errors on standard error
    #[arg(short, long)]
    pub quiet: bool,
    /// Where to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    /// Which samples count, and how they are shown.
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
