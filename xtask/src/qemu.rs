//! QEMU: only this file knows its command line. Every run has a time limit, and no process is left running.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::run::{self, Guard};
use crate::tools::{self, Install, Program};

/// How QEMU runs the guest's instructions, and with it what time means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Accel {
    /// kvm if it works, otherwise icount.
    Auto,
    /// Hardware; time is wall time.
    Kvm,
    /// Counted instructions on one host thread: exact places, no coalesced ticks.
    Icount,
    /// The same, but each instruction takes eight nanoseconds of guest time: for runs of many guest seconds.
    #[value(name = "icount-8ns", hide = true)]
    Icount8,
    /// A host thread per CPU: real concurrency, inexact time.
    Tcg,
}

impl Accel {
    /// Its name on the kernel's command line and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kvm => "kvm",
            Self::Icount | Self::Icount8 => "icount",
            Self::Tcg => "tcg",
        }
    }

    /// Its part of QEMU's command line.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Auto | Self::Icount => &["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"],
            Self::Icount8 => &["-accel", "tcg,thread=single", "-icount", "shift=3,sleep=off"],
            Self::Kvm => &["-accel", "kvm"],
            Self::Tcg => &["-accel", "tcg,thread=multi"],
        }
    }

    /// The CPU model. With counted instructions it has no x2APIC: see [`NO_X2APIC`].
    pub fn cpu(self) -> &'static str {
        match self {
            Self::Kvm => "host",
            Self::Tcg => "max",
            Self::Auto | Self::Icount | Self::Icount8 => NO_X2APIC,
        }
    }
}

/// The CPU model for counted instructions. From QEMU 9.0 on `max` has x2APIC mode, in which the APIC's timer is set by
/// `wrmsr`. QEMU does not translate that instruction as one that may use the clock, so under `-icount` it ends itself
/// with "Bad icount read" (seen with 10.0, 10.2 and 11.1).
pub const NO_X2APIC: &str = "max,-x2apic";

/// What to say of a QEMU that ended itself, if its output has a message whose cause is known.
fn explained(said: &str) -> Option<&'static str> {
    said.contains("Bad icount read").then_some(
        "the kernel has set its timer by `wrmsr` in x2APIC mode, which QEMU 9.0 and newer cannot do under -icount: give \
         the machine `-cpu max,-x2apic` (docs/repeatable.md)",
    )
}

/// How a run ended, from the exit code (isa-debug-exit: 2 * value + 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel powered off after success.
    Success,
    /// A scenario failed.
    Failure,
    /// The kernel panicked.
    Panic,
    /// The time limit ended QEMU.
    TimeLimit,
    /// QEMU ended by itself with this code (`None`: by a signal).
    Died(Option<i32>),
}

/// A machine to run.
pub struct Machine<'a> {
    /// The kernel's ELF file.
    pub kernel: &'a Path,
    /// The initrd.
    pub initrd: PathBuf,
    /// The folder that the guest sees as /root.
    pub share: &'a Path,
    /// The serial log.
    pub serial: &'a Path,
    /// The file to which the second serial port writes; `None` for a machine without one.
    pub second_serial: Option<&'a Path>,
    /// The seed of QEMU's own random numbers. With a seed the machine's clock counts instructions from a fixed date on.
    pub seed: Option<u64>,
    /// How it runs; not `Auto`.
    pub accel: Accel,
    /// CPUs.
    pub cpus: u32,
    /// The kernel's command line.
    pub append: String,
    /// The time limit of the run.
    pub limit: Duration,
    /// The image of each disk, in the order of their numbers; most machines have none.
    pub disks: Vec<PathBuf>,
    /// A program and its words that run QEMU; empty: none does.
    pub runner: Vec<String>,
}

/// The folder of the QEMU that `--qemu` names.
static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// Takes the programs of this folder, or of the folder of this program, from now on. Called once, before all others.
///
/// # Errors
/// If there is no QEMU.
pub fn choose(path: &Path) -> Result<()> {
    let path = path.canonicalize().with_context(|| format!("--qemu {}", path.display()))?;
    let folder = if path.is_dir() { path.as_path() } else { path.parent().unwrap_or(&path) };
    let entries = std::fs::read_dir(folder).with_context(|| format!("--qemu {}", folder.display()))?;
    let is_program = |name: &str| name.starts_with(PROGRAM);
    if !entries.flatten().any(|entry| entry.file_name().to_str().is_some_and(is_program)) {
        bail!("--qemu: {} has no program {PROGRAM}*", folder.display());
    }
    CHOSEN.get_or_init(|| folder.to_owned());
    Ok(())
}

/// What `--qemu` has chosen, for another process of these verbs.
pub fn chosen() -> Option<&'static Path> {
    CHOSEN.get().map(PathBuf::as_path)
}

/// What the names of QEMU's programs begin with; the guest's processor follows.
const PROGRAM: &str = "qemu-system-";

/// QEMU's programs by the guest's processor, and Debian's packages of them. (The last one is a name that another
/// package provides: in Debian 12 `qemu-system-misc`, in newer ones `qemu-system-riscv`.)
pub const PROGRAMS: [Program; 3] = [
    Program { name: "qemu-system-x86_64", package: "qemu-system-x86" },
    Program { name: "qemu-system-aarch64", package: "qemu-system-arm" },
    Program { name: "qemu-system-riscv64", package: "qemu-system-riscv64" },
];

/// Finds the QEMU for guests with this processor, or installs it.
///
/// # Errors
/// If it is missing; the message has the command to type.
pub fn program(processor: &str, install: Install) -> Result<PathBuf> {
    let is_for = |program: &Program| program.name.strip_prefix(PROGRAM) == Some(processor);
    let Program { name, package } =
        PROGRAMS.into_iter().find(is_for).with_context(|| format!("no QEMU is known for {processor}"))?;
    let Some(folder) = chosen() else { return tools::program(name, package, install) };
    let path = folder.join(name);
    if path.is_file() { Ok(path) } else { Err(tools::missing(format!("--qemu: {} has no {name}", folder.display()))) }
}

/// Finds the QEMU for x86_64 guests, or installs it.
///
/// # Errors
/// If it is missing; the message has the command to type.
pub fn find(install: Install) -> Result<PathBuf> {
    program("x86_64", install)
}

/// QEMU's words for one instruction in each translation block, which makes the guest slow.
///
/// # Errors
/// As [`Version::of`].
pub fn one_instruction_per_block(qemu: &Path) -> Result<&'static [&'static str]> {
    let has_property = Version::of(qemu)?.number >= (8, 1);
    Ok(if has_property { &["-accel", "tcg,one-insn-per-tb=on"] } else { &["-singlestep"] })
}

/// The first version that divides the time to the next deadline by the number of vCPUs of a thread.
const SHARED_TURNS: (u32, u32) = (8, 1);

/// A version of QEMU: major and minor number, and the rest of what it calls itself (`10.0.13`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Major and minor number.
    pub number: (u32, u32),
    /// The whole version.
    pub text: String,
}

impl Version {
    /// The version of this program.
    ///
    /// # Errors
    /// If it cannot be started or does not tell its version.
    pub fn of(qemu: &Path) -> Result<Self> {
        let said = run::output(Command::new(qemu).arg("--version"))?;
        Self::read(&said).with_context(|| format!("{} --version does not tell a version: {said}", qemu.display()))
    }

    /// The words of the kernel's command line that depend on it: what the profile's header says, and how the vCPUs of
    /// one thread share the time to the next deadline (`test-kernel/src/cpu/turns.rs`).
    fn options(&self) -> String {
        let turns = if self.number >= SHARED_TURNS { " turns=shared" } else { "" };
        format!("machine=qemu-{}{turns}", self.text)
    }

    fn read(said: &str) -> Option<Self> {
        Self::parse(said.split_once("version ")?.1.split_whitespace().next()?)
    }

    /// Reads a version such as `9.0` or `10.0.13`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map_while(|number| number.parse().ok());
        Some(Self { number: (numbers.next()?, numbers.next()?), text: text.to_owned() })
    }
}

/// Resolves `auto`: kvm if it runs 64-bit guests, otherwise icount. Prints one line with the choice and the reason.
pub fn resolve(accel: Accel, qemu: &Path) -> Accel {
    if accel != Accel::Auto {
        return accel;
    }
    let (accel, why) = match kvm_works(qemu) {
        Ok(()) => (Accel::Kvm, "KVM runs 64-bit guests here".to_owned()),
        Err(why) => (Accel::Icount, why.to_string()),
    };
    eprintln!("accelerator: {} ({why})", accel.name());
    accel
}

/// Checks whether KVM can run 64-bit code, by starting a machine with the firmware image below.
fn kvm_works(qemu: &Path) -> Result<()> {
    if std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
        bail!("/dev/kvm cannot be opened");
    }
    let mut probe = Command::new(qemu);
    probe.args(["-M", "q35", "-accel", "kvm", "-cpu", "host", "-nodefaults", "-display", "none", "-no-reboot"]);
    probe.args(["-m", "64M", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
    let image = run::root().join("target/kvm-probe.bin");
    std::fs::create_dir_all(run::root().join("target"))?;
    std::fs::write(&image, KVM_PROBE)?;
    let finished = run::caught(probe.arg("-bios").arg(&image), Duration::from_secs(10))?;
    // If a small file under target cannot be removed, that is not an error.
    let _ = std::fs::remove_file(&image);
    match finished.status {
        Some(status) if status.code() == Some(33) => Ok(()),
        Some(_) => bail!("KVM does not run 64-bit guests here"),
        None => bail!("KVM hangs on a 64-bit guest here"),
    }
}

/// A 64 KiB firmware image. From the reset vector it switches through protected mode to 64-bit mode, and then exits by
/// isa-debug-exit with the value 0x10. It is mapped at the top of the 4 GiB space and at 0xf0000.
static KVM_PROBE: [u8; 0x10000] = kvm_probe();

const fn kvm_probe() -> [u8; 0x10000] {
    // 16-bit code at 0xf0000: page tables for the first 2 MiB at 0x1000, then PAE, LME, paging, far jump to 64 bits.
    #[rustfmt::skip]
    const CODE: [u8; 101] = [
        0xfa,                                     // cli
        0x31, 0xc0, 0x8e, 0xd8,                   // xor ax, ax; mov ds, ax
        0x66, 0xc7, 0x06, 0x00, 0x10, 0x03, 0x20, 0x00, 0x00, // mov dword [0x1000], 0x2003
        0x66, 0xc7, 0x06, 0x00, 0x20, 0x03, 0x30, 0x00, 0x00, // mov dword [0x2000], 0x3003
        0x66, 0xc7, 0x06, 0x00, 0x30, 0x83, 0x00, 0x00, 0x00, // mov dword [0x3000], 0x83
        0x66, 0xb8, 0x20, 0x00, 0x00, 0x00,       // mov eax, 0x20
        0x0f, 0x22, 0xe0,                         // mov cr4, eax
        0x66, 0xb8, 0x00, 0x10, 0x00, 0x00,       // mov eax, 0x1000
        0x0f, 0x22, 0xd8,                         // mov cr3, eax
        0x66, 0xb9, 0x80, 0x00, 0x00, 0xc0,       // mov ecx, 0xc0000080
        0x0f, 0x32,                               // rdmsr
        0x0d, 0x00, 0x01,                         // or ax, 0x100
        0x0f, 0x30,                               // wrmsr
        0x2e, 0x66, 0x0f, 0x01, 0x16, 0x80, 0x00, // lgdt cs:[0x80]
        0x0f, 0x20, 0xc0,                         // mov eax, cr0
        0x66, 0x0d, 0x01, 0x00, 0x00, 0x80,       // or eax, 0x80000001
        0x0f, 0x22, 0xc0,                         // mov cr0, eax
        0x66, 0xea, 0x5a, 0x00, 0x0f, 0x00, 0x08, 0x00, // jmp far 8:0xf005a
        0xb8, 0x10, 0x00, 0x00, 0x00,             // 64-bit: mov eax, 0x10
        0xe7, 0xf4,                               // out 0xf4, eax
        0xf4,                                     // hlt
        0xeb, 0xfd,                               // jmp to hlt
        0,
    ];
    // At 0x80: limit and address of the table at 0xf0090; there: null, 64-bit code.
    const TABLE: [u8; 6] = [0x0f, 0x00, 0x90, 0x00, 0x0f, 0x00];
    const CODE_SEGMENT: [u8; 8] = [0xff, 0xff, 0x00, 0x00, 0x00, 0x9a, 0xaf, 0x00];
    // At the reset vector: jmp far 0xf000:0.
    const RESET: [u8; 5] = [0xea, 0x00, 0x00, 0x00, 0xf0];
    let mut image = [0; 0x10000];
    let parts: [(usize, &[u8]); 4] = [(0, &CODE), (0x80, &TABLE), (0x98, &CODE_SEGMENT), (0xfff0, &RESET)];
    let mut part = 0;
    while part < parts.len() {
        let (at, bytes) = parts[part];
        let mut index = 0;
        while index < bytes.len() {
            image[at + index] = bytes[index];
            index += 1;
        }
        part += 1;
    }
    image
}

impl Machine<'_> {
    /// Runs the machine to its end. `watch` is called several times per second.
    ///
    /// # Errors
    /// If QEMU cannot be started.
    pub fn run(&self, qemu: &Path, mut watch: impl FnMut()) -> Result<Verdict> {
        let mut command = run::bound_by(&self.runner, qemu);
        command.args(["-M", "q35", "-m", "1G", "-nodefaults", "-display", "none", "-no-reboot"]);
        command.args(["-cpu", self.accel.cpu(), "-smp", &self.cpus.to_string()]).args(self.accel.arguments());
        command.arg("-kernel").arg(self.kernel).arg("-initrd").arg(&self.initrd);
        // The profile's header says what the kernel ran on. A QEMU that does not tell its version fails below with a
        // message of its own.
        let machine = Version::of(qemu).map_or_else(|_| String::new(), |version| format!(" {}", version.options()));
        command.arg("-append").arg(format!("{}{machine}", self.append));
        command.arg("-serial").arg(format!("file:{}", escaped(self.serial)));
        if let Some(second) = self.second_serial {
            command.arg("-serial").arg(format!("file:{}", escaped(second)));
        }
        if let Some(seed) = self.seed {
            command.args(["-seed", &seed.to_string(), "-rtc", "base=2000-01-01T00:00:00,clock=vm"]);
        }
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        command.arg("-fsdev").arg(format!("local,id=share,path={},security_model=none", escaped(self.share)));
        command.args(["-device", "virtio-9p-pci,fsdev=share,mount_tag=root"]);
        for (number, image) in self.disks.iter().enumerate() {
            let image = escaped(image);
            command.arg("-drive").arg(format!("if=none,format=raw,id=disk{number},file={image}"));
            command.args(["-device", &format!("virtio-blk-pci,drive=disk{number}")]);
        }
        let log = self.serial.with_extension("qemu.log");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log)?);
        let child = command.spawn().with_context(|| format!("{} cannot be started", qemu.display()))?;
        let mut guard = Guard(child);
        let start = Instant::now();
        let verdict = loop {
            if let Some(status) = guard.0.try_wait()? {
                break match status.code() {
                    Some(33) => Verdict::Success,
                    Some(35) => Verdict::Failure,
                    Some(37) => Verdict::Panic,
                    code => Verdict::Died(code),
                };
            }
            if start.elapsed() > self.limit {
                run::end_children(&guard.0);
                break Verdict::TimeLimit;
            }
            watch();
            std::thread::sleep(Duration::from_millis(50));
        };
        drop(guard);
        if matches!(verdict, Verdict::Died(_)) {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            eprint!("{said}");
            explained(&said).inspect(|why| eprintln!("{why}"));
        }
        // The log is no longer needed. If it cannot be removed, that is not an error.
        let _ = std::fs::remove_file(&log);
        Ok(verdict)
    }
}

/// A path in the form that QEMU's option lists need: with doubled commas.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// The last lines of the serial log.
pub fn last_lines(serial: &Path, count: usize) -> String {
    let bytes = std::fs::read(serial).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_what_qemu_says() {
        let of = |said| Version::read(said).map(|version| (version.number, version.text));
        let debian = "QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)\nCopyright (c) 2003-2025";
        assert_eq!(of(debian), Some(((10, 0), "10.0.13".into())));
        assert_eq!(of("QEMU emulator version 7.2.22"), Some(((7, 2), "7.2.22".into())));
        assert_eq!(of("hello"), None);
    }

    #[test]
    fn a_death_by_the_instruction_counter_is_explained() {
        assert!(explained("qemu-system-x86_64: Bad icount read\n").is_some_and(|why| why.contains("-x2apic")));
        assert_eq!(explained("no such machine"), None);
    }
}
