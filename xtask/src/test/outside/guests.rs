//! `kprof-qemu record` of kernels for aarch64 and riscv64: known shares, stacks up to the root, two runs alike; with
//! frame pointers and without.
//!
//! The guest takes 50, 30 and 20 of 100 instructions in three functions, nearly all of them in a function without a
//! frame that they call, and a few in an exception, where a stack ends at the entry stub.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use super::attached::{Machine, ends_with};
use super::{Context, LIMIT, Outcome, Outside, moved};
use crate::qemu::Version;
use crate::toolchain::{self, AARCH64, RISCV64, Target};
use crate::{qemu, run};

/// Executed instructions between two samples, on average.
const EVERY: &str = "10007";
const ICOUNT: [&str; 4] = ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"];
/// Percent of all instructions outside of the exception.
const SHARES: [(&str, f64); 3] = [("guests::half", 0.5), ("guests::third", 0.3), ("guests::fifth", 0.2)];
/// A share is within this many standard deviations: 99.9 % for three shares and two processors.
const BOUND: f64 = 3.8;
const MIN_SAMPLES: u64 = 5000;
/// What `guests/src/main.rs` has: rounds, turns in each of them, and calls of `turn`, which ends with a return.
const ROUNDS: u64 = 400;
const TURNS: u64 = ROUNDS * (50 + 30 + 20 + 1) * 800;
const CALLS: u64 = ROUNDS * 6;

/// The QEMU whose clock sometimes has one instruction more for a guest of riscv64 that waits for an interrupt while the
/// machine is switched off: in 4 of 9 runs, by the same instructions.
const AHEAD_AT_THE_END: (u32, u32) = (10, 0);
const ONE_AHEAD: &str = "; 1 more than the instructions that began";

struct Processor {
    name: &'static str,
    target: Target,
    machine: &'static [&'static str],
    /// How much higher than in memory the guest is linked.
    higher: &'static str,
    /// What `turn` executes in all.
    turns: u64,
}

const PROCESSORS: [Processor; 2] = [
    Processor {
        name: "aarch64",
        target: AARCH64,
        machine: &["-M", "virt", "-cpu", "cortex-a72"],
        higher: "ffffff80",
        turns: 2 * TURNS + CALLS,
    },
    Processor {
        name: "riscv64",
        target: RISCV64,
        machine: &["-M", "virt", "-bios", "none"],
        higher: "ffffffc0",
        // The assembler makes two instructions of the branch; the last turn of a call has one of them, and a return.
        turns: 3 * TURNS,
    },
];

pub fn check<'a>(outside: &'a Outside, context: &Context, outcome: &mut Outcome) {
    for processor in &PROCESSORS {
        let mut check = |name: &str, compiled, check: fn(&Guest<'a>) -> Result<()>| {
            let done = Guest::new(outside, processor, context, compiled).and_then(|guest| check(&guest));
            outcome.check(&name.replace("{}", processor.name), done);
        };
        check("a guest of {} has its shares and its stacks", FRAME_POINTERS, Guest::check);
        check("every instruction of a guest of {} is counted", FRAME_POINTERS, Guest::is_counted);
        check("for a guest of {} all else is refused", FRAME_POINTERS, Guest::refuses);
        check("one of {} without frame pointers has them too", NO_FRAME_POINTERS, Guest::check_stacks);
        check("one of {} in the lower half has them too", LOW, Guest::check_low);
    }
    let done = Guest::new(outside, &PROCESSORS[0], context, FRAME_POINTERS).and_then(|guest| guest.has_all_vcpus());
    outcome.check("of many vCPUs each has its ticks", done);
}

/// How the guest's own code is compiled; `core` is the target's, which has no frame pointers.
struct Compiled {
    name: &'static str,
    /// In place of those in `.cargo/config.toml`.
    options: Option<&'static str>,
    /// Linked where it is in memory.
    is_low: bool,
}

const FRAME_POINTERS: &Compiled = &Compiled { name: "with-frames", options: None, is_low: false };
const LOW: &Compiled = &Compiled { name: "low", options: None, is_low: true };
const NO_FRAME_POINTERS: &Compiled = &Compiled {
    name: "without-frames",
    options: Some("-Crelocation-model=static -Cforce-frame-pointers=no"),
    is_low: false,
};

struct Guest<'a> {
    outside: &'a Outside,
    of: &'a Processor,
    compiled: &'static Compiled,
    qemu: PathBuf,
    kernel: PathBuf,
}

impl<'a> Guest<'a> {
    fn new(outside: &'a Outside, of: &'a Processor, context: &Context, compiled: &'static Compiled) -> Result<Self> {
        let qemu = qemu::program(of.name, context.install)?;
        let toolchain = toolchain::find(of.target, context.toolchain, context.install)?;
        let mut build = toolchain::cargo(toolchain, "build", of.target)?;
        let folder = toolchain::target_folder(&run::root(), toolchain).join(compiled.name);
        if let Some(options) = compiled.options {
            // With debug information the file has unwind tables.
            build.env("RUSTFLAGS", options).env("CARGO_PROFILE_RELEASE_DEBUG", "1");
        }
        if compiled.is_low {
            let source = format!("kernel-integration/qemu/guests/src/{}.ld", of.name);
            let script = outside.file(&format!("{}-low.ld", of.name));
            moved::script(&source, &[(of.higher, "")], &script)?;
            build.env("GUESTS_SCRIPT", script);
        }
        build.args(["--quiet", "--release", "--package", "guests", "--target-dir"]).arg(&folder);
        run::output(&mut build)?;
        Ok(Self { outside, of, compiled, qemu, kernel: folder.join(of.target.triple).join("release/guests") })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.outside.file(&format!("{}-{}-{name}", self.of.name, self.compiled.name))
    }

    /// Runs the guest, with what comes before QEMU on the command line.
    fn run(&self, mut command: Command, serial: &str, more: &[&str]) -> Result<String> {
        let log = format!("file:{}", self.file(serial).display());
        command.args(self.of.machine).args(["-m", "64M", "-nodefaults", "-display", "none", "-serial", &log]);
        let done = run::caught(command.args(more).arg("-kernel").arg(&self.kernel), LIMIT)?;
        ensure!(done.status.is_some_and(|status| status.success()), "{:?}: {}", done.status, done.text);
        Ok(done.text)
    }

    fn record(&self, name: &str, options: &[&str], more: &[&str]) -> Result<Vec<String>> {
        let profile = self.file(&format!("{name}.txt"));
        let mut command = run::bound(&self.outside.tool);
        command.args(["record", "-o"]).arg(&profile).args(options).arg("--").arg(&self.qemu);
        self.run(command, &format!("{name}.log"), more)?;
        let text = fs::read_to_string(&profile)?;
        ensure!(text.contains(&format!("\n# arch {}\n", self.of.name)), "{text:.400}");
        Ok(text.lines().filter(|line| line.starts_with("guest ")).map(str::to_owned).collect())
    }

    fn folded(&self, name: &str) -> Result<Vec<(String, u64)>> {
        let profile = self.file(&format!("{name}.txt")).display().to_string();
        self.outside.folded_with(&["--no-inline"], &profile, &self.kernel)
    }

    fn check(&self) -> Result<()> {
        let one = self.record("one", &["--every", EVERY], &ICOUNT)?;
        let two = self.record("two", &["--every", EVERY], &ICOUNT)?;
        ensure!(one == two, "two runs have other samples: {} and {}", one.len(), two.len());
        let alone = run::bound(&self.qemu);
        self.run(alone, "alone.log", &ICOUNT)?;
        let log = |name: &str| fs::read(self.file(name));
        ensure!(log("alone.log")? == log("one.log")? && log("one.log")?.len() == 25, "the serial log is another one");
        self.has_shares(&self.folded("one")?)?;
        self.is_placed()?;
        self.record("time", &["--hz", "2000"], &["-accel", "tcg,thread=multi"])?;
        self.has_roots(&self.folded("time")?)?;
        self.refuses_others()
    }

    /// The same shares and stacks with the kernel's file and without it.
    fn check_low(&self) -> Result<()> {
        self.record("one", &["--every", EVERY], &ICOUNT)?;
        let folded = self.folded("one")?;
        self.has_shares(&folded)?;
        self.is_placed()?;
        ensure!(folded == self.folded("kernel")?, "with the kernel's file: {:?}", self.folded("kernel")?);
        Ok(())
    }

    /// Shares and stacks, by instructions and by time, and by the unwind tables of the kernel's file.
    fn check_stacks(&self) -> Result<()> {
        self.record("one", &["--every", EVERY], &ICOUNT)?;
        self.has_shares(&self.folded("one")?)?;
        self.record("time", &["--hz", "2000"], &["-accel", "tcg,thread=multi"])?;
        self.has_roots(&self.folded("time")?)?;
        let said = self.record_kernel(&["--unwind", "tables"])?;
        ensure!(said.contains("stacks are found by the unwind tables of "), "{said}");
        let folded = self.folded("kernel")?;
        let truncated = folded.iter().find(|(stack, _)| stack.starts_with("[truncated];kmain"));
        ensure!(truncated.is_none(), "{truncated:?}: the tables say that nothing has called kmain");
        self.has_shares(&folded)
    }

    /// The kernel's file is compared with the guest's memory.
    fn is_placed(&self) -> Result<()> {
        let said = self.record_kernel(&[])?;
        ensure!(said.contains("the kernel runs where ") && said.contains(" bytes of its code are the same"), "{said}");
        Ok(())
    }

    /// Records with the kernel's file. Returns what the tool says.
    fn record_kernel(&self, options: &[&str]) -> Result<String> {
        let mut command = run::bound(&self.outside.tool);
        command.args(["record", "--every", EVERY, "--kernel"]).arg(&self.kernel).args(options).arg("-o");
        command.arg(self.file("kernel.txt")).arg("--").arg(&self.qemu);
        self.run(command, "kernel.log", &ICOUNT)
    }

    /// Every stack is known up to its root: the first function, or the entry stub of the exception. Nothing else is
    /// there but the code before the first function.
    fn has_roots(&self, folded: &[(String, u64)]) -> Result<()> {
        let is_known = |stack: &str| {
            // These never return, so their code does not say where the return address is; a frame record would.
            let never_returns = |stack: &&str| stack.starts_with("kmain") || *stack == "power_off";
            let outermost = stack.strip_prefix("[truncated];").filter(never_returns);
            let stack = outermost.filter(|_| self.compiled.options.is_some()).unwrap_or(stack);
            let frames: Vec<&str> = stack.split(';').collect();
            match frames[..] {
                ["kmain"] | ["kmain", "trap" | "guests::half" | "guests::third" | "guests::fifth", ..] => {
                    let below = frames.iter().skip(2).filter(|frame| **frame != "turn");
                    below.clone().count() < 4 && below.clone().all(|frame| *frame == "guests::third")
                }
                ["[truncated]", "stub" | "vectors"] | ["[truncated]", "stub", "handler"] => true,
                ["[truncated]", "stub", "handler", "turn"] => true,
                ["start" | "upper" | "power_off" | "[unknown]"] | ["kmain", "power_off"] => true,
                // The ROM from which the machine starts.
                ["[truncated]", "[unknown]"] => true,
                _ => false,
            }
        };
        let strange = folded.iter().find(|(stack, _)| !is_known(stack));
        ensure!(strange.is_none(), "{}: {strange:?} in {folded:?}", self.of.name);
        Ok(())
    }

    fn has_shares(&self, folded: &[(String, u64)]) -> Result<()> {
        self.has_roots(folded)?;
        let of = |part: &str| -> u64 {
            folded.iter().filter(|(stack, _)| stack.contains(part)).map(|(_, count)| *count).sum()
        };
        let all: u64 = SHARES.iter().map(|(name, _)| of(name)).sum();
        ensure!(all > MIN_SAMPLES, "only {all} samples: {folded:?}");
        for (name, share) in SHARES {
            let (sampled, bound) = (of(name) as f64 / all as f64, BOUND * (share * (1.0 - share) / all as f64).sqrt());
            eprintln!("{}: {name} {:.2} %, {:.0} are executed", self.of.name, sampled * 100.0, share * 100.0);
            ensure!((sampled - share).abs() < bound, "{name}: {sampled}, and not {share}");
        }
        let rest: u64 = folded.iter().map(|(_, count)| count).sum::<u64>() - all - of(";stub");
        eprintln!("{}: {all} samples in kmain, {} in the exception, {rest} others", self.of.name, of(";stub"));
        ensure!(of("stub;handler;turn") > 0 && rest < all / 500, "the exception is missing: {folded:?}");
        Ok(())
    }

    /// A machine with more vCPUs than a byte can number; the guest uses the first one only.
    fn has_all_vcpus(&self) -> Result<()> {
        self.record("many", &["--hz", "20"], &["-M", "virt,gic-version=3", "-smp", "260"])?;
        let text = fs::read_to_string(self.file("many.txt"))?;
        let ticks = |cpu: u32| text.lines().any(|line| line.starts_with(&format!("# account cpu={cpu} sent=")));
        let silent = (0..260).find(|cpu| !ticks(*cpu));
        ensure!(silent.is_none(), "vCPU {silent:?} had no tick");
        Ok(())
    }

    /// Every instruction is counted, as QEMU's clock does; so are those of each turn.
    fn is_counted(&self) -> Result<()> {
        let table = self.file("count.txt");
        let mut command = run::bound(&self.outside.tool);
        command.args(["count", "--flat", "--min", "0", "--kernel"]).arg(&self.kernel).arg("-o").arg(&table);
        command.arg("--").arg(&self.qemu);
        let said = self.run(command, "count.log", &ICOUNT)?;
        let is_one_ahead = || -> Result<bool> {
            let is_there = said.contains(ONE_AHEAD) && self.of.name == PROCESSORS[1].name;
            Ok(is_there && Version::of(&self.qemu)?.number == AHEAD_AT_THE_END)
        };
        let is_same = said.contains("otherwise the same") || is_one_ahead()?;
        ensure!(said.contains("one by one: the same") && is_same, "{said}");
        let text = fs::read_to_string(&table)?;
        let line = text.lines().find(|line| line.ends_with(" turn")).unwrap_or_default();
        let own = line.split_whitespace().next().and_then(|count| count.parse::<u64>().ok());
        ensure!(own == Some(self.of.turns), "turn has {own:?} instructions: {text}");
        Ok(())
    }

    /// What is for guests of x86_64 only says so.
    fn refuses(&self) -> Result<()> {
        let outside = self.outside;
        let verbs = [&["count"][..], &["syscalls"], &["probe", "-e", "turn"]];
        for verb in verbs {
            let mut command = run::bound(&outside.tool);
            command.args(verb).arg("--kernel").arg(&self.kernel).arg("--").arg(&self.qemu).args(ICOUNT);
            let done = run::caught(&mut command, LIMIT)?;
            ends_with(&done, 2, &format!("guests of {} are sampled (record) and counted by function", self.of.name))?;
        }
        let mut qemu = run::bound(&self.qemu);
        qemu.args(self.of.machine).args(["-m", "64M", "-nodefaults", "-display", "none", "-S"]);
        let done = Machine::of(qemu)?.attach(outside, "refused.txt", &[])?;
        ends_with(&done, 2, "only x86_64 guests are sampled yet")
    }

    /// Symbols of another processor are refused by its name.
    fn refuses_others(&self) -> Result<()> {
        let mut command = Command::new(&self.outside.fold);
        let done = run::caught(command.arg(self.file("one.txt")).arg(&self.outside.kernel), LIMIT)?;
        let said = format!("it is for x86_64, and the profile is of {}", self.of.name);
        let code = done.status.and_then(|status| status.code());
        ensure!(code == Some(2) && done.text.contains(&said), "{code:?}: {}", done.text);
        Ok(())
    }
}
