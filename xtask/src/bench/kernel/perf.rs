//! The comparison for the slowdown of `dd` and for hits: Debian's Linux and its perf, in the same QEMU, with the same
//! busybox.
//!
//! In: Debian's packages `linux-image-amd64` (fetched and unpacked, never installed) and `linux-perf`. Out: what
//! the init script (`perf.sh`, `tracepoints.sh`) has measured, as lines of the serial log.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::initrd::Initrd;
use crate::linux;
use crate::parts::Parts;
use crate::qemu::{Accel, Machine};
use crate::run;
use crate::tools::{self, Install};

/// A Linux that can be started.
pub struct Linux {
    folder: PathBuf,
    kernel: PathBuf,
}

impl Linux {
    /// Downloads the kernel, and packs perf with the libraries that it needs, an init script, and other programs.
    ///
    /// # Errors
    /// If Debian's packages cannot be downloaded.
    pub fn prepare(parts: &Parts, install: Install, init: &str, programs: &[&Path]) -> Result<Self> {
        let folder = linux::folder();
        std::fs::create_dir_all(folder.join("root"))?;
        let kernel = linux::kernel(install)?;
        let perf = tools::program("perf", "linux-perf", install)?;
        let mut initrd = Initrd::empty();
        ["bin", "proc", "sys", "dev", "tmp"].iter().for_each(|folder| initrd.folder(Path::new(folder)));
        initrd.file("bin/busybox", &parts.busybox)?;
        initrd.file("bin/perf", &perf)?;
        for program in programs {
            let name = program.file_name().context("a program has a name")?.to_string_lossy();
            initrd.file(&format!("bin/{name}"), program)?;
        }
        for library in libraries(&perf)? {
            let name = library.trim_start_matches('/');
            initrd.folder(Path::new(name).parent().context("a library lies in a folder")?);
            initrd.file(name, Path::new(&library))?;
        }
        initrd.first_text("init", init);
        initrd.write(&folder.join("initrd"))?;
        Ok(Self { folder, kernel })
    }

    /// Runs some rounds of `dd` and returns their lines `dd off|HZ NANOSECONDS`.
    ///
    /// # Errors
    /// If Linux does not end by itself, or perf records nothing.
    pub fn run_dd(&self, parts: &Parts, cpus: u32, (rounds, blocks): (u32, u32)) -> Result<String> {
        let append = format!("rounds={rounds} blocks={blocks}");
        self.run(parts, (Accel::Tcg, cpus), &append, Duration::from_secs(90 * u64::from(rounds)))
    }

    /// Runs the init script to its end, and returns the serial log.
    ///
    /// # Errors
    /// If Linux does not end by itself, or the script says that perf has failed.
    pub fn run(&self, parts: &Parts, (accel, cpus): (Accel, u32), append: &str, limit: Duration) -> Result<String> {
        let serial = self.folder.join("serial.log");
        let machine = Machine {
            kernel: &self.kernel,
            initrd: self.folder.join("initrd"),
            share: &self.folder.join("root"),
            serial: &serial,
            second_serial: None,
            seed: None,
            accel,
            cpus,
            append: format!("console=ttyS0 quiet {append}"),
            limit,
            disks: Vec::new(),
            runner: Vec::new(),
        };
        eprintln!("running Linux with its perf on {cpus} CPUs ({})", accel.name());
        let verdict = machine.run(&parts.qemu, || ())?;
        let log = String::from_utf8_lossy(&std::fs::read(&serial)?).into_owned();
        if !log.contains("reboot: Power down")
            || log.contains("perf has recorded nothing")
            || log.contains("perf has failed")
        {
            bail!("Linux: {verdict:?}; its log:\n{log}");
        }
        Ok(log)
    }
}

/// The shared libraries of a program, with its loader.
fn libraries(program: &Path) -> Result<Vec<String>> {
    let text = run::output(Command::new("ldd").arg(program))?;
    let words = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(words.map(str::to_owned).collect())
}
