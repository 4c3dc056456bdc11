//! Runs QEMU with the plugin. Stage: capture.
//!
//! In: a QEMU command line, and what the plugin is to do. Out: what the plugin sends, and QEMU's exit code. The plugin
//! is part of this program; it is written to a temporary folder, which is removed at the end. Signals that tell this
//! program to end, end QEMU, and what the plugin has sent until then, and at the end, is read.

use crate::machine::{Machine, POLL};
use crate::message::{self, Message};
use anyhow::{Context, Result, bail, ensure};
use std::fmt;
use std::fs;
use std::io::{BufReader, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, ExitCode, ExitStatus};
use tempfile::TempDir;

/// A plugin for QEMUs with the same interface: the versions that take it, and the file that `build.rs` has compiled.
struct Plugin {
    first: (u32, u32),
    last: (u32, u32),
    file: &'static [u8],
}

const PLUGINS: [Plugin; 3] = [
    Plugin { first: (7, 2), last: (8, u32::MAX), file: include_bytes!(concat!(env!("OUT_DIR"), "/plugin-1.so")) },
    Plugin { first: (9, 2), last: (11, 0), file: include_bytes!(concat!(env!("OUT_DIR"), "/plugin-4.so")) },
    Plugin {
        first: (11, 1),
        last: (u32::MAX, u32::MAX),
        file: include_bytes!(concat!(env!("OUT_DIR"), "/plugin-7.so")),
    },
];

/// The first version of QEMU with counters of each vCPU.
const COUNTS_EACH_VCPU: (u32, u32) = (9, 2);
/// The processors whose guests are sampled, by QEMU's names; only those of the first one are counted by context.
const PROCESSORS: [&str; 3] = ["x86_64", "aarch64", "riscv64"];

/// This QEMU takes no such plugin, or the plugin would see nothing.
#[derive(Debug)]
pub struct NoPlugin(String);

impl fmt::Display for NoPlugin {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for NoPlugin {}

/// A QEMU that is about to be run.
pub struct Run<'a> {
    program: &'a str,
    words: &'a [String],
    folder: TempDir,
    arch: &'static str,
    plugin: &'static Plugin,
}

impl<'a> Run<'a> {
    /// Checks the command line of a QEMU whose guest is counted by context.
    ///
    /// # Errors
    /// If there is no QEMU in it that takes the plugin.
    pub fn new(line: &'a [String]) -> Result<Self> {
        let run = Self::of_any(line)?;
        let (program, arch) = (run.program, run.arch);
        ensure!(
            arch == PROCESSORS[0],
            "{program}: guests of {arch} are sampled (record) and counted by function (count --flat), and not by \
             calling context yet"
        );
        Ok(run)
    }

    /// Checks the command line of a QEMU whose guest is sampled, or counted by function.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_any(line: &'a [String]) -> Result<Self> {
        let (program, words) = line.split_first().context("the QEMU command line is missing")?;
        let arch = arch(program)?;
        let plugin = plugin(program, version(program)?)?;
        if asks_for_kvm(words) {
            let why = format!(
                "{program} runs with KVM, which translates no code, so that the plugin sees nothing: counting, probes and \
                 --every need -accel tcg"
            );
            return Err(NoPlugin(why).into());
        }
        Ok(Self { program, words, folder: tempfile::tempdir().context("a temporary folder")?, arch, plugin })
    }

    /// The guest's processor.
    pub fn arch(&self) -> &'static str {
        self.arch
    }

    /// Whether QEMU counts instructions.
    pub fn has_icount(&self) -> bool {
        self.words.iter().any(|word| word == "-icount")
    }

    /// Whether all vCPUs are in one thread.
    pub fn has_one_thread(&self) -> bool {
        self.has_icount() || self.words.iter().any(|word| word.split(',').any(|part| part == "thread=single"))
    }

    /// Whether QEMU can count by function with vCPUs in threads of their own.
    pub fn counts_each_vcpu(&self) -> bool {
        self.plugin.first >= COUNTS_EACH_VCPU
    }

    /// Writes a file for the plugin, and gives its path.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn file(&self, name: &str, bytes: &[u8]) -> Result<String> {
        let file = self.folder.path().join(name);
        fs::write(&file, bytes).with_context(|| format!("{}: cannot write", file.display()))?;
        Ok(file.display().to_string())
    }

    /// Runs it, and calls `take` with each message.
    ///
    /// # Errors
    /// If QEMU cannot be run, takes no plugin, or ends before the plugin has sent everything; if the plugin sends
    /// something unknown; what `take` says.
    pub fn run(&self, options: &str, mut take: impl FnMut(&Message) -> Result<()>) -> Result<ExitStatus> {
        let plugin = self.file("plugin.so", self.plugin.file)?;
        let socket = self.folder.path().join("socket");
        let listener = UnixListener::bind(&socket).with_context(|| format!("{}: cannot listen", socket.display()))?;
        let given = format!("{plugin},arch={},{options},socket={}", self.arch, socket.display());
        let machine = Machine::start(Command::new(self.program).args(["-plugin", &given]).args(self.words))?;
        let Some(stream) = accept(&listener, &machine)? else {
            ensure!(!machine.is_told_to_end(), "{} was ended before it loaded the plugin", self.program);
            return Err(NoPlugin(format!(
                "{} ended ({}) before it loaded the plugin; if it said that -plugin is unknown, it was built without \
                 plugin support",
                self.program,
                machine.wait()?
            ))
            .into());
        };
        let mut stream = BufReader::new(stream);
        let mut receive = || -> Result<()> {
            while let Some(message) = message::read(&mut stream)? {
                match message {
                    Message::End => return Ok(()),
                    message => take(&message)?,
                }
            }
            bail!("QEMU was killed before the plugin had sent everything")
        };
        let read = receive();
        // Nobody reads any more: the plugin sends nothing more, and QEMU goes on to its end.
        drop(stream);
        if read.is_err() && machine.try_wait()?.is_none() {
            eprintln!("kprof-qemu: what the plugin sends is no longer read; waiting for QEMU to end");
        }
        let status = machine.wait()?;
        read.map(|()| status)
    }
}

/// QEMU's exit code as this program's, which is said if it is not 0; 1 if QEMU was ended by a signal.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    if !status.success() {
        eprintln!("kprof-qemu: QEMU has ended ({status}), so the exit code is {code}");
    }
    ExitCode::from(code)
}

/// The guest's processor, by the program's name. The plugin compares it with what QEMU says.
pub fn arch(program: &str) -> Result<&'static str> {
    let name = program.rsplit('/').next().unwrap_or_default();
    let found = PROCESSORS.into_iter().find(|arch| name.contains(arch));
    found.with_context(|| format!("{program}: only guests of qemu-system-{} are sampled yet", PROCESSORS.join(", -")))
}

/// Whether KVM is the first accelerator that a command line asks for. Without one QEMU takes TCG.
fn asks_for_kvm(words: &[String]) -> bool {
    let values = words.iter().skip(1).map(String::as_str).chain([""]);
    let accelerators = words.iter().zip(values).find_map(|(word, value)| match word.trim_start_matches('-') {
        "enable-kvm" => Some("kvm"),
        "accel" => Some(value.strip_prefix("accel=").unwrap_or(value)),
        "M" | "machine" => value.split(',').find_map(|part| part.strip_prefix("accel=")),
        _ => None,
    });
    accelerators.and_then(|list| list.split([',', ':']).next()) == Some("kvm")
}

/// The version of this QEMU: major and minor.
fn version(program: &str) -> Result<(u32, u32)> {
    let said = Command::new(program).arg("--version").output().with_context(|| format!("{program}: cannot run"))?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>().ok();
    let version = text.split("version ").nth(1).and_then(|rest| {
        let (major, rest) = rest.split_once('.')?;
        Some((number(major)?, number(rest)?))
    });
    let line = text.lines().next().unwrap_or_default();
    version.with_context(|| format!("{program} --version does not say which QEMU it is: {line}"))
}

/// The plugin for a QEMU of this version.
fn plugin(program: &str, version: (u32, u32)) -> Result<&'static Plugin> {
    let found = PLUGINS.iter().find(|plugin| (plugin.first..=plugin.last).contains(&version));
    found.ok_or_else(|| {
        let (major, minor) = version;
        NoPlugin(format!(
            "{program} is version {major}.{minor}, whose plugin interface cannot read the guest's memory: use QEMU 9.2 \
             or later, or 7.2 to 8.2"
        ))
        .into()
    })
}

/// Waits for the plugin; `None` if QEMU has ended before.
fn accept(listener: &UnixListener, machine: &Machine) -> Result<Option<UnixStream>> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(Some(stream));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if machine.try_wait()?.is_some() {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_is_known_by_the_first_accelerator_of_the_command_line() {
        let asks = |line: &str| asks_for_kvm(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for line in ["-enable-kvm", "-accel kvm", "-M q35,accel=kvm:tcg", "-smp 2 --accel kvm,x=on -accel tcg"] {
            assert!(asks(line), "{line}");
        }
        for line in
            ["", "-accel tcg,thread=single", "-machine q35", "-M accel=tcg -kernel kvm", "-accel tcg -accel kvm"]
        {
            assert!(!asks(line), "{line}");
        }
    }
}
