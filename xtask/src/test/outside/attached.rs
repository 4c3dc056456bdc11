//! `kprof-qemu attach`: a machine that already runs is sampled by QEMU's gdb stub, and runs on to its end.
//!
//! The stub listens on 127.0.0.1. A connection alone stops the machine, so nothing looks whether it listens yet but the
//! tool itself. What is claimed of speed is not checked here: it depends on what else the host does.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::{LIMIT, Outcome, Outside, is_root};
use crate::gdb::free_address;
use crate::qemu;
use crate::run::{self, Finished, Guard};

/// The last line of the kernel's log.
const LAST: &str = "bare: the end";

/// Runs the checks.
pub fn check(outside: &Outside, outcome: &mut Outcome) {
    outcome.check("a machine that runs is sampled, and runs on", while_it_runs(outside));
    outcome.check("a machine is sampled until it ends", until_it_ends(outside));
    outcome.check("a QEMU without plugins is sampled by its gdb stub", without_plugins(outside));
    outcome.check("a QEMU that asks for KVM is sampled by its gdb stub", with_kvm(outside));
    outcome.check("a second client is refused, and the machine runs on", second_client(outside));
}

/// A machine with a gdb stub.
pub struct Machine {
    qemu: Guard,
    address: String,
}

impl Machine {
    /// QEMU itself.
    pub fn start(outside: &Outside, serial: &str, more: &[&str]) -> Result<Self> {
        Self::start_by(run::bound(&outside.qemu), outside, serial, more)
    }

    /// With a command that runs QEMU.
    pub fn start_by(mut command: Command, outside: &Outside, serial: &str, more: &[&str]) -> Result<Self> {
        command.args(outside.machine(serial, more));
        Self::of(command)
    }

    /// That of a whole command line, to which the stub is added.
    pub fn of(mut command: Command) -> Result<Self> {
        // The port is free again when QEMU takes it; the host gives other ports to others meanwhile.
        let address = free_address()?;
        command.args(["-gdb", &format!("tcp:{address}")]);
        Ok(Self { qemu: Guard(command.spawn().context("QEMU cannot be started")?), address })
    }

    /// Runs the tool with this machine, as soon as it listens.
    pub fn attach(&mut self, outside: &Outside, profile: &str, options: &[&str]) -> Result<Finished> {
        let mut command = run::bound(&outside.tool);
        command.arg("attach").args(options).arg("-o").arg(outside.file(profile));
        self.attach_by(&mut command)
    }

    /// The same with this command, to which the stub's address is added.
    pub fn attach_by(&mut self, command: &mut Command) -> Result<Finished> {
        command.args(["--gdb", &self.address]);
        let start = Instant::now();
        loop {
            let done = run::caught(command, LIMIT)?;
            if !done.text.contains("no connection") || start.elapsed() > LIMIT {
                return Ok(done);
            }
            if let Some(status) = self.qemu.0.try_wait()? {
                bail!("QEMU has ended ({status}) before its stub listened: {}", done.text);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The kernel comes to its end: it ends QEMU with this code.
    pub fn comes_to_its_end(mut self, log: &Path) -> Result<()> {
        let start = Instant::now();
        loop {
            match self.qemu.0.try_wait()?.map(|status| status.code()) {
                Some(Some(33)) => break,
                Some(code) => bail!("QEMU ended with {code:?}"),
                None if start.elapsed() > LIMIT => {
                    bail!("the machine does not run on: {}\n{}", text(log), threads(self.qemu.0.id()))
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        ensure!(text(log).contains(LAST), "the log ends early: {}", text(log));
        Ok(())
    }
}

/// What the threads of a process do: `/proc/PID/task/TID/stat` of each. Its 14th field is the processor time, which
/// says whether a machine that does not end is stopped, or runs for ever.
fn threads(process: u32) -> String {
    let folder = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    folder.flatten().map(|thread| text(&thread.path().join("stat"))).collect()
}

fn text(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned()
}

pub fn ends_with(done: &Finished, code: i32, said: &str) -> Result<()> {
    let ended = done.status.and_then(|status| status.code());
    ensure!(ended == Some(code) && done.text.contains(said), "exit code {ended:?}, `{said}` expected: {}", done.text);
    eprint!("{}", done.text);
    Ok(())
}

/// With one instruction in each block the kernel takes so long that it is far from its end.
fn while_it_runs(outside: &Outside) -> Result<()> {
    let (log, start) = (outside.file("attached.log"), Instant::now());
    let words = [&["-smp", "2", "-cpu", "max"], qemu::one_instruction_per_block(&outside.qemu)?].concat();
    let mut machine = Machine::start(outside, "attached.log", &words)?;
    while !text(&log).contains("bare: round 3 on") {
        ensure!(start.elapsed() < LIMIT, "the kernel does not work: {}", text(&log));
        std::thread::sleep(Duration::from_millis(20));
    }
    let done = machine.attach(outside, "attached.txt", &["--samples", "300"])?;
    ends_with(&done, 0, "as were asked for; the machine runs on")?;
    ensure!(!text(&log).contains(LAST), "the kernel had ended when the tool detached: then this shows nothing");
    let profile = fs::read_to_string(outside.file("attached.txt"))?;
    ensure!(profile.contains("\n# trigger outside\n") && profile.contains("\n# precision block\n"), "{profile:.400}");
    let accounts = profile.lines().filter(|line| line.starts_with("# account "));
    let number = |line: &str, key: &str| line.split(key).nth(1)?.split(' ').next()?.parse::<u64>().ok();
    let is_even = |line: &str| number(line, " sent=").is_some_and(|sent| number(line, " taken=") == Some(sent));
    let accounts: Vec<bool> = accounts.map(is_even).collect();
    ensure!(accounts == [true, true], "two accounts whose ticks are all taken: {accounts:?}");
    // On a busy host its work may be over: then it prints its profile.
    let folded = outside.folded("attached.txt")?;
    let under_kmain = folded.iter().filter(|(stack, _)| stack.starts_with("kmain;") || stack == "kmain");
    let (all, rooted) = (folded.iter().map(|it| it.1).sum::<u64>(), under_kmain.map(|it| it.1).sum::<u64>());
    ensure!(all >= 200 && rooted * 10 >= all * 9, "{rooted} of {all} samples are under kmain: {folded:?}");
    is_root(&folded)?;
    machine.comes_to_its_end(&log)
}

fn until_it_ends(outside: &Outside) -> Result<()> {
    let mut machine = Machine::start(outside, "until.log", &["-S"])?;
    let done = machine.attach(outside, "until.txt", &[])?;
    ends_with(&done, 0, "has ended the connection")?;
    ensure!(!outside.folded("until.txt")?.is_empty(), "there are no samples");
    machine.comes_to_its_end(&outside.file("until.log"))
}

/// QEMU reads what the second client has sent when the first one has gone. The machine must not stay stopped then.
fn second_client(outside: &Outside) -> Result<()> {
    let mut machine = Machine::start(outside, "second.log", &["-S"])?;
    let start = Instant::now();
    let mut first = loop {
        match TcpStream::connect(&machine.address) {
            Ok(stream) => break stream,
            Err(error) if start.elapsed() > LIMIT => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let done = machine.attach(outside, "second.txt", &[])?;
    ends_with(&done, 2, "is there another debugger?")?;
    first.write_all(b"$D#44")?;
    // QEMU has read it when it closes, or before.
    first.shutdown(std::net::Shutdown::Write)?;
    machine.comes_to_its_end(&outside.file("second.log"))
}

/// The QEMU takes TCG in its place: KVM does not run everywhere.
fn with_kvm(outside: &Outside) -> Result<()> {
    let swap = "for word; do shift; [ \"$word\" = kvm ] && word=tcg; set -- \"$@\" \"$word\"; done";
    let qemu = outside.script("with-kvm", &format!("{swap}\nexec '{}' \"$@\"", outside.qemu.display()))?;
    let kvm = ["-accel", "kvm"];
    let run = |verb: &[&str]| {
        let mut command = run::bound(&outside.tool);
        command.args(verb).arg("-o").arg(outside.file("kvm.txt")).arg("--").arg(&qemu);
        run::caught(command.args(outside.machine("kvm.log", &kvm)), LIMIT)
    };
    let done = run(&["record"])?;
    ends_with(&done, 33, "without the plugin, samples are taken by QEMU's gdb stub")?;
    ensure!(done.text.contains("runs with KVM, which translates no code"), "{}", done.text);
    ensure!(!outside.folded("kvm.txt")?.is_empty(), "there are no samples");
    ends_with(&run(&["record", "--every", "100000"])?, 2, "--every need -accel tcg")
}

/// `record` with a QEMU that says what one without plugins says.
fn without_plugins(outside: &Outside) -> Result<()> {
    let real = outside.qemu.display();
    let refuses = "*' -plugin '*) echo '-plugin: invalid option' >&2; exit 1";
    let qemu = outside.script("no-plugins", &format!("case \" $* \" in {refuses};; esac\nexec '{real}' \"$@\""))?;
    let mut command = run::bound(&outside.tool);
    command.args(["record", "-o"]).arg(outside.file("fallback.txt")).arg("--").arg(qemu);
    let done = run::caught(command.args(outside.machine("fallback.log", &[])), LIMIT)?;
    // The exit code is QEMU's.
    ends_with(&done, 33, "without the plugin, samples are taken by QEMU's gdb stub")?;
    ensure!(!outside.folded("fallback.txt")?.is_empty(), "there are no samples");
    ensure!(!outside.file("fallback.txt.old").exists(), "the first attempt has left a profile");
    ensure!(text(&outside.file("fallback.log")).contains(LAST), "the log ends early");
    Ok(())
}
