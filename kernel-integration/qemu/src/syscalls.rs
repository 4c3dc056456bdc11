//! `syscalls`: runs QEMU and counts the instructions of each system call. Stage: capture to output.
//!
//! In: a QEMU command line, the kernel's ELF file. Out: a row for each number of a call, as text or JSON, and the sum
//! of all executed instructions by what they were executed for. Sums that differ are an error.

use crate::calls::{Calls, Kind, Row};
use crate::count::{create, placed, warn};
use crate::counted::Counted;
use crate::functions::Functions;
use crate::message::Message;
use crate::place::Given;
use crate::run::{self, Run};
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use syscalls::x86_64::Sysno;

/// What `--help` ends with.
pub const HELP: &str = "Examples:
  kprof-qemu syscalls --kernel kernel.elf -- \\
      qemu-system-x86_64 -kernel kernel.elf -nographic -icount shift=0,sleep=off
  kprof-qemu syscalls --kernel kernel.elf --functions 5 --format json -o calls.json -- qemu-system-x86_64 ...

It counts instructions, not time. The exit code is QEMU's; 2 if QEMU could not be run or if two counts of the same
instructions differ.";

/// Arguments of `syscalls`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// What has symbols.
    #[command(flatten)]
    pub given: Given,
    /// The first function of the kernel's entry, whose number is in RAX; without it, what follows `syscall`
    #[arg(long, value_name = "FUNCTION")]
    pub entry: Option<String>,
    /// For each call, the N functions with the most instructions of their own
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub functions: usize,
    /// A table, or JSON
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// The table; without it, standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The QEMU command line; it must have -icount, or -accel tcg,thread=single
    #[arg(last = true, required = true, value_name = "QEMU")]
    pub qemu: Vec<String>,
}

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Runs QEMU and writes what was counted.
///
/// # Errors
/// If QEMU cannot be run or takes no plugin, if a file cannot be read or written, if counts differ.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let run = Run::new(&arguments.qemu)?;
    ensure!(
        run.has_one_thread(),
        "counters are exact only if QEMU runs all vCPUs in one thread: add -icount shift=0,sleep=off"
    );
    let mut functions = Functions::open(&arguments.given)?;
    let file = run.file("functions", &functions.bytes())?;
    let entry = match &arguments.entry {
        Some(name) => {
            let start = functions.start(name);
            format!(",entry={}", start.with_context(|| format!("--entry: the kernel has no function {name}"))?)
        }
        None => String::new(),
    };
    let clock = if run.has_icount() { ",icount=1" } else { "" };
    let options = format!("count=calls,syscalls=1,functions={file}{clock}{entry}");
    let mut counted = Counted::new(&functions);
    let take = |message: &Message, functions: &Functions| counted.take(message, functions);
    let (status, place) = placed(&run, &options, &arguments.given, &mut functions, take)?;
    place.say()?;
    let totals = counted.finish(&functions)?;
    counted.calls.finish(counted.rows.iter().map(|row| row.own))?;
    let write = |out: &mut dyn Write| match arguments.format {
        Format::Table => table(&counted.calls, &functions, arguments.functions, out),
        Format::Json => writeln!(out, "{:#}", value(&counted.calls, &functions, arguments.functions)),
    };
    match &arguments.output {
        Some(file) => create(file, |out| write(out))?,
        None => write(&mut std::io::stdout().lock())?,
    }
    eprintln!("kprof-qemu: {}", sum(&counted.calls, totals.executed)?);
    if totals.counts.unexplained > 0 {
        eprintln!(
            "kprof-qemu: {} jumps without a reason: calls around them may be wrong, sums are not",
            totals.counts.unexplained
        );
    }
    warn(&totals);
    Ok(run::exit_code(status))
}

/// The name of a call in Linux.
fn name(number: u64) -> String {
    let known = usize::try_from(number).ok().and_then(Sysno::new);
    known.map_or_else(|| format!("[{}]", number.cast_signed()), |call| call.name().to_owned())
}

/// The rows, the one with the most instructions first.
fn sorted(calls: &Calls) -> Vec<(u64, &Row)> {
    let mut rows: Vec<(u64, &Row)> = calls.rows.iter().map(|(number, row)| (*number, row)).collect();
    rows.sort_by_key(|(number, row)| (std::cmp::Reverse(row.own), *number));
    rows
}

fn table(calls: &Calls, functions: &Functions, top: usize, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "{:>5} {:<20} {:>9} {:>6} {:>9} {:>9} {:>9} {:>13} {:>11}",
        "", "system call", "calls", "open", "minimum", "median", "99 %", "instructions", "interrupts"
    )?;
    for (number, row) in sorted(calls) {
        let number_shown = if number < 100_000 { number.to_string() } else { "-".to_owned() };
        write!(out, "{number_shown:>5} {:<20} {:>9} {:>6}", name(number), row.each.len() as u64 + row.open, row.open)?;
        for part in [0.0, 0.5, 0.99] {
            let shown = row.quantile(part).map_or_else(|| "-".to_owned(), |count| count.to_string());
            write!(out, " {shown:>9}")?;
        }
        writeln!(out, " {:>13} {:>11}", row.own, row.interrupts)?;
        for (function, own) in row.top(top) {
            let calls = (row.each.len() as u64 + row.open).max(1);
            let (per_call, percent) = (own as f64 / calls as f64, own as f64 * 100.0 / row.own as f64);
            writeln!(out, "{per_call:>35.1} a call {percent:>6.2} %  {}", functions.name(function))?;
        }
    }
    Ok(())
}

fn value(calls: &Calls, functions: &Functions, top: usize) -> Value {
    let row = |(number, row): (u64, &Row)| {
        let functions: Vec<Value> = row
            .top(top)
            .into_iter()
            .map(|(function, own)| json!({"function": functions.name(function), "instructions": own}))
            .collect();
        json!({
            "number": number, "name": name(number), "calls": row.each.len() as u64 + row.open, "open": row.open,
            "minimum": row.quantile(0.0), "median": row.quantile(0.5), "p99": row.quantile(0.99),
            "instructions": row.own, "interrupts": row.interrupts, "functions": functions,
        })
    };
    json!({
        "unit": "instructions",
        "calls": sorted(calls).into_iter().map(row).collect::<Vec<_>>(),
        "sums": {
            "calls": calls.of(Kind::Calls), "interrupts": calls.of(Kind::Interrupts),
            "exceptions": calls.of(Kind::Exceptions), "outside": calls.of(Kind::Outside),
            "user": calls.of(Kind::User), "executed": calls.kinds.values().sum::<u64>(),
        },
    })
}

/// The proof that nothing is missing.
fn sum(calls: &Calls, executed: u64) -> Result<String> {
    let sum: u64 = calls.kinds.values().sum();
    ensure!(sum == executed, "the counts differ: the sum is {sum}, {executed} were executed; please report this");
    Ok(format!(
        "{} in calls + {} in interrupts + {} in exceptions of user code + {} in the kernel outside of these + {} in \
         user code = {executed} executed instructions",
        calls.of(Kind::Calls),
        calls.of(Kind::Interrupts),
        calls.of(Kind::Exceptions),
        calls.of(Kind::Outside),
        calls.of(Kind::User)
    ))
}
