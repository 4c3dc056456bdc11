//! The arguments of the verbs that sample or count a machine. Stage: command line.
//!
//! In: the words after the verb, read by clap. Out: a structure for each verb. The verbs with arguments of their own
//! kind (`probe`, `syscalls`) have them in their files. Imports no verb.

use crate::place::{self, Given};
use crate::profile::Code;
use crate::tables::Unwind;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `count`.
#[derive(Args, Debug)]
pub struct Count {
    /// What has symbols.
    #[command(flatten)]
    pub given: Given,
    /// Only by function, not by calling context: faster
    #[arg(long)]
    pub flat: bool,
    /// Folded stacks with exact counts, for a flame graph
    #[arg(long, value_name = "FILE", conflicts_with = "flat")]
    pub folded: Option<PathBuf>,
    /// A flame graph (SVG) with exact counts; what runs before the kernel is left out
    #[arg(long, value_name = "FILE", conflicts_with = "flat")]
    pub flamegraph: Option<PathBuf>,
    /// Folded stacks by vCPU, of what is executed between --from and --to only
    #[arg(long, value_name = "FILE", conflicts_with = "flat")]
    pub per_cpu: Option<PathBuf>,
    /// With --per-cpu and --visits: begin when this function of the kernel is first called; otherwise at the start
    #[arg(long, value_name = "FUNCTION")]
    pub from: Option<String>,
    /// With --per-cpu and --visits: end before this function is first called after --from; otherwise at the end
    #[arg(long, value_name = "FUNCTION")]
    pub to: Option<String>,
    /// With --per-cpu: also by task, for a kernel with a function that changes to another task, whose third argument is
    /// where the CPU has the number of its task, and the fourth one this number
    #[arg(long, value_name = "FUNCTION", requires = "per_cpu")]
    pub task_switch: Option<String>,
    /// With --task-switch: a function that gives the running task another number
    #[arg(long, value_name = "FUNCTION", requires = "task_switch")]
    pub task_rename: Option<String>,
    /// A line for each interrupt that --visits-of handles, or each of --samples: vCPU, inside or outside of --from and
    /// --to, interrupted address, CS, exact stack
    #[arg(long, value_name = "FILE", conflicts_with = "flat", requires = "visited")]
    pub visits: Option<PathBuf>,
    /// The first function of an interrupt handler without an error code, as of NMIs
    #[arg(long, value_name = "FUNCTION", requires = "visits", group = "visited")]
    pub visits_of: Option<String>,
    /// A profile as record writes it, to compare its stacks with the exact ones of --visits
    #[arg(long, value_name = "FILE", requires = "visits", group = "visited")]
    pub samples: Option<PathBuf>,
    /// With --samples: a sample every N executed instructions of the machine on average
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    pub every: u64,
    /// With --samples: how their stacks are found
    #[arg(long, value_enum, default_value_t = Unwind::Auto)]
    pub unwind: Unwind,
    /// A line for each vCPU that goes on after the machine was stopped, as attach stops it: number of the stop from 1,
    /// vCPU, address, CS, exact stack
    #[arg(long, value_name = "FILE", conflicts_with = "flat")]
    pub stops: Option<PathBuf>,
    /// With --samples: the ELF file with the unwind tables, if it is not that of --kernel
    #[arg(long, value_name = "ELF", requires = "samples")]
    pub tables: Option<String>,
    /// The table; without it, standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Functions with a smaller share are one row
    #[arg(long, value_name = "PERCENT", default_value_t = 0.2)]
    pub min: f64,
    /// Also run QEMU without the plugin before, and say how many times longer it takes with it
    #[arg(long)]
    pub compare: bool,
    /// The QEMU command line; it must have -icount, or -accel tcg,thread=single, but for --flat with QEMU 9.2 and later
    #[arg(last = true, required = true, value_name = "QEMU")]
    pub qemu: Vec<String>,
}

/// Where a profile goes, and what is in it.
#[derive(Args, Clone, Debug)]
pub struct Profiling {
    /// The profile; an older file of this name becomes FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "profiling.txt")]
    pub output: PathBuf,
    /// Seed of the random intervals
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Also record samples of user code (their first address); otherwise they are only counted
    #[arg(long)]
    pub user: bool,
    /// Record samples of user code alone; those of the kernel are only counted
    #[arg(long, conflicts_with = "user")]
    pub user_only: bool,
    /// The kernel's ELF file, or what nm prints of it: at the end, kprof-fold prints its report and draws FILE.html
    #[arg(long, value_name = "ELF")]
    pub kernel: Option<String>,
    /// How much higher the kernel runs than its file says (KASLR, PIE); without it, this is found in the guest's memory
    #[arg(long, value_name = "0xBYTES", value_parser = place::slide, requires = "kernel", allow_hyphen_values = true)]
    pub slide: Option<u64>,
    /// How stacks are found
    #[arg(long, value_enum, default_value_t = Unwind::Auto)]
    pub unwind: Unwind,
    /// The ELF file with the unwind tables, if it is not that of --kernel: Linux's vmlinux, also without symbols
    #[arg(long, value_name = "ELF", requires = "kernel")]
    pub tables: Option<String>,
}

impl Profiling {
    /// What is recorded.
    pub fn code(&self) -> Code {
        match (self.user, self.user_only) {
            (_, true) => Code::User,
            (true, false) => Code::All,
            (false, false) => Code::Kernel,
        }
    }
}

/// Arguments of `record`.
#[derive(Args, Debug)]
pub struct Record {
    /// The profile.
    #[command(flatten)]
    pub profiling: Profiling,
    /// Samples per second and vCPU, by the host's clock, on average
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub hz: u64,
    /// A sample every N executed instructions of a vCPU on average, instead of by time; with -icount such a run can be
    /// repeated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..))]
    pub every: Option<u64>,
    /// Only this vCPU; may be repeated
    #[arg(long, value_name = "N")]
    pub cpu: Vec<u32>,
    /// The QEMU command line
    #[arg(last = true, required = true, value_name = "QEMU")]
    pub qemu: Vec<String>,
}

/// Arguments of `attach`.
#[derive(Args, Debug)]
pub struct Attach {
    /// The gdb stub: HOST:PORT, a port of this host, or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub gdb: String,
    /// The profile.
    #[command(flatten)]
    pub profiling: Profiling,
    /// Samples per second and vCPU, on average; fewer if the machine would be stopped for more than half of the time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub hz: u64,
    /// Only this vCPU; may be repeated
    #[arg(long, value_name = "N")]
    pub cpu: Vec<u32>,
    /// Ends after this time; without it, when the machine ends, or with Ctrl-C
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<f64>,
    /// Ends when there are this many samples
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: Option<u64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds < 1e9);
    seconds.ok_or_else(|| "a number of seconds is expected".to_owned())
}
