//! The bare kernel for aarch64: it is small, boots, gives the shares that its loops have, and sees code with IRQs
//! masked only if ticks are FIQs.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{at_most, lines};
use crate::profile::bare::{boot, find, kernel};
use crate::run;
use crate::test::{Context, Outcome};
use crate::toolchain::{self, AARCH64};

/// The most lines of its source files.
const SOURCE_LINES: usize = 400;
/// The loops that run with IRQs unmasked, and their turns in percent of these together.
const LOOPS: [(&str, f64); 3] = [("half", 0.5), ("third", 0.3), ("fifth", 0.2)];
/// The loop that runs with IRQs masked, as a part of all loops.
const MASKED: f64 = 0.2;
/// A share that is right is further away than this many standard deviations once in a thousand times.
const DEVIATIONS: f64 = 3.29;
/// The least samples of a run.
const MIN_SAMPLES: u64 = 250;

/// Runs the checks; without the tools for this processor they are skipped.
pub(super) fn run(context: &mut Context, outcome: &mut Outcome) -> Result<()> {
    let source = run::root().join("kernel-integration/ports/bare-aarch64/src");
    outcome.check("the bare kernel for aarch64 is small", at_most(lines(&source)?, SOURCE_LINES));
    let fold = context.parts()?.fold.clone();
    let found = find(context.install)
        .and_then(|qemu| Ok((qemu, toolchain::find(AARCH64, context.toolchain, context.install)?)));
    let (qemu, toolchain) = match found {
        Ok(found) => found,
        Err(why) => {
            outcome.skipped.push(format!("the bare kernel for aarch64: {why:#}"));
            return Ok(());
        }
    };
    let output = run::root().join("target/bare");
    for (name, is_irq) in [("aarch64, ticks are FIQs", false), ("aarch64, ticks are IRQs", true)] {
        let serial = output.join(format!("serial-aarch64-{}.log", if is_irq { "irq" } else { "fiq" }));
        let looked = kernel(toolchain, is_irq).and_then(|elf| {
            boot(&qemu, &elf, 2, true, &serial)?;
            shares(&fold, &serial, &elf, is_irq)
        });
        outcome.check(name, looked);
    }
    let serial = output.join("serial-aarch64-fiq.log");
    outcome.check("a kernel for another processor is refused by name", refused(&fold, &serial));
    Ok(())
}

/// Checks the samples of the loops, and that each stack leads to `kmain`.
fn shares(fold: &Path, serial: &Path, elf: &Path, is_irq: bool) -> Result<()> {
    let log = String::from_utf8_lossy(&std::fs::read(serial)?).into_owned();
    let trigger = if is_irq { "# trigger ipi" } else { "# trigger nmi" };
    for line in ["# arch aarch64", trigger] {
        log.lines().find(|text| text.ends_with(line)).with_context(|| format!("no line {line}"))?;
    }
    // --strict: a damaged line or an account that does not balance is an error.
    let folded = run::output(Command::new(fold).args(["folded", "--strict", "--no-inline"]).arg(serial).arg(elf))?;
    let samples = |name: &str| -> u64 {
        let stack = format!("kmain;bare_aarch64::work;bare_aarch64::{name};bare_aarch64::turns ");
        folded.lines().filter_map(|line| line.strip_prefix(&stack)?.parse::<u64>().ok()).sum()
    };
    let (unmasked, masked) = (LOOPS.iter().map(|(name, _)| samples(name)).sum::<u64>(), samples("masked"));
    if unmasked < MIN_SAMPLES {
        bail!("{unmasked} samples of the loops, at least {MIN_SAMPLES} are wanted:\n{folded}");
    }
    for (name, part) in LOOPS {
        near(name, samples(name), unmasked, part)?;
    }
    if is_irq && masked > 0 {
        bail!("{masked} samples with IRQs masked, by an IRQ");
    }
    if !is_irq {
        near("masked", masked, unmasked + masked, MASKED)?;
    }
    match folded.lines().find(|line| !line.starts_with("kmain") || line.contains(";[")) {
        Some(strange) => bail!("a strange stack: {strange}"),
        None => Ok(()),
    }
}

/// Whether `count` of `all` samples can be random ones of a part that takes this share of the time.
fn near(name: &str, count: u64, all: u64, part: f64) -> Result<()> {
    let (count, all) = (count as f64, all as f64);
    let bound = DEVIATIONS * (all * part * (1.0 - part)).sqrt();
    println!("{name}: {count} of {all} samples, {:.0} to {:.0} are right", all * part - bound, all * part + bound);
    if (count - all * part).abs() > bound { bail!("{name}: {count} of {all} samples") } else { Ok(()) }
}

/// The profile is not folded with an ELF file for the host.
fn refused(fold: &Path, serial: &Path) -> Result<()> {
    let output = Command::new(fold).arg(serial).arg(fold).output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_named = text.contains("it is for x86_64, and the profile is of aarch64");
    if output.status.success() || !is_named { bail!("{}: {text}", output.status) } else { Ok(()) }
}
