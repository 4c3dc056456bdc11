//! `cargo xtask profile --arch aarch64`: builds the bare kernel, boots it in QEMU, folds what it has written to the
//! serial port, and draws it.
//!
//! In: the arguments. Out: the files that a run of the test kernel leaves; the profile is `serial.log`. Each run has a
//! time limit. With counted instructions (`-icount`) the machine has two CPUs: when the sampler CPU's timer is due,
//! QEMU runs a third CPU first, for up to 100 ms.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use super::{Arguments, Trigger, clear, draw};
use crate::qemu::{self, Accel};
use crate::toolchain::{self, AARCH64, Toolchain};
use crate::tools::{self, Install};
use crate::{build, run};

/// The kernel's package.
const PACKAGE: &str = "bare-aarch64";
/// The most CPUs that the kernel has stacks for.
const MAX_CPUS: u32 = 4;
const BUILD_LIMIT: Duration = Duration::from_secs(900);
const BOOT_LIMIT: Duration = Duration::from_secs(300);

/// Runs the verb.
///
/// # Errors
/// If any step fails.
pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let install = Install(!arguments.no_install);
    let (cpus, is_counted) = match arguments.accel {
        Accel::Auto | Accel::Icount => (2, true),
        Accel::Tcg if (2..=MAX_CPUS).contains(&arguments.cpus) => (arguments.cpus, false),
        Accel::Tcg => {
            bail!("--arch aarch64: the bare kernel has 2 to {MAX_CPUS} CPUs, one of which samples the others")
        }
        Accel::Kvm => bail!("--arch aarch64: KVM runs only the host's processor; use --accel icount or tcg"),
    };
    let is_irq = match arguments.trigger {
        Trigger::Nmi => false,
        Trigger::Ipi => true,
        other => {
            bail!("--arch aarch64: the bare kernel is sampled by nmi (FIQs) or ipi (IRQs), not by {}", other.name())
        }
    };
    let qemu = find(install)?;
    let toolchain = toolchain::find(AARCH64, arguments.toolchain, install)?;
    let elf = kernel(toolchain, is_irq)?;
    let fold = build::host("kprof-fold", "")?.join("kprof-fold");
    let folder = &arguments.output;
    clear(folder)?;
    std::fs::copy(&elf, folder.join("kernel"))?;
    std::fs::write(folder.join("syms.txt"), build::symbols_of(&elf)?)?;
    boot(&qemu, &elf, cpus, is_counted, &folder.join("serial.log"))?;
    // The ELF file, because its unwind tables tell which candidates are callers.
    draw(&fold, arguments, ["serial.log", "kernel"], "kprof's bare kernel for aarch64")
}

/// Finds QEMU for this processor, or installs it.
///
/// # Errors
/// If it is missing; the message has the command to type.
pub fn find(install: Install) -> Result<PathBuf> {
    tools::program("qemu-system-aarch64", "qemu-system-arm", install)
}

/// Builds the kernel; with `is_irq`, ticks are IRQs instead of FIQs. Gives its ELF file.
///
/// # Errors
/// If it does not build.
pub fn kernel(toolchain: Toolchain, is_irq: bool) -> Result<PathBuf> {
    let mut command = toolchain::cargo(toolchain, "build", AARCH64)?;
    command.args(["--quiet", "--release", "--package", PACKAGE]);
    if is_irq {
        command.args(["--features", "irq"]);
    }
    eprintln!("building {PACKAGE}");
    let line = format!("{command:?}");
    let finished = run::caught(&mut command, BUILD_LIMIT)?;
    if !finished.status.is_some_and(|status| status.success()) {
        bail!("{line} failed:\n{}", finished.text);
    }
    let folder = toolchain::target_folder(&run::root(), toolchain).join(AARCH64.triple).join("release");
    let kept = folder.join(if is_irq { "bare-aarch64-irq" } else { "bare-aarch64-fiq" });
    run::copy_whole(&folder.join(PACKAGE), &kept)?;
    Ok(kept)
}

/// Boots it; it ends by itself.
///
/// # Errors
/// If it does not end, or ends without its last line.
pub fn boot(qemu: &Path, elf: &Path, cpus: u32, is_counted: bool, serial: &Path) -> Result<()> {
    let mut command = run::bound(qemu);
    command.args(["-M", "virt,gic-version=3", "-cpu", "max", "-m", "256M", "-nodefaults", "-display", "none"]);
    command.args(["-no-reboot", "-smp", &cpus.to_string()]);
    command.args(if is_counted { Accel::Icount } else { Accel::Tcg }.arguments()).arg("-kernel").arg(elf);
    command.arg("-serial").arg(format!("file:{}", serial.display()));
    let finished = run::caught(&mut command, BOOT_LIMIT)?;
    let tail = qemu::last_lines(serial, 20);
    match finished.status {
        Some(status) if status.success() && tail.ends_with("bare: the end") => Ok(()),
        Some(status) => bail!("QEMU ended with {status}: {}\n{tail}", finished.text),
        None => bail!("QEMU was ended by the time limit of {} s: {}\n{tail}", BOOT_LIMIT.as_secs(), finished.text),
    }
}
