//! Finds or builds what every run of the test kernel needs: QEMU, busybox, the static programs, the host tool.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Result;

use crate::build;
use crate::initrd::Initrd;
use crate::qemu::{self, Accel, Machine};
use crate::run;
use crate::toolchain::{self, Choice};
use crate::tools::{self, Install};

/// The test kernel's programs.
const PROGRAMS: [&str; 7] =
    ["touch-pages", "syscall-check", "sweep-entries", "truth-entries", "forge-frames", "call-cost", "bad-buffer"];

/// The tools and programs for a run.
pub struct Parts {
    /// QEMU.
    pub qemu: PathBuf,
    /// Busybox.
    pub busybox: PathBuf,
    /// The folder of the daemon's binaries.
    pub daemon: PathBuf,
    /// The folder of the test kernel's programs.
    pub programs: PathBuf,
    /// The host tool.
    pub fold: PathBuf,
    /// The test kernel's module.
    pub module: PathBuf,
    /// The toolchain that compiles the kernel.
    pub toolchain: toolchain::Toolchain,
}

impl Parts {
    /// Finds tools and builds what every kernel run needs.
    ///
    /// # Errors
    /// If a tool is missing; the message says what to type.
    pub fn prepare(choice: Choice, install: Install) -> Result<Self> {
        let qemu = if qemu::chosen().is_none() { &qemu::PROGRAMS[..1] } else { &[] };
        tools::require(&[qemu, &[tools::NM, tools::BUSYBOX]].concat(), install)?;
        let qemu = qemu::find(install)?;
        let busybox = tools::busybox(install)?;
        let toolchain = toolchain::find(toolchain::KERNEL, choice, install)?;
        let musl = match choice {
            Choice::Distro => None,
            _ => toolchain::find(toolchain::MUSL, choice, install)
                .ok()
                .filter(|toolchain| *toolchain == toolchain::Toolchain::Toolchain),
        };
        if musl.is_none() {
            eprintln!("toolchain: static programs are linked with glibc");
        }
        let daemon = build::static_programs(musl, "kprof-daemon")?;
        let programs = build::static_programs(musl, "test-programs")?;
        let fold = build::tool("kprof-fold")?;
        let module = build::module(toolchain)?;
        Ok(Self { module, qemu, busybox, daemon, programs, fold, toolchain })
    }

    /// An initrd with all programs and the symbols of `kernel`.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn write_initrd(&self, kernel: &build::Kernel, path: &Path) -> Result<()> {
        let mut initrd = Initrd::new(&self.busybox)?;
        for name in ["profiled", "kprof-record"] {
            let program = self.daemon.join(name);
            if program.is_file() {
                initrd.file(&format!("bin/{name}"), &program)?;
            }
        }
        for name in PROGRAMS {
            initrd.file(&format!("bin/{name}"), &self.programs.join(name))?;
        }
        initrd.first_text("boot/syms.txt", &kernel.symbols);
        initrd.file("boot/module", &self.module)?;
        initrd.write(path)
    }

    /// Writes which functions with such names can have a probe.
    ///
    /// # Errors
    /// If `kprof-fold` refuses the kernel, or the file cannot be written.
    pub fn write_probes(&self, kernel: &build::Kernel, pattern: &str, path: &Path) -> Result<()> {
        run::output(Command::new(&self.fold).arg("probes").arg(&kernel.elf).arg(pattern).arg("-o").arg(path))?;
        Ok(())
    }

    /// The stacks of an event in a profile, folded, each with its weight.
    ///
    /// # Errors
    /// If `kprof-fold` refuses the profile.
    pub fn event_stacks<T: FromStr>(&self, event: &str, profile: &Path, symbols: &Path) -> Result<Vec<(String, T)>> {
        let mut fold = Command::new(&self.fold);
        let text = run::output(fold.args(["folded", "--quiet", "--event", event]).arg(profile).arg(symbols))?;
        let line = |line: &str| {
            let (stack, weight) = line.rsplit_once(' ')?;
            Some((stack.to_owned(), weight.parse().ok()?))
        };
        Ok(text.lines().filter_map(line).collect())
    }

    /// A machine that starts `kernel` with a complete initrd, which is written to the folder of the serial log.
    ///
    /// # Errors
    /// If the initrd cannot be written.
    pub fn machine<'a>(
        &self,
        kernel: &'a build::Kernel,
        share: &'a Path,
        serial: &'a Path,
        (accel, cpus): (Accel, u32),
        append: String,
        limit: Duration,
    ) -> Result<Machine<'a>> {
        let initrd = serial.with_file_name("initrd");
        self.write_initrd(kernel, &initrd)?;
        let kernel = &kernel.elf;
        let (second_serial, seed, disks, runner) = (None, None, Vec::new(), Vec::new());
        Ok(Machine { kernel, initrd, share, serial, second_serial, seed, accel, cpus, append, limit, disks, runner })
    }
}
