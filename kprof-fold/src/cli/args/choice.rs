//! Arguments that say which samples count and what is shown. Stage: command line.

use crate::select::Pattern;
use crate::tally::By;
use clap::{Args, ValueEnum};

/// Which samples count, and what is shown.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Choosing")]
pub struct Choice {
    /// Only these CPUs, such as 1,3
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cpu: Vec<u32>,
    /// Only tasks of this name (`*` for anything); may be repeated
    #[arg(long, value_name = "NAME")]
    pub task: Vec<Pattern>,
    /// Only from one time to another: seconds since the first sample, @seconds of the TSC clock, 0xTSC, a mark, start,
    /// end
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
    /// What is shown beside the samples [default: lost]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub show: Vec<Beside>,
    /// Without inlined frames (they need an ELF file with DWARF)
    #[arg(long)]
    pub no_inline: bool,
    /// File and line after each name (they need an ELF file with DWARF)
    #[arg(long)]
    pub lines: bool,
    /// A root frame for each task or CPU
    #[arg(long, value_enum, default_value = "none")]
    pub by: By,
}

/// What can be shown besides the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Beside {
    /// Lost samples
    Lost,
    /// Coalesced ticks
    Coalesced,
    /// Nothing
    None,
}

/// Shown or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shown {
    /// Idle samples count.
    Show,
    /// Idle samples do not count.
    Hide,
}
