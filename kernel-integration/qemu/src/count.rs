//! `count`: runs QEMU with every instruction counted, and writes the tables. Stage: capture to output.
//!
//! In: a QEMU command line, the kernel's ELF file. Out: a table by function, folded stacks, QEMU's exit code. Counts
//! that differ from each other are an error.

use crate::arguments::Count;
use crate::counted::Counted;
use crate::functions::Functions;
use crate::message::{Message, Totals};
use crate::place::{Given, Place};
use crate::profile::{About, Code};
use crate::run::{self, Run};
use crate::{drawn, recording, slowdown, table, tables};
use anyhow::{Context, Result, ensure};
use kprof_format::precision::Precision;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{ExitCode, ExitStatus};

/// Runs QEMU and writes what was counted.
///
/// # Errors
/// If QEMU cannot be run or takes no plugin, if a file cannot be read or written, if counts differ.
pub fn run(arguments: &Count) -> Result<ExitCode> {
    let run = if arguments.flat { Run::of_any(&arguments.qemu)? } else { Run::new(&arguments.qemu)? };
    ensure!(
        run.has_one_thread() || (arguments.flat && run.counts_each_vcpu()),
        "counters are exact only if QEMU runs all vCPUs in one thread: add -icount shift=0,sleep=off (the guest's \
         clock then counts instructions), or -accel tcg,thread=single; QEMU 9.2 and later count with --flat in several \
         threads, too"
    );
    let mut functions = Functions::open(&arguments.given)?;
    let file = run.file("functions", &functions.bytes())?;
    let mode = if arguments.flat { "flat" } else { "calls" };
    let clock = if run.has_icount() { ",icount=1" } else { "" };
    let options = format!("count={mode},functions={file}{clock}{}", self::options(arguments, &functions)?);
    let choose = || tables::choose(&arguments.given.kernel, arguments.tables.as_deref(), arguments.unwind);
    let tables = arguments.samples.as_ref().map(|_| choose());
    let options = match tables.transpose()?.flatten() {
        Some(tables) => format!("{options},tables={}", run.file("tables", &tables::bytes(&tables))?),
        None => options,
    };
    let alone = if arguments.compare { Some(slowdown::alone(&arguments.qemu)?) } else { None };
    let mut counted = Counted::new(&functions);
    let mut samples = arguments.samples.as_ref().map(|file| recording::create(file, &about())).transpose()?;
    let ((status, place), cost) = slowdown::measure(|| {
        placed(&run, &options, &arguments.given, &mut functions, |message, functions| match (&mut samples, message) {
            (Some(samples), Message::Sample(_)) => samples.take(message),
            _ => counted.take(message, functions),
        })
    })?;
    if let (Some(samples), Some(file)) = (samples, &arguments.samples) {
        samples.finish()?;
        place.write(file)?;
    }
    place.say()?;
    let totals = counted.finish(&functions)?;
    match &arguments.output {
        Some(file) => create(file, |out| table::write(&counted, &functions, arguments.min, out))?,
        None => table::write(&counted, &functions, arguments.min, &mut std::io::stdout().lock())?,
    }
    if arguments.folded.is_some() || arguments.flamegraph.is_some() {
        let folded = counted.folded(&functions);
        if let Some(file) = &arguments.folded {
            create(file, |out| folded.iter().try_for_each(|(stack, count)| writeln!(out, "{stack} {count}")))?;
        }
        if let Some(file) = &arguments.flamegraph {
            create(file, |out| drawn::write(&folded, out).map_err(std::io::Error::other))?;
        }
    }
    check(&counted, arguments)?;
    if let Some(file) = &arguments.per_cpu {
        let folded = counted.window.folded(&counted.names(&functions), arguments.task_switch.is_some());
        create(file, |out| folded.iter().try_for_each(|(stack, count)| writeln!(out, "{stack} {count}")))?;
    }
    if let Some(file) = &arguments.visits {
        create(file, |out| counted.window.write_visits(&counted.names(&functions), out))?;
    }
    if let Some(file) = &arguments.stops {
        create(file, |out| counted.window.write_stops(&counted.names(&functions), out))?;
    }
    for line in table::checks(&counted, &totals) {
        eprintln!("kprof-qemu: {line}");
    }
    warn(&totals);
    if let Some(alone) = alone {
        eprintln!("kprof-qemu: {}", slowdown::shown(&alone, &cost));
    }
    Ok(run::exit_code(status))
}

/// The plugin's options for what is counted between two functions.
///
/// # Errors
/// If a function is not the kernel's.
fn options(arguments: &Count, functions: &Functions) -> Result<String> {
    let mut options = String::new();
    let named = [
        ("from", "from", &arguments.from),
        ("to", "to", &arguments.to),
        ("visits", "visits-of", &arguments.visits_of),
        ("switch", "task-switch", &arguments.task_switch),
        ("rename", "task-rename", &arguments.task_rename),
    ];
    for (key, option, name) in named {
        if let Some(name) = name {
            let start =
                functions.start(name).with_context(|| format!("--{option}: the kernel has no function {name}"))?;
            options += &format!(",{key}={start}");
        }
    }
    if arguments.samples.is_some() {
        options += &format!(",beside={}", arguments.every);
    }
    if arguments.per_cpu.is_some() || arguments.visits.is_some() {
        options += ",parts=1";
    }
    if arguments.stops.is_some() {
        options += ",stops=1";
    }
    Ok(options)
}

/// Checks that something was executed between the two functions, if that was asked for.
///
/// # Errors
/// If the first function was never executed.
fn check(counted: &Counted, arguments: &Count) -> Result<()> {
    let is_asked = arguments.per_cpu.is_some() || arguments.visits.is_some();
    let from = arguments.from.as_deref().unwrap_or("the start");
    ensure!(!is_asked || !counted.window.parts.is_empty(), "nothing was executed from {from} on");
    Ok(())
}

/// Runs QEMU with counters. The functions are moved as soon as the plugin has found where the kernel runs.
///
/// # Errors
/// As [`Run::run`]; if the kernel's file cannot be read.
pub fn placed(
    run: &Run<'_>,
    options: &str,
    given: &Given,
    functions: &mut Functions,
    mut take: impl FnMut(&Message, &Functions) -> Result<()>,
) -> Result<(ExitStatus, Place)> {
    let mut place = Place::open(&given.kernel, given.slide)?;
    let options = format!("{options}{}", place.options(run)?);
    let status = run.run(&options, |message| match message {
        Message::Place(outcome) => {
            // The plugin says it again only if the guest has rebooted, and the kernel has moved.
            ensure!(
                place.moved().is_none(),
                "the guest has rebooted, and its kernel runs at another address now: instructions of one boot only can \
                 be counted (-no-reboot ends QEMU; nokaslr keeps Linux in its place)"
            );
            place.take(outcome);
            place.moved().map_or(Ok(()), |(range, by)| functions.slide(range, by))
        }
        _ => take(message, functions),
    })?;
    Ok((status, place))
}

/// What the header says of samples beside the counts.
fn about() -> About {
    About {
        arch: "x86_64",
        hz: None,
        seed: 1,
        precision: Precision::Instruction,
        code: Code::All,
        boot: recording::boot(),
    }
}

/// Warns of readings that were wrong.
pub fn warn(totals: &Totals) {
    if totals.wrong_stack_pointers > 0 {
        eprintln!(
            "kprof-qemu: warning: {} readings of the stack pointer were wrong; contexts may be wrong, sums are not",
            totals.wrong_stack_pointers
        );
    }
}

/// Writes a file.
///
/// # Errors
/// If it cannot be written.
pub fn create(file: &Path, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let done = File::create(file).and_then(|created| {
        let mut out = BufWriter::new(created);
        write(&mut out)?;
        out.flush()
    });
    done.with_context(|| format!("{}: cannot write", file.display()))
}
