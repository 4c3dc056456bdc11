//! The optional parts of the bare kernel: its heap is profiled, a CPU that is locked up is reported, and a probe counts
//! the calls of a function.
//!
//! In: the kernel, built with the features `heap`, `lockup` and `probes`, and booted with counted instructions. Out: a
//! check of each part by its serial log, with the numbers that the files of `more/` state.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use kprof_format::probe::{Line, Place, lines};

use super::boot;
use crate::build;
use crate::run;
use crate::test::outcome::Outcome;
use crate::toolchain::{self, KERNEL, Toolchain};

/// The rounds of the work, and what each allocates and frees, and allocates and keeps.
const ROUNDS: u64 = 40;
const PARSED_BYTES: u64 = 3000;
const KEPT_BYTES: u64 = 1000;
/// The function that gets a probe, and for how many numbers, from 2 on, the kernel calls it before, with and after it.
const PROBED: &str = "bare::is_prime";
const NUMBERS: u32 = 30_000;

/// Builds and boots it, and checks all parts. `accel` is that of a machine which counts instructions.
pub(super) fn run(
    toolchain: Toolchain,
    (qemu, fold): (&Path, &Path),
    accel: &[&str],
    output: &Path,
    outcome: &mut Outcome,
) {
    let serial = output.join("serial-more.log");
    let booted = built(toolchain).and_then(|elf| {
        let command = probe(fold, &elf)?;
        boot(qemu, &elf, "2", &[accel, &["-append", &command]].concat(), &serial).map(|()| elf)
    });
    match booted {
        Ok(elf) => {
            outcome.check("the bare kernel's heap", heap(fold, &serial, &elf));
            outcome.check("a CPU of the bare kernel that is locked up", lockup(fold, &serial, &elf));
            outcome.check("a probe on a function of the bare kernel", probed(fold, &serial, &elf));
        }
        Err(error) => outcome.not_passed(&format!("the bare kernel with its optional parts: {error:#}"), &error),
    }
}

/// In a target folder of its own, because other groups boot the kernel without these features.
fn built(toolchain: Toolchain) -> Result<PathBuf> {
    let target = run::root().join("target/bare-more");
    let mut command = toolchain::cargo(toolchain, "build", KERNEL)?;
    command.args(["--features", "heap,lockup,probes"]).arg("--target-dir").arg(&target);
    build::bare(command, target)
}

fn heap(fold: &Path, serial: &Path, elf: &Path) -> Result<()> {
    let of = |event: &str| run::output(Command::new(fold).args(["--strict", "--event", event]).arg(serial).arg(elf));
    let all = of("heap.alloc")?;
    let bytes = [bytes_under(&all, "heap::parse"), bytes_under(&all, "heap::remember")];
    ensure!(bytes == [ROUNDS * PARSED_BYTES, ROUNDS * KEPT_BYTES], "allocated: {bytes:?}\n{all}");
    let live = of("heap.live")?;
    let bytes = [bytes_under(&live, "heap::parse"), bytes_under(&live, "heap::remember")];
    ensure!(bytes == [0, ROUNDS * KEPT_BYTES], "not freed: {bytes:?}\n{live}");
    Ok(())
}

/// The sum over the folded stacks that contain this function.
fn bytes_under(folded: &str, function: &str) -> u64 {
    let stacks = folded.lines().filter_map(|line| line.rsplit_once(' ')).filter(|(stack, _)| stack.contains(function));
    stacks.filter_map(|(_, bytes)| bytes.parse::<u64>().ok()).sum()
}

fn lockup(fold: &Path, serial: &Path, elf: &Path) -> Result<()> {
    let log = String::from_utf8_lossy(&std::fs::read(serial)?).into_owned();
    ensure!(log.contains("bare: soft lockup: CPU 1 has had interrupts off for "), "no report in the log");
    let told = run::output(Command::new(fold).arg("lockups").arg(serial).arg(elf))?;
    ensure!(told.matches("soft lockup: CPU 1 had interrupts off for ").count() == 1, "not one lockup:\n{told}");
    ensure!(told.contains("bare::more::stuck::spin"), "the function is not named:\n{told}");
    Ok(())
}

/// The ctl command that puts the probe, with the places that the host finds.
fn probe(fold: &Path, elf: &Path) -> Result<String> {
    let found = run::output(Command::new(fold).arg("probes").arg(elf).arg(PROBED))?;
    for line in lines(&found) {
        if let Line::Place(Place { address, exits, name: PROBED }) = line.map_err(anyhow::Error::msg)? {
            let exits: Vec<String> = exits.map(|exit| format!("{exit:x}")).collect();
            ensure!(!exits.is_empty(), "{PROBED} returns, and no exit was found:\n{found}");
            return Ok(format!("probe {address:x} {}", exits.join(" ")));
        }
    }
    Err(anyhow::anyhow!("{PROBED} cannot have a probe:\n{found}"))
}

/// The work has the same results without and with the probe, which has counted the calls that were made meanwhile, and
/// no others. The breakpoint that no probe has caused was the kernel's own. Samples in the entry stub of breakpoints
/// have their callers, and no function that is not known.
fn probed(fold: &Path, serial: &Path, elf: &Path) -> Result<()> {
    let log = String::from_utf8_lossy(&std::fs::read(serial)?).into_owned();
    ensure!(!log.contains("bare: kprof: "), "the port is not right:\n{}", crate::qemu::last_lines(serial, 20));
    let line = log.lines().find(|line| line.contains("with a probe")).context("no line of the probe in the log")?;
    let is_prime = |number: &u32| (2..*number).take_while(|by| by * by <= *number).all(|by| !number.is_multiple_of(by));
    let (calls, primes) = (NUMBERS - 2, (2..NUMBERS).filter(is_prime).count());
    let work = format!("({calls}, {primes})");
    let expected = format!("bare: (calls, primes): {work}, with a probe {work}, then {work}; 1 own int3");
    ensure!(line == expected, "the log has:\n{line}\nand not:\n{expected}");
    let told = run::output(Command::new(fold).args(["info", "--strict"]).arg(serial).arg(elf))?;
    let hits = format!("point probe.{PROBED}: {calls} hits, ");
    let is_counted = |line: &str| line.trim().starts_with(&hits) && line.ends_with(", 0 lost");
    ensure!(told.lines().any(is_counted), "no `{hits}..., 0 lost`:\n{told}");
    let folded = run::output(Command::new(fold).arg("--strict").arg(serial).arg(elf))?;
    let stacks: Vec<&str> = folded.lines().filter(|line| line.contains("::breakpoint_entry")).collect();
    let is_whole = |line: &&str| line.starts_with("kmain;") && line.contains("probes::work") && !line.contains(";[u");
    ensure!(!stacks.is_empty() && stacks.iter().all(is_whole), "stacks of breakpoints:\n{}", stacks.join("\n"));
    Ok(())
}
