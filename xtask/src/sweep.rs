//! `cargo xtask sweep`: hits every instruction of the entry and exit stubs, and looks at the stack of every hit.
//!
//! In: a run on counted instructions at a high rate, with nothing but system calls and page faults. Out: each instruction
//! of the stubs with its hits. Fails where one was never hit, or where a stack inside a stub is not: facts, then the border
//! that the stub makes, then what was interrupted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Args, Parser};

use crate::profile;
use crate::run;

/// Hits every instruction of the system call and page fault entries and exits, and checks each stack.
#[derive(Args)]
#[command(after_help = "Example: cargo xtask sweep -o target/sweep")]
pub struct Arguments {
    /// The output folder
    #[arg(short, long, default_value = "target/sweep")]
    output: PathBuf,
}

/// The functions of assembly that are swept, and the kinds of border (bits 8 to 11 of a marker) each may be inside of.
const SWEPT: [(&str, &[u64]); 4] =
    [("syscall_entry", &[3]), ("trap_stub_14", &[2]), ("trap_common", &[1, 2]), ("trap_return", &[1, 2])];
const MARKER_PAGE: u64 = 0xffff_ffff_ffff_f000;
const INTERRUPTS_OFF: u64 = MARKER_PAGE | 1;
const IDLE: u64 = 2;
const MOST_RUNS: u32 = 5;

/// Runs the verb.
///
/// # Errors
/// If an instruction was never hit, or a stack is wrong.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let output = arguments.output.display().to_string();
    let line = ["sweep", "--accel", "icount", "--cpus", "3", "--hz", "50000", "--workload", "sweep", "-o", &output];
    let line = profile::Line::try_parse_from(line)?;
    let mut samples = BTreeMap::new();
    // The first instruction of a fault's stub is only hit where a turn ends at the very instruction that faults: rarely.
    let mut run = 1;
    loop {
        profile::run(&line.profile)?;
        read_samples(&arguments.output.join("profiling.txt"), &mut samples)?;
        if let Some(code) = judge(&arguments.output.join("kernel"), &samples, run == MOST_RUNS)? {
            return Ok(code);
        }
        println!("not every instruction was hit yet: once more");
        run += 1;
    }
}

/// Lists and judges what was hit so far. `None`: something was not hit, and it is not the last run.
fn judge(kernel: &Path, samples: &Samples, last: bool) -> Result<Option<ExitCode>> {
    let (mut never, mut wrong, mut instructions) = (Vec::new(), Vec::new(), 0);
    for (name, kinds) in SWEPT {
        println!("\n{name}");
        for (address, text) in disassemble(kernel, name)? {
            let stacks = samples.get(&address).map_or(&[][..], Vec::as_slice);
            println!("  {address:x} {:6}  {text}", stacks.len());
            instructions += 1;
            if stacks.is_empty() {
                never.push(format!("{name}: {address:x} {text}"));
            }
            wrong.extend(stacks.iter().filter(|stack| !is_right(stack, kinds)).map(|stack| {
                let words: Vec<String> = stack.iter().map(|word| format!("{word:x}")).collect();
                format!("{name}: {address:x} {text}: {}", words.join(" "))
            }));
        }
    }
    println!("\n{instructions} instructions, {} never hit, {} wrong stacks", never.len(), wrong.len());
    if !wrong.is_empty() {
        bail!("wrong stacks:\n{}", wrong.join("\n"));
    }
    match never.is_empty() {
        true => Ok(Some(ExitCode::SUCCESS)),
        false if last => bail!("never hit:\n{}", never.join("\n")),
        false => Ok(None),
    }
}

/// The callers and markers of samples, by their first address.
type Samples = BTreeMap<u64, Vec<Vec<u64>>>;

/// Interrupts off, the stub's own border, then user code's marker and address, or the interrupted kernel address.
fn is_right(stack: &[u64], kinds: &[u64]) -> bool {
    match stack {
        [facts, border, interrupted, ..] => {
            facts & !IDLE == INTERRUPTS_OFF
                && *border >= MARKER_PAGE
                && kinds.contains(&(border >> 8 & 0xf))
                && !is_cut(*interrupted)
        }
        _ => false,
    }
}

fn is_cut(word: u64) -> bool {
    word >= MARKER_PAGE && word >> 8 & 0xf == 4
}

/// Adds the stacks of all samples of a file.
fn read_samples(profile: &Path, samples: &mut Samples) -> Result<()> {
    let text = std::fs::read_to_string(profile).with_context(|| profile.display().to_string())?;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<u64> = line.split(' ').skip(3).filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
        if let Some((first, callers)) = words.split_first() {
            samples.entry(*first).or_default().push(callers.to_vec());
        }
    }
    Ok(())
}

/// The instructions of a function: address and text.
fn disassemble(kernel: &Path, name: &str) -> Result<Vec<(u64, String)>> {
    let mut objdump = Command::new("objdump");
    objdump.args(["-d", "-w", "-M", "intel", &format!("--disassemble={name}")]).arg(kernel);
    let text = run::output(&mut objdump)?;
    let instructions: Vec<(u64, String)> = text
        .lines()
        .filter_map(|line| {
            let mut columns = line.split('\t');
            let address = u64::from_str_radix(columns.next()?.trim().strip_suffix(':')?, 16).ok()?;
            Some((address, columns.nth(1)?.trim().to_owned()))
        })
        .collect();
    if instructions.is_empty() {
        bail!("objdump finds no {name} in {}", kernel.display());
    }
    Ok(instructions)
}
