//! The groups `outside` and `outside long`: `kprof-qemu` profiles a kernel without a changed line in it, and the
//! kernel does not notice.
//!
//! The bare kernel runs in QEMU, sampled from outside: by time, with every tick accounted for; and by executed
//! instructions, twice with the same samples, and with the same serial log as without the plugin, to the byte. What
//! cannot be sampled is refused with its reason. User code is sampled too, or alone: see [`user`]. It may be told to
//! end: see [`ended`]. Every executed instruction is counted: see [`exact`]; those of each system call too: see
//! [`calls`]. Functions are watched: see [`probes`]. A machine that already runs is sampled by its gdb stub: see
//! [`attached`]; gdb has the same stacks: see [`gdb`]. The kernel may run elsewhere than its file says: see
//! [`moved`]; also in the lower half of the address space: see [`low`]. It may reboot and run elsewhere then: see
//! [`rebooted`].
//! Kernels for other processors are sampled: see [`guests`]. The second group has what takes longer. With `--filter`
//! only the parts run whose name contains it.

pub mod attached;
mod beside;
mod calls;
mod ended;
pub mod exact;
mod gdb;
mod guests;
mod low;
mod moved;
mod probes;
mod rebooted;
mod stopped;
mod unwound;
mod user;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::outcome::{Context, Outcome};
use crate::profile::Arch;
use crate::toolchain::{self, KERNEL};
use crate::{build, qemu, repeat, run, truth};

const LIMIT: Duration = Duration::from_secs(300);
/// Executed instructions between two samples.
const EVERY: &str = "300000";
const COUNTED: [&str; 12] = [
    "-smp",
    "2",
    "-accel",
    "tcg,thread=single",
    "-icount",
    "shift=0,sleep=off",
    "-seed",
    "1",
    "-rtc",
    "base=2000-01-01T00:00:00,clock=vm",
    "-cpu",
    qemu::NO_X2APIC,
];

/// Samples that a run of the bare kernel must have.
const MIN_SAMPLES: u64 = 200;

/// The programs and files of the group.
#[derive(Clone)]
pub struct Outside {
    pub tool: PathBuf,
    pub qemu: PathBuf,
    pub fold: PathBuf,
    pub kernel: PathBuf,
    pub folder: PathBuf,
    /// QEMU's major and minor number.
    pub version: (u32, u32),
}

/// The first QEMU in which runs of several vCPUs with `-icount` may differ: QEMU 10.0 runs on for a moment after it was
/// told to end; with 11.1 one run of four differs.
const UNSTEADY: (u32, u32) = (9, 2);
/// How often such a run is tried.
const TRIES: usize = 6;

/// The parts of the group `outside`.
const PARTS: [&str; 6] = ["record", "user", "ended", "exact", "attached", "refused"];
/// Those of the group `outside long`.
const LONG: [&str; 12] = [
    "guests",
    "calls",
    "probes",
    "moved",
    "low",
    "rebooted",
    "unnoticed",
    "beside",
    "unwound",
    "gdb",
    "stopped",
    "truth",
];

/// Runs the group `outside`.
pub fn run(context: &mut Context) -> Result<Outcome> {
    parts(context, &PARTS, "target/outside")
}

/// Runs the group `outside long`.
pub fn long(context: &mut Context) -> Result<Outcome> {
    parts(context, &LONG, "target/outside-long")
}

fn parts(context: &mut Context, parts: &[&str], folder: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (qemu, fold, choice) = {
        let parts = context.parts()?;
        (parts.qemu.clone(), parts.fold.clone(), parts.toolchain)
    };
    let target = toolchain::target_folder(&run::root(), choice);
    let kernel = build::bare(toolchain::cargo(choice, "build", KERNEL)?, target)?;
    let tool = build::tool("kprof-qemu")?;
    let folder = run::root().join(folder);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let version = qemu::Version::of(&qemu)?.number;
    let outside = Outside { tool, qemu, fold, kernel, folder, version };
    let filter = context.filter.clone();
    let is_wanted = |part: &str| parts.contains(&part) && part.contains(&filter);
    if is_wanted("record") {
        outcome.check("by time, every tick is accounted for", outside.by_time(MIN_SAMPLES));
        outcome.check("of two vCPUs one is sampled if one is named", outside.by_cpu());
        outcome.check("the page is drawn without another program, and the exit code is said", outside.draws());
    }
    if is_wanted("user") {
        let parted = context.parts().and_then(|parts| user::check(&outside, parts));
        outcome.check("the kernel's samples and those of user code are together those of both", parted);
    }
    // The other two compare their serial logs with that of this part.
    if ["record", "exact", "probes"].into_iter().any(is_wanted) {
        outcome.check("by instructions, the samples repeat and the kernel does not notice", outside.by_instructions());
    }
    if is_wanted("ended") {
        ended::check(&outside, &mut outcome);
    }
    if is_wanted("guests") {
        guests::check(&outside, context, &mut outcome);
    }
    if is_wanted("exact") {
        exact::check(&outside, &mut outcome);
    }
    if is_wanted("calls") {
        let counted = context.parts().and_then(|parts| calls::check(&outside, parts));
        outcome.check("system calls are counted exactly, and planted instructions are found in theirs", counted);
    }
    if is_wanted("probes") {
        probes::check(&outside, context.parts(), &mut outcome);
    }
    if is_wanted("unnoticed") {
        outcome.check("a run of the default workload is the same to the byte with probes", is_unnoticed(&outside));
    }
    if is_wanted("beside") {
        beside::check(context, &outside, &mut outcome);
    }
    if is_wanted("unwound") {
        unwound::check(context, &outside, choice, &mut outcome);
    }
    if is_wanted("attached") {
        attached::check(&outside, &mut outcome);
    }
    if is_wanted("gdb") {
        gdb::check(context, &outside, &mut outcome);
    }
    if is_wanted("moved") {
        moved::check(&outside, choice, &mut outcome);
    }
    if is_wanted("low") {
        low::check(&outside, choice, &mut outcome);
    }
    if is_wanted("rebooted") {
        rebooted::check(context, &outside, &mut outcome);
    }
    if is_wanted("stopped") {
        outcome.check("stacks of attach are those of the shadow stack", stopped::check(&outside));
    }
    if is_wanted("truth") {
        outcome.check(
            "what kprof samples is what was executed: shares and stacks of one run",
            is_the_truth(&outside, false),
        );
        outcome.check(
            "what kprof samples without frame pointers is what was executed: shares and stacks of one run",
            is_the_truth(&outside, true),
        );
    }
    if is_wanted("refused") {
        outcome.check("a QEMU that takes no such plugin is refused with its reason", outside.refuses());
    }
    Ok(outcome)
}

/// One run without probes and one with them. `cargo xtask repeat --probes --runs 20` has more.
fn is_unnoticed(outside: &Outside) -> Result<()> {
    let output = outside.file("unnoticed");
    let (workload, busy, probes) = ("default".to_owned(), false, true);
    repeat::run(&repeat::Arguments { runs: 1, seed: 42, workload, busy, probes, arch: Arch::X86, output }).map(drop)
}

/// Compares one seed. `cargo xtask truth --outside` compares twenty.
fn is_the_truth(outside: &Outside, without_frame_pointers: bool) -> Result<()> {
    let (output, outside, again, events) = (outside.file("truth"), true, false, false);
    let (seeds, arch) = (1, Arch::X86);
    truth::run(&truth::Arguments { seeds, outside, without_frame_pointers, again, events, arch, output }).map(drop)
}

/// A walk never goes on below the outermost function, and never across an interrupt's frame: so kmain is a root.
fn is_root(folded: &[(String, u64)]) -> Result<()> {
    let strange = folded.iter().find(|(stack, _)| stack.split(';').skip(1).any(|frame| frame == "kmain"));
    ensure!(strange.is_none(), "kmain has a caller: {strange:?}");
    Ok(())
}

impl Outside {
    /// A file in its folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The words of a machine that runs the bare kernel.
    fn machine(&self, serial: &str, more: &[&str]) -> Vec<String> {
        let words = ["-M", "q35", "-m", "256M", "-nodefaults", "-display", "none", "-no-reboot"];
        let exit = ["-device", "isa-debug-exit,iobase=0xf4,iosize=4"];
        let mut words: Vec<String> = [&words[..], &exit, more].concat().into_iter().map(str::to_owned).collect();
        words.extend(["-serial".to_owned(), format!("file:{}", self.file(serial).display())]);
        words.extend(["-kernel".to_owned(), self.kernel.display().to_string()]);
        words
    }

    fn record(&self, profile: &str, options: &[&str], machine: Vec<String>) -> Result<()> {
        let mut command = run::bound(&self.tool);
        command.args(["record", "-o"]).arg(self.file(profile)).args(options).arg("--").arg(&self.qemu).args(machine);
        let done = run::caught(&mut command, LIMIT)?;
        // The kernel ends QEMU with this code.
        ensure!(
            done.status.is_some_and(|status| status.code() == Some(33)),
            "it ended with {:?}: {}",
            done.status,
            done.text
        );
        Ok(())
    }

    /// The folded stacks of a profile. With `--strict` a line that is wrong and an account that does not balance are
    /// errors.
    fn folded(&self, profile: &str) -> Result<Vec<(String, u64)>> {
        self.folded_with(&[], profile, &self.kernel)
    }

    /// The same with these options and symbols.
    fn folded_with(&self, options: &[&str], profile: &str, symbols: &Path) -> Result<Vec<(String, u64)>> {
        let mut command = Command::new(&self.fold);
        command.args(["--strict", "-q"]).args(options).arg(self.file(profile));
        let text = run::output(command.arg(symbols))?;
        text.lines()
            .map(|line| {
                let (stack, count) = line.rsplit_once(' ').context("a line has a count")?;
                Ok((stack.to_owned(), count.parse()?))
            })
            .collect()
    }

    /// The profile has at least `least` samples, and the work of the kernel is in their stacks, under its first
    /// function: at least one sample in `part`.
    fn has_the_work(&self, profile: &str, part: u64, least: u64) -> Result<()> {
        let folded = self.folded(profile)?;
        let of = |part: &dyn Fn(&str) -> bool| -> u64 {
            folded.iter().filter(|(stack, _)| part(stack)).map(|(_, count)| count).sum()
        };
        let (all, work) = (of(&|_| true), of(&|stack| stack.starts_with("kmain;") && stack.contains(";bare::work")));
        ensure!(all >= least && work * part > all, "{work} of {all} samples are in bare::work under kmain: {folded:?}");
        is_root(&folded)
    }

    fn by_time(&self, least: u64) -> Result<()> {
        let machine = self.machine("time.log", &["-smp", "2", "-accel", "tcg,thread=multi", "-cpu", "max"]);
        self.record("time.txt", &[], machine)?;
        let text = fs::read_to_string(self.file("time.txt"))?;
        ensure!(text.contains("\n# trigger outside\n") && text.contains("\n# account cpu=1 "), "{text}");
        // How long the kernel writes its log, beside its work, depends on the host.
        self.has_the_work("time.txt", 50, least)
    }

    /// One command leads to the picture: nothing but QEMU is run.
    fn draws(&self) -> Result<()> {
        let (profile, page) = (self.file("drawn.txt"), self.file("drawn.txt.html"));
        let mut command = run::bound(&self.tool);
        command
            .env("PATH", "")
            .args(["record", "--every", EVERY, "-o"])
            .arg(&profile)
            .arg("--kernel")
            .arg(&self.kernel);
        command.arg("--").arg(&self.qemu).args(self.machine("drawn.log", &COUNTED));
        let done = run::caught(&mut command, LIMIT)?;
        let code = done.status.and_then(|status| status.code());
        let said = format!(
            "the page is {}\nkprof-qemu: QEMU has ended (exit status: 33), so the exit code is 33",
            page.display()
        );
        ensure!(code == Some(33) && done.text.contains(&said), "exit code {code:?}: {}", done.text);
        ensure!(done.text.contains("bare::is_prime"), "the report lacks the kernel's work: {}", done.text);
        ensure!(fs::read_to_string(&page)?.contains("</html>"), "{} is not a page", page.display());
        Ok(())
    }

    fn by_cpu(&self) -> Result<()> {
        for (name, how) in [("cpu-time", &["--cpu", "1"][..]), ("cpu-every", &["--cpu", "1", "--every", EVERY])] {
            let (profile, machine) = (format!("{name}.txt"), self.machine(&format!("{name}.log"), &COUNTED));
            self.record(&profile, how, machine)?;
            let text = fs::read_to_string(self.file(&profile))?;
            let accounts = text.lines().filter(|line| line.starts_with("# account "));
            let is_of_1 = |line: &str| line.starts_with("# account cpu=1 ");
            ensure!(accounts.clone().count() == 1 && accounts.clone().all(is_of_1), "{name}: {text:.600}");
        }
        Ok(())
    }

    /// Whether two runs of several vCPUs with `-icount` may differ.
    fn is_unsteady(&self) -> bool {
        self.version >= UNSTEADY
    }

    /// The first of two runs alike; with a QEMU whose runs may differ, of several.
    fn repeated<T, K: PartialEq>(&self, mut run: impl FnMut() -> Result<T>, key: impl Fn(&T) -> K) -> Result<T> {
        let tries = if self.is_unsteady() { TRIES } else { 2 };
        let mut keys = Vec::new();
        for _ in 0..tries {
            let done = run()?;
            let of = key(&done);
            if keys.contains(&of) {
                return Ok(done);
            }
            keys.push(of);
        }
        bail!("of {tries} runs no two are alike")
    }

    /// A run that is as it should be; with a QEMU whose runs may differ, one of several.
    fn until_alike<T>(&self, mut run: impl FnMut() -> T, is_alike: impl Fn(&T) -> bool) -> T {
        let mut last = run();
        let more = if self.is_unsteady() { TRIES - 1 } else { 0 };
        for _ in 0..more {
            if is_alike(&last) {
                break;
            }
            last = run();
        }
        last
    }

    /// The samples of a run by instructions, and its serial log.
    fn samples(&self) -> Result<(Vec<String>, Vec<u8>)> {
        self.record("one.txt", &["--every", EVERY], self.machine("one.log", &COUNTED))?;
        self.has_the_work("one.txt", 2, MIN_SAMPLES)?;
        let text = fs::read_to_string(self.file("one.txt"))?;
        let samples = text.lines().filter(|line| line.starts_with("guest ")).map(str::to_owned).collect();
        Ok((samples, fs::read(self.file("one.log"))?))
    }

    fn by_instructions(&self) -> Result<()> {
        let (_, with) = self.repeated(|| self.samples(), Clone::clone).context("samples and serial log")?;
        let alone = || {
            let mut alone = run::bound(&self.qemu);
            let done = run::caught(alone.args(self.machine("alone.log", &COUNTED)), LIMIT)?;
            ensure!(done.status.is_some_and(|status| status.code() == Some(33)), "{}", done.text);
            fs::read(self.file("alone.log")).context("alone.log")
        };
        let alone = self.until_alike(alone, |alone| alone.as_ref().is_ok_and(|alone| *alone == with))?;
        ensure!(alone.len() > 10_000, "the serial log is nearly empty: then this shows nothing");
        ensure!(alone == with, "the serial log is another one with the plugin");
        Ok(())
    }

    /// A program that is called as QEMU is.
    fn script(&self, name: &str, script: &str) -> Result<PathBuf> {
        let folder = self.file(name);
        fs::create_dir_all(&folder)?;
        let file = folder.join("qemu-system-x86_64");
        fs::write(&file, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        Ok(file)
    }

    fn refuses(&self) -> Result<()> {
        let seven = "[ \"$1\" = --version ] && echo 'QEMU emulator version 7.2.0' && exit 0; exit 3";
        let cases = [
            (
                self.script("version-nine", "echo 'QEMU emulator version 9.1.2'")?,
                "use QEMU 9.2 or later, or 7.2 to 8.2",
            ),
            (self.script("without-plugins", seven)?, "before it loaded the plugin"),
            (self.script("no-version", "echo hello")?, "does not say which QEMU"),
            (PathBuf::from("qemu-system-mips64"), "only guests of qemu-system-x86_64, -aarch64, -riscv64"),
            (self.file("missing/qemu-system-x86_64"), "cannot run"),
        ];
        cases.iter().try_for_each(|(qemu, said)| self.refuses_one(qemu, said))
    }

    fn refuses_one(&self, qemu: &Path, said: &str) -> Result<()> {
        let profile = self.file("refused.txt");
        let mut command = run::bound(&self.tool);
        let done = run::caught(command.args(["record", "-o"]).arg(&profile).arg("--").arg(qemu), LIMIT)?;
        match done.status.and_then(|status| status.code()) {
            Some(2) if done.text.contains(said) => Ok(()),
            code => bail!("{}: exit code {code:?}, and not `{said}`: {}", qemu.display(), done.text),
        }
    }
}
