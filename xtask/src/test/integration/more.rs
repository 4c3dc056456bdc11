//! The optional parts of the bare kernel: its heap is profiled, and a CPU that is locked up is reported.
//!
//! In: the kernel, built with the features `heap` and `lockup`, and booted with counted instructions. Out: a check of
//! each part by its serial log, with the byte counts that `more/heap.rs` states.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::boot;
use crate::build;
use crate::run;
use crate::test::Outcome;
use crate::toolchain::{self, KERNEL, Toolchain};

/// The rounds of the work, and what each allocates and frees, and allocates and keeps.
const ROUNDS: u64 = 40;
const PARSED_BYTES: u64 = 3000;
const KEPT_BYTES: u64 = 1000;

/// Builds and boots it, and checks both parts. `accel` is that of a machine which counts instructions.
pub(super) fn run(
    toolchain: Toolchain,
    (qemu, fold): (&Path, &Path),
    accel: &[&str],
    output: &Path,
    outcome: &mut Outcome,
) {
    let serial = output.join("serial-more.log");
    let booted = built(toolchain).and_then(|elf| boot(qemu, &elf, "2", accel, &serial).map(|()| elf));
    match booted {
        Ok(elf) => {
            outcome.check("the bare kernel's heap", heap(fold, &serial, &elf));
            outcome.check("a CPU of the bare kernel that is locked up", lockup(fold, &serial, &elf));
        }
        Err(error) => outcome.not_passed(&format!("the bare kernel with its optional parts: {error:#}"), &error),
    }
}

/// In a target folder of its own, because other groups boot the kernel without these features.
fn built(toolchain: Toolchain) -> Result<PathBuf> {
    let target = run::root().join("target/bare-more");
    let mut command = toolchain::cargo(toolchain, "build", KERNEL)?;
    command.args(["--features", "heap,lockup"]).arg("--target-dir").arg(&target);
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
