//! Arguments of `diff`. Stage: command line.

use super::{Choice, ImageFile, Limits};
use crate::cli::values::form_of_file;
use crate::error::Error;
use clap::{Args, ValueEnum};

/// Arguments of `diff`.
#[derive(Args, Clone, Debug)]
pub struct Diff {
    /// OLD NEW SYMS: two profiles and the symbols of both. Without SYMS they are folded stacks. OLD OLD-SYMS NEW
    /// NEW-SYMS: each has its own symbols. With `--`: one or more runs of OLD, each side's SYMS after its runs
    #[arg(value_name = "OLD", required = true, num_args = 1..)]
    pub files: Vec<String>,
    /// One or more runs of NEW, and their symbols if they are others. Options come before `--`
    #[arg(value_name = "NEW", last = true)]
    pub new: Vec<String>,
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
    /// The form of the output; without it the extension of -o FILE decides (.txt, .md, .json, .svg), otherwise text
    #[arg(long, value_enum, value_name = "text|markdown|json|flamegraph", hide_possible_values = true)]
    pub format: Option<DiffFormat>,
    /// Confidence that not one row of the table is called changed by chance, and of each --fail-if for itself
    #[arg(long, value_name = "PART", value_parser = crate::cli::values::part, default_value = "99%")]
    pub confidence: f64,
    /// Exit code 4 if this holds, such as 'mm::* > +2%' or 'self map < -1%' (percent of all samples); may be repeated
    #[arg(long, value_name = "CLAIM")]
    pub fail_if: Vec<crate::diff::claim::Claim>,
    /// Compare paths from the root too
    #[arg(long)]
    pub subtrees: bool,
    /// Both sides did the same work at the same rate: compare numbers of samples, not shares
    #[arg(long)]
    pub same_work: bool,
    /// Rows shown at most; 0 shows all [default: 20, in JSON all]
    #[arg(long, value_name = "ROWS")]
    pub top: Option<usize>,
    /// Print only errors on standard error
    #[arg(short, long)]
    pub quiet: bool,
    /// Where to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    /// What gives an exit code other than 0, on either side.
    #[command(flatten)]
    pub limits: Limits,
    /// Which samples count, and how they are shown.
    #[command(flatten)]
    pub choice: Choice,
}

impl DiffFormat {
    /// The form that was asked for, or that the extension of the output asks for.
    ///
    /// # Errors
    /// If the extension is that of no form.
    pub fn of(given: Option<Self>, output: Option<&str>) -> Result<Self, Error> {
        let known = [("txt", Self::Text), ("md", Self::Markdown), ("json", Self::Json), ("svg", Self::Flamegraph)];
        given.map_or_else(|| form_of_file(output, &known), Ok)
    }
}

/// Forms of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// A table
    #[default]
    Text,
    /// A table for a pull request
    Markdown,
    /// For programs
    Json,
    /// A differential flame graph (SVG): red grew, blue shrank
    Flamegraph,
}
