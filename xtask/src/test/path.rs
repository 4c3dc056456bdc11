//! Tests the whole path as a user runs it: `cargo xtask profile` with several machines, then checks of the files that
//! it has written.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use super::cargo;
use super::outcome::{Context, Outcome};
use super::scenario;
use crate::build;
use crate::gate;
use crate::profile::bare::{ON_AARCH64, ON_RISCV64};
use crate::profile::{self, Arch};
use crate::repeat;
use crate::run;
use crate::storm;
use crate::sweep;
use crate::truth;

/// The runs: a name, and what is typed after `cargo xtask profile`.
const RUNS: [(&str, &[&str]); 5] = [
    ("default", &["--accel", "icount"]),
    ("2-cpus", &["--cpus", "2", "--accel", "icount", "--workload", "kernel"]),
    ("8-cpus", &["--cpus", "8", "--accel", "icount"]),
    ("tcg", &["--accel", "tcg"]),
    ("boot", &["--boot", "--accel", "icount", "--hz", "50000", "--ring-words", "65536"]),
];

/// Frames that a default run must show.
const EXPECTED: [&str; 7] = [
    "[syscall]",
    "[exception 14]",
    "page_fault",
    "scheduler::yield_now",
    "fs::ram::RamNode",
    "fs::device::Zero",
    "workload::heap::sort_and_count",
];

/// The marks of a boot.
const PHASES: [&str; 7] = ["memory", "tables", "clock", "CPUs", "files", "devices", "init"];

#[derive(Parser)]
struct StormLine {
    #[command(flatten)]
    storm: storm::Arguments,
}

/// So many hits take both storms on the host about a minute.
const A_MINUTE_OF_HITS: &str = "200000000";

/// A short storm. The number of NMIs that this machine can take is not judged. But each kind of walk must end, nothing
/// may break, and a broken unwinder must be noticed. Then probes, in a storm, and on all functions of the kernel. Last,
/// points and the heap, on the host, with signals as NMIs and interrupts.
pub fn storm(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let folder = run::root().join("target/path/storm").display().to_string();
    let line = ["storm", "--seconds", "8", "--min-percent", "1", "-o", &folder];
    let line = StormLine::try_parse_from(line)?;
    outcome.check("eight seconds", storm::run(&line.storm).map(drop));
    let folder = run::root().join("target/path/storm/probes").display().to_string();
    let line = ["storm", "--seconds", "8", "--min-percent", "1", "--probes", "--no-broken", "-o", &folder];
    let line = StormLine::try_parse_from(line)?;
    outcome.check("eight seconds with probes", storm::run(&line.storm).map(drop));
    let parts = context.parts()?;
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    for name in ["probes-all", "probes-each", "record-probe-all"] {
        let folder = run::root().join("target/path/storm").join(name);
        outcome.check(name, scenario::one(name, parts, &kernel, &folder, "").map(drop));
    }
    for arch in ["aarch64", "riscv64"] {
        let folder = run::root().join("target/path/storm").join(arch).display().to_string();
        let line = StormLine::try_parse_from(["storm", "--arch", arch, "--seconds", "5", "-o", &folder])?;
        outcome.check(&format!("the bare kernel for {arch}"), storm::run(&line.storm).map(drop));
    }
    let mut host = cargo::cargo(&["test", "--quiet", "--package", "kprof-events", "--features", "profiling,locks"]);
    host.args(["--test", "points_storm", "--test", "heap_storm"]).env("KPROF_STORM_HITS", A_MINUTE_OF_HITS);
    cargo::count_tests(&mut outcome, "points and heap, on the host", &mut host)?;
    Ok(outcome)
}

/// Every instruction of the call tree, of the entry stubs, and of the handler.
pub fn sweep(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let parts = context.parts()?;
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    let folder = run::root().join("target/path/sweep");
    let found = sweep::entries(parts, &kernel, &folder);
    outcome.check("call tree and entry stubs", found.and_then(|failures| sweep::done(&failures)));
    let found = sweep::handler(parts, &kernel, &folder);
    outcome.check("handler", found.and_then(|failures| sweep::done(&failures)));
    for processor in [ON_AARCH64, ON_RISCV64] {
        let found = sweep::processors::run(processor, context.toolchain, context.install, &folder);
        outcome.check(processor.name, found.and_then(|failures| sweep::done(&failures)));
    }
    Ok(outcome)
}

/// Two runs with one seed, one with another, a kernel built elsewhere. The twenty-fold run is
/// `cargo xtask repeat --runs 20`.
pub fn repeatable(_: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let output = run::root().join("target/path/repeat");
    let arguments = repeat::Arguments {
        runs: 2,
        seed: 42,
        workload: "dd".into(),
        busy: false,
        probes: false,
        arch: Arch::X86,
        output,
    };
    outcome.check("two runs with one seed", repeat::run(&arguments).map(drop));
    outcome.check("the gate", the_gate());
    Ok(outcome)
}

/// Compares shares with what was counted, with one seed for each way of sampling. `cargo xtask truth` runs all twenty
/// seeds.
pub fn truth(_: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let arguments = truth::Arguments {
        seeds: 1,
        outside: false,
        without_frame_pointers: false,
        again: false,
        events: false,
        arch: Arch::X86,
        output: run::root().join("target/path/truth"),
    };
    outcome.check("one seed", truth::run(&arguments).map(drop));
    Ok(outcome)
}

/// Checks that the gate finds the one function that was made slower, and finds nothing if nothing was changed.
fn the_gate() -> Result<()> {
    let output = run::root().join("target/path/gate");
    let mut arguments = gate::Arguments::against(String::new(), output.clone());
    // OLD is also the source in this folder, and not the last commit, which may be different.
    arguments.old = gate::keep(&arguments, &output.join("kept"))?.display().to_string();
    let unchanged = gate::changes(&arguments)?;
    if !unchanged.is_empty() {
        bail!("nothing was changed, and the gate says: {unchanged:?}");
    }
    arguments.slower = true;
    match gate::changes(&arguments)?.as_slice() {
        [gate::Change { function, change }] if function.ends_with("sum_words") && *change > 0.0 => Ok(()),
        other => bail!("sum_words was made slower, and the gate says: {other:?}"),
    }
}

/// Runs the group.
pub fn run(_: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (name, line) in RUNS {
        let folder = run::root().join("target/path").join(name);
        let output = folder.display().to_string();
        let line = profile::Line::try_parse_from([&["profile", "-o", &output], line].concat())?;
        outcome.check(name, profile::run(&line.profile).map(drop).and_then(|()| look(&folder, name)));
    }
    outcome.check("without its programs: what to type", without_programs());
    outcome.check("a QEMU that dies: what it said", dying_qemu());
    outcome.check("--cpus 1 is refused", refused(&["--cpus", "1"], "a sampler needs a second CPU"));
    outcome.check("an unknown workload is refused", refused(&["--workload", "nothing"], "there is no workload"));
    let range = profile::Line::try_parse_from(["profile", "--cpus", "17"]).err().map(|error| error.to_string());
    outcome.check(
        "a wrong value is refused with its range",
        match range {
            Some(text) if text.contains("1..=16") => Ok(()),
            other => Err(anyhow::anyhow!("{other:?}")),
        },
    );
    Ok(outcome)
}

/// This program itself, as a user would run it, with another PATH.
fn xtask(path: &std::ffi::OsStr, arguments: &[&str]) -> Result<run::Finished> {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    run::caught(command.arg("profile").args(arguments).env("PATH", path), std::time::Duration::from_secs(900))
}

/// Where programs are missing and nothing may be installed, one message must name all of them: on Debian by the command
/// to type, elsewhere by their names. The exit code must not be 0.
fn without_programs() -> Result<()> {
    let debian = run::root().join("target/path/apt-get-alone");
    program(&debian, "apt-get", "exit 1")?;
    let packages = "apt-get install --no-install-recommends qemu-system-x86 binutils";
    for (path, said) in [
        (Path::new("/nowhere"), ["missing on PATH: qemu-system-x86_64, nm", "your package manager"]),
        (&debian, ["missing: qemu-system-x86_64, nm", packages]),
    ] {
        let finished = xtask(path.as_os_str(), &["--no-install"])?;
        let is_said = said.iter().all(|words| finished.text.contains(words));
        if finished.status.is_some_and(|status| status.success()) || !is_said {
            bail!("{:?}: {}", finished.status, finished.text);
        }
    }
    Ok(())
}

/// Makes a program of this shell script.
fn program(folder: &Path, name: &str, script: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(folder)?;
    let file = folder.join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n"))?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// If QEMU ends at once, the message must have its exit code and its output.
fn dying_qemu() -> Result<()> {
    let folder = run::root().join("target/path/dying-qemu");
    program(&folder, "qemu-system-x86_64", "echo no such machine >&2\nexit 3")?;
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([folder.clone()].into_iter().chain(std::env::split_paths(&rest)))?;
    let output = folder.join("out").display().to_string();
    let finished = xtask(&path, &["--accel", "icount", "-o", &output])?;
    let says = ["exit code 3", "no such machine"].iter().all(|text| finished.text.contains(text));
    if finished.status.is_some_and(|status| status.success()) || !says {
        bail!("{:?}: {}", finished.status, finished.text);
    }
    Ok(())
}

fn refused(line: &[&str], reason: &str) -> Result<()> {
    let line = profile::Line::try_parse_from([&["profile"], line].concat())?;
    match profile::run(&line.profile) {
        Err(error) if error.to_string().contains(reason) => Ok(()),
        other => bail!("{other:?}"),
    }
}

/// Checks that all files exist, that the expected frames are in the stacks, and that every stack begins at a known
/// root.
fn look(folder: &Path, name: &str) -> Result<()> {
    for file in
        ["profiling.txt", "syms.txt", "kernel", "profile.folded", "profile.html", "flamegraph.svg", "serial.log"]
    {
        let metadata = std::fs::metadata(folder.join(file)).with_context(|| file.to_owned())?;
        if metadata.len() == 0 {
            bail!("{file} is empty");
        }
    }
    let folded = std::fs::read_to_string(folder.join("profile.folded"))?;
    if name == "boot" {
        let profile = std::fs::read_to_string(folder.join("profiling.txt"))?;
        for phase in PHASES {
            if !profile.contains(&format!(" name={phase}\n")) {
                bail!("no mark {phase}");
            }
        }
        if folded.contains("[lost") || folded.contains("user_") {
            bail!("the picture of the boot has losses, or what came after the boot");
        }
    }
    if name == "default" {
        for frame in EXPECTED {
            if !folded.contains(frame) {
                bail!("no stack has {frame}");
            }
        }
        rates(folder)?;
    }
    let roots = ["[syscall]", "[interrupt ", "[exception ", "[lost]", "test_kernel::task::thread::thread_start"];
    let is_known = |line: &&str| roots.iter().any(|root| line.starts_with(root)) || starts_at_boot(line);
    // A leaf function of the precompiled `core` has no frame, so its caller is missing; what was inlined into it is
    // there. In a boot profile the caller can be the root.
    let is_leaf = |line: &str| {
        let (stack, _) = line.rsplit_once(' ').unwrap_or((line, ""));
        stack.split(';').skip(1).all(|frame| frame.ends_with(" (inlined)"))
    };
    let is_frameless = |line: &&str| name == "boot" && line.starts_with("core::") && is_leaf(line);
    let strange: Vec<&str> = folded.lines().filter(|line| !is_known(line) && !is_frameless(line)).collect();
    if !strange.is_empty() {
        bail!("{} stacks begin in the middle of nowhere, such as {}", strange.len(), strange[0]);
    }
    Ok(())
}

/// Checks that every CPU was sampled at the requested rate, within a hundredth, also a CPU that was halted most of the
/// time.
fn rates(folder: &Path) -> Result<()> {
    let fold = build::tool("kprof-fold")?;
    let mut info = std::process::Command::new(fold);
    info.arg("info").arg(folder.join("profiling.txt")).args(["--format", "json"]);
    let text = run::output(&mut info)?;
    let info: serde_json::Value = serde_json::from_str(&text)?;
    let cpus = info["boots"][0]["cpus"].as_array().context("no CPUs")?;
    let number = |cpu: &serde_json::Value, name: &str| cpu[name].as_f64().with_context(|| format!("{name} in {cpu}"));
    for cpu in cpus {
        let (rate, asked) = (number(cpu, "ticks_per_second")?, number(cpu, "asked_per_second")?);
        if (rate / asked - 1.0).abs() > 0.01 {
            bail!("the rate is not the one that was asked for: {cpu}");
        }
    }
    if cpus.len() != 3 {
        bail!("{} CPUs have a rate, of 3:\n{text}", cpus.len());
    }
    Ok(())
}

/// Whether a stack begins with the code that has booted a CPU. The idle threads continue this code.
fn starts_at_boot(line: &str) -> bool {
    ["kmain", "secondary_main"].iter().any(|root| line.starts_with(root))
}
