//! The bare kernel for aarch64 and riscv64: it is small, boots, gives the shares that its loops have, and sees code
//! with interrupts masked only if ticks are NMIs. A kernel for another processor is refused.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::no_trigger::FAULTS;
use super::{at_most, lines, misses, self_cost};
use crate::profile::bare::{ON_AARCH64, ON_RISCV64, Processor};
use crate::qemu::Version;
use crate::run;
use crate::test::outcome::{Context, Outcome};
use crate::truth::processors::{Bare, TRIGGERS, judge};

/// The most lines of the files for one processor: the port of kprof, the folder of the processor.
const SOURCE_LINES: usize = 400;
/// The QEMU in which a counter of TLB misses never interrupts, because bit 13 of `mie` stays 0.
const WITHOUT_TLB_MISSES: (u32, u32) = (10, 0);
/// Runs the checks; without the tools for a processor its checks are skipped.
pub(super) fn run(context: &mut Context, outcome: &mut Outcome) -> Result<()> {
    for processor in [ON_AARCH64, ON_RISCV64] {
        let name = processor.name;
        outcome.check(&format!("the bare kernel for {name} is small"), source(processor));
        if let Err(why) = boots(processor, context, outcome) {
            outcome.not_passed(&format!("the bare kernel for {name}: {why:#}"), &why);
        }
    }
    Ok(())
}

/// Whether the files for this processor are small.
fn source(processor: Processor) -> Result<()> {
    let folder = run::root().join("kernel-integration/ports/bare-virt/src");
    let port = std::fs::read_to_string(folder.join("profiling.rs"))?.lines().count();
    at_most(port + lines(&folder.join(processor.name))?, SOURCE_LINES)
}

/// Boots the kernel with each trigger: ticks are NMIs, ordinary interrupts of another CPU, and those of its own timer.
/// `cargo xtask truth --arch` has more.
fn boots(processor: Processor, context: &mut Context, outcome: &mut Outcome) -> Result<()> {
    let fold = context.parts()?.fold.clone();
    let bare = Bare::prepare(processor, context.toolchain, context.install)?;
    let name = processor.name;
    let serial = |trigger: &str| run::root().join(format!("target/bare/serial-{name}-{trigger}.log"));
    for trigger in TRIGGERS {
        let judged = bare.boot(trigger, 1, &serial(trigger)).and_then(|()| {
            let rows = bare.rows(trigger, &serial(trigger))?;
            let wrong = judge(&format!("{name}, {trigger}"), &rows, TRIGGERS.len())?;
            if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
        });
        outcome.check(&format!("{name}, trigger {trigger}"), judged);
    }
    outcome.check(&format!("{name}, a kernel for another processor"), refused(&fold, &serial("nmi"), name));
    let qemu = processor.find(context.install)?;
    let checked = self_cost::check(processor, (&qemu, &fold), bare.kernel("nmi"), &serial("nmi"));
    outcome.check(&format!("{name}, self cost"), checked);
    let version = Version::of(&qemu)?;
    if name == ON_RISCV64.name && version.number == WITHOUT_TLB_MISSES {
        let said = misses::none(processor, &qemu, bare.kernel("timer"), &serial("misses"));
        outcome.check(&format!("{name}, no ticks by TLB misses in QEMU {}, and the log says so", version.text), said);
    } else if name == ON_RISCV64.name {
        let checked = misses::check(processor, &qemu, &fold, bare.kernel("timer"), &serial("misses"));
        outcome.check(&format!("{name}, ticks by TLB misses"), checked);
    }
    for fault in FAULTS.iter().filter(|fault| fault.is_of(processor)) {
        let checked = fault.check(processor, &qemu, &fold, bare.kernel("nmi"));
        outcome.check(&format!("{name}, {}", fault.name), checked);
    }
    Ok(())
}

/// The profile is not folded with an ELF file for the host.
fn refused(fold: &Path, serial: &Path, arch: &str) -> Result<()> {
    let output = Command::new(fold).arg(serial).arg(fold).output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_named = text.contains(&format!("it is for x86_64, and the profile is of {arch}"));
    if output.status.success() || !is_named { bail!("{}: {text}", output.status) } else { Ok(()) }
}
