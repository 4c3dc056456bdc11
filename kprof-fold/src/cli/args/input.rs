//! Arguments that say what to read, and what gives an exit code other than 0. Stage: command line.

use super::boot::BootChoice;
use crate::cli::values::ImageFile;
use crate::read::form::Form;
use clap::Args;

/// What gives an exit code other than 0 although there is output.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Reading and writing")]
pub struct Limits {
    /// Exit code 1 if any input was skipped, 2 if the symbols look wrong, 5 if a CPU's tick counters do not add up
    #[arg(long)]
    pub strict: bool,
    /// Exit code 3 if more than this part of the samples was lost, such as 1%
    #[arg(long, value_name = "PART", value_parser = crate::cli::values::part)]
    pub max_loss: Option<f64>,
}

/// What to read, how to read it, and where to write.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Reading and writing")]
pub struct Input {
    /// Profile (profiling.txt, Redox's older texts); `-` is standard input
    #[arg(value_name = "FILE", help_heading = None::<&str>)]
    pub file: String,
    /// Symbols: the kernel's ELF file, or what `nm -CS`, `nm` or `llvm-nm` prints of it
    #[arg(value_name = "SYMS", help_heading = None::<&str>)]
    pub syms: String,
    /// TSC clock in GHz where the header has none (also: LETTERS GHZ as of redox-kprofiling)
    #[arg(value_name = "GHZ", num_args = 0..=3, help_heading = None::<&str>)]
    pub rest: Vec<String>,
    /// The form of FILE, where it is not recognised: kprof, binary, serial, redox (0.2), redox-0.1
    #[arg(long, value_name = "FORM", hide_possible_values = true)]
    pub form: Option<Form>,
    /// Only this boot of a file with several: its number as `info` shows it, or `last`
    #[arg(long, value_name = "N|last")]
    pub boot: Option<BootChoice>,
    /// Symbols of a program or module that the profile names: an ELF file, or what nm prints; may be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = crate::cli::values::image)]
    pub image: Vec<ImageFile>,
    /// The debug file of a stripped SYMS, where `.gnu_debuglink` does not lead to it
    #[arg(long, value_name = "FILE")]
    pub debug_file: Option<String>,
    /// Symbols of the program that a task runs, for profiles that name no images (with --user); may be repeated. A
    /// position-independent program (ELF file, x86_64) is found where it ran
    #[arg(long, value_name = "TASK=FILE", value_parser = crate::cli::values::image)]
    pub user_syms: Vec<ImageFile>,
    /// Fold although the symbols do not belong to the profile
    #[arg(long)]
    pub force: bool,
    /// Exit code 1 if any input was skipped, 2 if the symbols look wrong, 5 if a CPU's tick counters do not add up
    #[arg(long)]
    pub strict: bool,
    /// Exit code 3 if more than this part of the samples was lost, such as 1%
    #[arg(long, value_name = "PART", value_parser = crate::cli::values::part)]
    pub max_loss: Option<f64>,
    /// Print only errors on standard error
    #[arg(short, long)]
    pub quiet: bool,
    /// Where to write instead of standard output; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    /// Whether the output shows the account, so that standard error need not; set by the subcommand.
    #[arg(skip)]
    pub shows_account: bool,
}

impl Input {
    /// All files that are read.
    pub fn files(&self) -> Vec<&str> {
        let images = self.image.iter().chain(&self.user_syms).map(|image| &image.file).chain(&self.debug_file);
        // The arguments after SYMS may be a clock, which is not a file, or a list of symbol files.
        [&self.file, &self.syms].into_iter().chain(images).chain(&self.rest).map(String::as_str).collect()
    }

    /// The limits. Their arguments are repeated in this group, because clap does not support a group inside an optional
    /// group.
    pub fn limits(&self) -> Limits {
        Limits { strict: self.strict, max_loss: self.max_loss }
    }
}
