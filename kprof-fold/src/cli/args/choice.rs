//! Arguments that say which samples count and what is shown. Stage: command line.

use crate::select::{Cpus, Pattern};
use crate::symbols::Inlines;
use crate::tally::By;
use clap::{Args, ValueEnum};

/// Which samples count, and what is shown.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Which samples count")]
pub struct Choice {
    /// Only these CPUs, such as 0-3,7
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = crate::cli::values::cpus)]
    pub cpu: Vec<Cpus>,
    /// The recorded hits of this point instead of the samples, by their weight (not with lockups and doctor);
    /// heap.live: allocations that were not freed
    #[arg(long, value_name = "NAME")]
    pub event: Option<String>,
    /// With --event: the number of hits instead of their weight
    #[arg(long, requires = "event")]
    pub count: bool,
    /// Only tasks of this name (`*` for anything, /REGEX/); may be repeated
    #[arg(long, value_name = "NAME")]
    pub task: Vec<Pattern>,
    /// Only from one time to another: seconds since the first sample or hit, @seconds of the TSC clock, 0xTSC, a mark,
    /// start, end
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], allow_hyphen_values = true)]
    pub between: Vec<String>,
    /// Only stacks with this function, from it inwards: a name, the end or any part of one, `*` for anything, /REGEX/;
    /// may be repeated
    #[arg(long, value_name = "FUNCTION")]
    pub under: Vec<Pattern>,
    /// No stacks with this function (named as for --under); may be repeated
    #[arg(long, value_name = "FUNCTION")]
    pub not: Vec<Pattern>,
    /// Only stacks with this function, without what it has called; set by `report --callers`.
    #[arg(skip)]
    pub callers: Vec<Pattern>,
    /// Only samples taken with interrupts off, outside of interrupts and exceptions
    #[arg(long, conflicts_with = "irq_on")]
    pub irq_off: bool,
    /// Only samples taken with interrupts on, outside of interrupts and exceptions
    #[arg(long)]
    pub irq_on: bool,
    /// User samples and the user part of stacks too
    #[arg(long)]
    pub user: bool,
    /// Idle samples that the recording kept
    #[arg(long, value_enum, value_name = "show|hide", hide_possible_values = true, default_value = "show")]
    pub idle: Shown,
    /// One frame for all instances of a generic function
    #[arg(long)]
    pub merge_generics: bool,
    /// What is shown beside the samples [default: lost]. With lost,coalesced,user,idle shares are of all the time
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "lost|coalesced|user|idle|none",
        hide_possible_values = true
    )]
    pub show: Vec<Beside>,
    /// All inlined frames; report, top, diff and annotate charge inlined library code to the kernel's function
    #[arg(long, conflicts_with = "no_inline")]
    pub inline: bool,
    /// Without inlined frames (they need an ELF file with DWARF)
    #[arg(long)]
    pub no_inline: bool,
    /// Which inlined frames are shown if none of the two is given; set by the subcommand.
    #[arg(skip)]
    pub usual_inlines: Inlines,
    /// File and line after each name (they need an ELF file with DWARF)
    #[arg(long)]
    pub lines: bool,
    /// A root frame for each task, CPU or kernel entry; with report: one row for each of them, or for each source line
    #[arg(
        long,
        value_enum,
        value_name = "task|cpu|entry|line|reason",
        hide_possible_values = true,
        default_value = "none",
        hide_default_value = true
    )]
    pub by: By,
}

impl Choice {
    /// This choice, changed for a table of functions: inlined library code is charged to the kernel's own functions.
    #[must_use]
    pub fn for_table(&self) -> Self {
        Self { usual_inlines: Inlines::Own, ..self.clone() }
    }

    /// Which inlined frames are shown.
    pub fn inlines(&self) -> Inlines {
        match (self.inline, self.no_inline) {
            (true, _) => Inlines::All,
            (_, true) => Inlines::None,
            (false, false) => self.usual_inlines,
        }
    }

    /// Whether lost samples are shown: if nothing was chosen, or these were.
    pub fn shows_lost(&self) -> bool {
        self.show.is_empty() || self.show.contains(&Beside::Lost)
    }
}

/// What can be shown besides the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Beside {
    /// Lost samples
    Lost,
    /// Coalesced ticks
    Coalesced,
    /// Ticks in user code that were counted and not recorded
    User,
    /// Idle ticks that were counted and not recorded
    Idle,
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
