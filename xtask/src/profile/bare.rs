//! `cargo xtask profile --arch aarch64|riscv64`: builds the bare kernel, boots it in QEMU, folds what it has written to
//! the serial port, and draws it.
//!
//! In: the arguments. Out: the files that a run of the test kernel leaves; the profile is `serial.log`. Each run has a
//! time limit. With counted instructions (`-icount`) the machine has two CPUs: when the sampler CPU's timer is due,
//! QEMU runs a third CPU first, for up to 100 ms.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Result, bail};

use super::{Arguments, Trigger, clear, draw};
use crate::qemu::{self, Accel};
use crate::toolchain::{self, AARCH64, RISCV64, Target, Toolchain};
use crate::tools::Install;
use crate::{build, run};

/// The kernel's package.
const PACKAGE: &str = "bare-virt";
/// The most CPUs that the kernel has stacks for.
const MAX_CPUS: u32 = 4;
const BUILD_LIMIT: Duration = Duration::from_secs(900);
const BOOT_LIMIT: Duration = Duration::from_secs(300);
/// What each round of a storm may add to this limit: a hundred times what it takes on an idle host.
const ROUND_LIMIT: Duration = Duration::from_millis(500);

/// A processor for which the bare kernel is built.
#[derive(Clone, Copy, Debug)]
pub struct Processor {
    /// Its name, in cargo's and QEMU's words.
    pub name: &'static str,
    /// What it is compiled for.
    pub target: Target,
    /// QEMU's arguments for it.
    machine: &'static [&'static str],
    /// The interrupts that are its NMIs.
    nmi: &'static str,
}

/// The assembly between user mode and the kernel. A tick there has no more than the stub.
const STUBS: [&str; 7] = ["stubs", "sync", "irq", "user_sync", "user_irq", "enter_user", "leave_user"];

/// The folded stacks of the profile in a serial log. A damaged line or an account that does not balance is an error.
///
/// # Errors
/// If it cannot be folded.
pub fn folded(fold: &Path, serial: &Path, elf: &Path) -> Result<String> {
    run::output(Command::new(fold).args(["folded", "--strict", "--no-inline"]).arg(serial).arg(elf))
}

/// Whether a stack begins at a root of the kernel, or is that of an entry stub.
pub fn is_rooted(stack: &str) -> bool {
    match stack.strip_prefix("[truncated];") {
        Some(rest) => STUBS.contains(&rest),
        None => (stack.starts_with("kmain") || stack.starts_with("[syscall];")) && !stack.contains("[unknown"),
    }
}

/// aarch64, with an interrupt controller that has FIQs for the kernel.
pub const ON_AARCH64: Processor =
    Processor { name: "aarch64", target: AARCH64, machine: &["-M", "virt,gic-version=3", "-cpu", "max"], nmi: "FIQs" };
/// riscv64, without firmware: the kernel begins in machine mode.
pub const ON_RISCV64: Processor = Processor {
    name: "riscv64",
    target: RISCV64,
    machine: &["-M", "virt", "-cpu", "rv64", "-bios", "none"],
    nmi: "machine-mode interrupts",
};

/// How the kernel is booted.
#[derive(Clone, Copy, Debug)]
pub struct Boot {
    /// CPUs, one of which samples the others. One alone samples itself by its timer.
    pub cpus: u32,
    /// Whether time is counted instructions.
    pub is_counted: bool,
    /// The seed of the intervals between ticks.
    pub seed: u64,
    /// Ticks per second and CPU.
    pub hz: u32,
    /// Rounds of broken frame chains instead of ordinary work.
    pub storm: Option<u32>,
    /// Ticks are caused by loads that miss the data TLB, one after this many, and not by time.
    pub misses: Option<u64>,
    /// The kernel tells kprof that the cycle counter can be read.
    pub offers_cycles: bool,
}

/// What the kernel is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Ticks are NMIs.
    Nmi,
    /// Ticks are ordinary interrupts.
    Ipi,
    /// Ticks are NMIs, and a bounds check of the unwinder is missing.
    Broken,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Nmi => "nmi",
            Self::Ipi => "ipi",
            Self::Broken => "broken",
        }
    }
}

/// Runs the verb.
///
/// # Errors
/// If any step fails.
pub(super) fn run(arguments: &Arguments, processor: Processor) -> Result<ExitCode> {
    let install = Install(!arguments.no_install);
    let Processor { name, nmi, .. } = processor;
    let (cpus, is_counted) = match arguments.accel {
        Accel::Auto | Accel::Icount | Accel::Icount8 if arguments.trigger == Trigger::Timer => (1, true),
        Accel::Tcg if arguments.trigger == Trigger::Timer => (1, false),
        Accel::Auto | Accel::Icount | Accel::Icount8 => (2, true),
        Accel::Tcg if (2..=MAX_CPUS).contains(&arguments.cpus) => (arguments.cpus, false),
        Accel::Tcg => {
            bail!("--arch {name}: the bare kernel has 2 to {MAX_CPUS} CPUs, one of which samples the others")
        }
        Accel::Kvm => bail!("--arch {name}: KVM runs only the host's processor; use --accel icount or tcg"),
    };
    let variant = match arguments.trigger {
        // The kernel takes its timer where it has one CPU.
        Trigger::Nmi | Trigger::Timer => Variant::Nmi,
        Trigger::Ipi => Variant::Ipi,
        other => bail!(
            "--arch {name}: the bare kernel is sampled by nmi ({nmi}), ipi (ordinary interrupts) or timer, not by {}",
            other.name()
        ),
    };
    let qemu = processor.find(install)?;
    let elf = processor.kernel(toolchain::find(processor.target, arguments.toolchain, install)?, variant)?;
    let fold = build::tool("kprof-fold")?;
    let folder = &arguments.output;
    clear(folder)?;
    std::fs::copy(&elf, folder.join("kernel"))?;
    std::fs::write(folder.join("syms.txt"), build::symbols_of(&elf)?)?;
    let misses = arguments.dtlb_load_misses;
    if misses.is_some() && !(name == ON_RISCV64.name && arguments.trigger == Trigger::Timer) {
        bail!("--dtlb-load-misses: a counter interrupts the CPU that it counts on: --arch riscv64 --trigger timer");
    }
    let machine =
        Boot { cpus, is_counted, seed: arguments.seed, hz: arguments.hz, storm: None, misses, offers_cycles: true };
    let serial = folder.join("serial.log");
    processor.boot(&qemu, &elf, machine, &serial)?;
    let log = String::from_utf8_lossy(&std::fs::read(&serial)?).into_owned();
    // What the kernel says of its profiler may be why there is nothing to draw.
    log.lines().filter(|line| line.starts_with(SAID)).for_each(|line| println!("{line}"));
    // The ELF file, because its unwind tables tell which candidates are callers.
    draw(&fold, arguments, ["serial.log", "kernel"], &format!("kprof's bare kernel for {name}"))
}

/// How a line of the kernel's log begins that is about its profiler.
const SAID: &str = "bare: kprof: ";

impl Processor {
    /// Finds QEMU for this processor, or installs it.
    ///
    /// # Errors
    /// If it is missing; the message has the command to type.
    pub fn find(self, install: Install) -> Result<PathBuf> {
        qemu::program(self.name, install)
    }

    /// Builds the kernel, and gives its ELF file.
    ///
    /// # Errors
    /// If it does not build.
    pub fn kernel(self, toolchain: Toolchain, variant: Variant) -> Result<PathBuf> {
        let mut command = toolchain::cargo(toolchain, "build", self.target)?;
        command.args(["--quiet", "--release", "--package", PACKAGE]);
        if variant == Variant::Ipi {
            command.args(["--features", "irq"]);
        }
        if variant == Variant::Broken {
            let flags = format!("target.{}.rustflags=['--cfg', 'kprof_break_bounds']", self.target.triple);
            command.args(["--config", &flags]);
        }
        eprintln!("building {PACKAGE} for {}", self.name);
        let line = format!("{command:?}");
        let finished = run::caught(&mut command, BUILD_LIMIT)?;
        if !finished.status.is_some_and(|status| status.success()) {
            bail!("{line} failed:\n{}", finished.text);
        }
        let folder = toolchain::target_folder(&run::root(), toolchain).join(self.target.triple).join("release");
        let kept = folder.join(format!("{PACKAGE}-{}", variant.name()));
        run::copy_whole(&folder.join(PACKAGE), &kept)?;
        Ok(kept)
    }

    /// The command that boots it.
    pub fn command(self, qemu: &Path, elf: &Path, machine: Boot, serial: &Path) -> Command {
        let Boot { cpus, is_counted, seed, hz, storm, misses, offers_cycles } = machine;
        let storm = storm.map_or(String::new(), |rounds| format!(" storm=1 rounds={rounds}"));
        let event = misses.map_or(String::new(), |misses| format!(" event={misses}"));
        let mut command = run::bound(qemu);
        command.args(self.machine).args(["-m", "256M", "-nodefaults", "-display", "none"]);
        command.args(["-no-reboot", "-smp", &cpus.to_string()]);
        command.args(if is_counted { Accel::Icount } else { Accel::Tcg }.arguments()).arg("-kernel").arg(elf);
        let cycles = if offers_cycles { "" } else { " cycles=0" };
        command.args(["-append", &format!("seed={seed} hz={hz}{storm}{event}{cycles}")]);
        if misses.is_some() {
            // The last one counts: with a counter that interrupts.
            command.args(["-cpu", "rv64,sscofpmf=on"]);
        }
        command.arg("-serial").arg(format!("file:{}", serial.display()));
        if is_counted {
            // The device tree has random bytes, which the kernel reads.
            command.args(["-seed", "1", "-rtc", "base=2000-01-01T00:00:00,clock=vm"]);
        }
        command
    }

    /// Boots it; it ends by itself.
    ///
    /// # Errors
    /// If it does not end, or ends without its last line.
    pub fn boot(self, qemu: &Path, elf: &Path, machine: Boot, serial: &Path) -> Result<()> {
        let mut command = self.command(qemu, elf, machine, serial);
        let limit = BOOT_LIMIT + ROUND_LIMIT * machine.storm.unwrap_or(0);
        let finished = run::caught(&mut command, limit)?;
        let tail = qemu::last_lines(serial, 20);
        match finished.status {
            Some(status) if status.success() && tail.ends_with("bare: the end") => Ok(()),
            Some(status) => bail!("QEMU ended with {status}: {}\n{tail}", finished.text),
            None => bail!("QEMU was ended by the time limit of {} s: {}\n{tail}", limit.as_secs(), finished.text),
        }
    }
}
