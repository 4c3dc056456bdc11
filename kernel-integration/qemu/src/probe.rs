//! `probe`: runs QEMU and watches chosen functions of the kernel. Stage: capture to output.
//!
//! In: a QEMU command line, the kernel's ELF file, expressions. Out: for each function that was called: calls, who
//! called it, how long the calls took in the guest's clock, and chosen calls with their arguments and stacks.

mod expression;
mod json;
mod output;

use crate::count::{create, placed, warn};
use crate::counted::Counted;
use crate::functions::Functions;
use crate::message::Message;
use crate::place::Given;
use crate::run::{self, Run};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use expression::Expression;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// What `--help` ends with.
pub const HELP: &str = "Examples: how often and by whom memory is allocated; how long calls of the file system take,
also if their task sleeps; the third call with a large size, with its stack
  kprof-qemu probe -e '*allocate*:by caller' --kernel kernel.elf -- qemu-system-x86_64 ... -icount shift=0,sleep=off
  kprof-qemu probe -e '*::fs::*:latency' --kernel kernel.elf -- qemu-system-x86_64 ...
  kprof-qemu probe -e 'kernel::read:if rdx >= 0x1000:nth 3' --kernel kernel.elf -- qemu-system-x86_64 ...
  kprof-qemu probe -e '*allocate*' --json calls.json --folded calls.folded --kernel kernel.elf -- qemu-system-x86_64 ...

An expression is a pattern of names with * and ?, and after it, each after a colon:
  latency      how long calls take, from the first instruction to the return, in the guest's clock; needs -icount
  by caller    who calls
  by task      on which stack of the guest: its 16 KiB
  by rdi       with which argument; also rsi, rdx, rcx, r8, r9
  if rdi > 5   only such calls; also =, !=, <, <=, >=, & (a bit in common); numbers may be 0x...; several must all hold
  nth 3        arguments and stack of the third such call

The guest cannot notice: nothing is written to it, and its clock counts its own instructions.";

/// Arguments of `probe`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// What to watch; may be repeated
    #[arg(short, long = "expression", value_name = "EXPRESSION", required = true)]
    pub expressions: Vec<String>,
    /// What has symbols.
    #[command(flatten)]
    pub given: Given,
    /// With `by`: this many of each function
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// The report; without it, standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The report as JSON, with units in its keys, and all ranges of the histograms
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Folded stacks of the watched functions with their calls, for a flame graph; without `if`
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// The QEMU command line; it must have -icount, or -accel tcg,thread=single
    #[arg(last = true, required = true, value_name = "QEMU")]
    pub qemu: Vec<String>,
}

/// A function that is watched, and why.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The number of the expression.
    pub expression: usize,
    /// The function's number.
    pub function: u32,
}

/// Runs QEMU and writes what was found.
///
/// # Errors
/// If QEMU cannot be run or takes no plugin, if a file cannot be read or written, if an expression is invalid.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let parse = |text: &String| text.parse::<Expression>().with_context(|| format!("-e '{text}'"));
    let expressions: Vec<Expression> = arguments.expressions.iter().map(parse).collect::<Result<_>>()?;
    let run = Run::new(&arguments.qemu)?;
    ensure!(
        run.has_one_thread(),
        "calls can be followed only if QEMU runs all vCPUs in one thread: add -icount shift=0,sleep=off"
    );
    if !run.has_icount() && expressions.iter().any(|expression| expression.has_time) {
        bail!("latency is in the guest's clock, which must count instructions: add -icount shift=0,sleep=off");
    }
    if arguments.folded.is_some() && expressions.iter().any(Expression::has_condition) {
        bail!("--folded has all calls of a function: leave `if` out");
    }
    let mut functions = Functions::open(&arguments.given)?;
    let mut words = Vec::new();
    let mut watched = Vec::new();
    for (number, expression) in expressions.iter().enumerate() {
        let before = watched.len();
        for (function, start, _) in functions.of_kernel().filter(|(.., name)| expression.matches(name)) {
            words.push(start);
            words.extend(expression.words());
            watched.push(Watched { expression: number, function });
        }
        ensure!(watched.len() > before, "-e '{}': no function has such a name", arguments.expressions[number]);
    }
    eprintln!("kprof-qemu: {} functions are watched", watched.len());
    let file = run.file("functions", &functions.bytes())?;
    let probes = run.file("probes", &words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())?;
    let clock = if run.has_icount() { ",icount=1" } else { "" };
    let options = format!("count=calls,functions={file},probes={probes}{clock}");
    let mut counted = Counted::new(&functions);
    let take = |message: &Message, functions: &Functions| counted.take(message, functions);
    let (status, place) = placed(&run, &options, &arguments.given, &mut functions, take)?;
    place.say()?;
    let totals = counted.finish(&functions)?;
    let report =
        output::Report { counted: &counted, functions: &functions, expressions: &expressions, watched: &watched };
    match &arguments.output {
        Some(file) => create(file, |out| report.write(arguments.top, out))?,
        None => report.write(arguments.top, &mut std::io::stdout().lock())?,
    }
    if let Some(file) = &arguments.json {
        let json = report.json(&arguments.expressions);
        create(file, |out| writeln!(out, "{json:#}"))?;
    }
    if let Some(file) = &arguments.folded {
        create(file, |out| report.folded().iter().try_for_each(|(stack, calls)| writeln!(out, "{stack} {calls}")))?;
    }
    if totals.counts.unexplained > 0 {
        eprintln!("kprof-qemu: {} jumps without a reason: callers and times may be wrong", totals.counts.unexplained);
    }
    warn(&totals);
    Ok(run::exit_code(status))
}
