//! The group `integration`: checks that the bare kernel, which newcomers copy, is small enough, compiles, boots, and
//! gives the expected flame graph.
//!
//! The bare kernel is the template for ports. It is built, and booted with one CPU (which samples itself) and with
//! several (NMIs), also with counted instructions, where the requested rate must be reached. Its serial log is folded
//! as it is, with other lines in between. `by_nightly` builds it with core from source, for the group `toolchains`.
//! `more` boots it with its optional parts. `processors` does the same for aarch64 and riscv64, `no_trigger` takes
//! their NMIs away, and `misses` takes samples by an event. (The tests of the Redox drop-in are among the host tests:
//! its stand-in is a package of the workspace.)

mod misses;
mod more;
mod no_trigger;
mod processors;
mod self_cost;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::outcome::{Context, Outcome};
use crate::build;
use crate::qemu;
use crate::run;
use crate::toolchain::{self, KERNEL};
use crate::tools::Install;

/// The most lines of the bare kernel's port.
const PORT_LINES: usize = 120;
/// The most lines of the bare kernel, all of its files but the optional parts.
const BARE_LINES: usize = 424;
/// The least ticks per second of guest time if instructions are counted. 1000 are requested. A one-shot timer gave 14
/// to 51.
const MIN_RATE: f64 = 900.0;
/// A machine that counts instructions.
const COUNTED: [&str; 4] = ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"];
const BOOT_LIMIT: Duration = Duration::from_secs(600);

/// Runs the group.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let folder = run::root().join("kernel-integration/ports/bare");
    let port = std::fs::read_to_string(folder.join("src/profiling.rs"))?;
    outcome.check("the template of a port is small", at_most(port.lines().count(), PORT_LINES));
    let optional = lines(&folder.join("src/more"))?;
    outcome.check("the bare kernel is small", at_most(lines(&folder)? - optional, BARE_LINES));

    let (qemu, fold, trigger) = {
        let parts = context.parts()?;
        (parts.qemu.clone(), parts.fold.clone(), parts.toolchain)
    };
    let output = run::root().join("target/bare");
    std::fs::create_dir_all(&output)?;
    let elf =
        build::bare(toolchain::cargo(trigger, "build", KERNEL)?, toolchain::target_folder(&run::root(), trigger))?;
    let symbols = output.join("syms.txt");
    std::fs::write(&symbols, build::symbols_of(&elf)?)?;
    let mut off = toolchain::cargo(trigger, "check", KERNEL)?;
    off.arg("--no-default-features");
    let compiled = build::bare(off, PathBuf::new()).map(drop);
    outcome.check("every call of the bare kernel may stay with the profiler off", compiled);
    let machines = [
        ("one CPU samples itself", "1", COUNTED, "timer"),
        ("two CPUs", "2", ["-accel", "tcg,thread=multi", "-rtc", "base=utc"], "nmi"),
        ("two CPUs, instructions counted", "2", COUNTED, "nmi"),
        ("three CPUs, instructions counted", "3", COUNTED, "nmi"),
    ];
    for (name, cpus, accel, sampled_by) in machines {
        let is_counted = accel == COUNTED;
        let serial = output.join(format!("serial-{cpus}{}.log", if is_counted { "-counted" } else { "" }));
        let booted = boot(&qemu, &elf, cpus, &accel, &serial);
        let looked = booted.and_then(|()| look(&fold, &serial, &symbols, sampled_by, is_counted));
        let timed = looked.and_then(|()| if is_counted { is_rate_reached(&serial) } else { Ok(()) });
        outcome.check(name, timed);
    }

    more::run(trigger, (&qemu, &fold), &COUNTED, &output, &mut outcome);
    processors::run(context, &mut outcome)?;
    Ok(outcome)
}

/// Builds the bare kernel with a nightly toolchain, with core from source, and boots it. (It is part of the group
/// `toolchains`.)
pub fn by_nightly(context: &mut Context, outcome: &mut Outcome) -> Result<()> {
    let version = match nightly(context.install) {
        Ok(version) => version,
        Err(why) => {
            outcome.skipped.push(format!("the bare kernel by a nightly toolchain: {why:#}"));
            return Ok(());
        }
    };
    eprintln!("toolchain: {version}");
    let parts = context.parts()?;
    let output = run::root().join("target/bare");
    std::fs::create_dir_all(&output)?;
    let mut command = Command::new("cargo");
    command.args(["+nightly", "build", "--target", KERNEL.triple, "-Z", "build-std=core,alloc"]);
    command.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN").current_dir(run::root());
    let target = run::root().join("target/nightly");
    command.arg("-Zbuild-std-features=compiler-builtins-mem").arg("--target-dir").arg(&target);
    let serial = output.join("serial-nightly.log");
    let result = build::bare(command, target).and_then(|elf| {
        let symbols = output.join("syms-nightly.txt");
        std::fs::write(&symbols, build::symbols_of(&elf)?)?;
        boot(&parts.qemu, &elf, "2", &COUNTED, &serial)?;
        look(&parts.fold, &serial, &symbols, "nmi", true)
    });
    outcome.check("the bare kernel by a nightly toolchain", result);
    Ok(())
}

/// Boots it; it ends by itself.
fn boot(qemu: &Path, elf: &Path, cpus: &str, accel: &[&str], serial: &Path) -> Result<()> {
    let mut command = run::bound(qemu);
    command.args(["-M", "q35", "-m", "256M", "-nodefaults", "-display", "none", "-no-reboot"]);
    command.args(["-cpu", qemu::NO_X2APIC]);
    command.args(["-smp", cpus]).args(accel).arg("-kernel").arg(elf);
    command.arg("-serial").arg(format!("file:{}", serial.display()));
    command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
    let finished = run::caught(&mut command, BOOT_LIMIT)?;
    match finished.status.map(|status| status.code()) {
        Some(Some(33)) => Ok(()),
        other => bail!("QEMU ended with {other:?}: {}\n{}", finished.text, qemu::last_lines(serial, 20)),
    }
}

/// Checks the graph that the unchanged serial log gives: the work is under `kmain`, no stack is truncated, no frame is
/// unknown, and the account balances.
///
/// The shares of the work are checked only where instructions are counted: there they are the same on every host.
/// Elsewhere a fast host takes fewer samples of the same work, so only one is certain.
fn look(fold: &Path, serial: &Path, symbols: &Path, sampled_by: &str, is_counted: bool) -> Result<()> {
    let log = String::from_utf8_lossy(&std::fs::read(serial)?).into_owned();
    if !log.contains("bare: round 0 on CPU") || !log.contains("bare: the end") {
        bail!("the log has no lines of the kernel itself");
    }
    let is_in_mid_line = |line: &str| line.starts_with("bare: ") && line.contains("~kprof ");
    if !log.lines().any(is_in_mid_line) {
        bail!("no line of the profile is in the middle of one of the log: then this shows nothing");
    }
    if let Some(wrong) = log.lines().find(|line| line.contains("bare: kprof: ")) {
        bail!("the port is not right: {wrong}");
    }
    // The first header may have been written before CPU 0 ran the sampler; then a setting has the trigger.
    let trigger = format!("trigger {sampled_by}");
    if ![&trigger, &trigger.replace(' ', "%20")].into_iter().any(|text| log.contains(text)) {
        bail!("the samples are not from {trigger}");
    }
    // --strict: a damaged line or an account that does not balance is an error.
    let folded = run::output(Command::new(fold).arg("--strict").arg(serial).arg(symbols))?;
    let count_of = |stack: &str| -> u64 {
        let counts =
            folded.lines().filter_map(|line| line.rsplit_once(' ')).filter(|(frames, _)| frames.contains(stack));
        counts.filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
    };
    let (work, primes) = (count_of("kmain;bare::work"), count_of("kmain;bare::work;bare::is_prime"));
    if work == 0 || (is_counted && (work < 40 || primes * 4 < work)) {
        bail!("{primes} of {work} samples of the work are in is_prime:\n{folded}");
    }
    if let Some(strange) = folded.lines().find(|line| !line.starts_with("kmain") || line.contains(";[")) {
        bail!("a strange stack: {strange}");
    }
    // With interrupts off only an NMI sees what runs.
    let checksums = count_of("bare::checksum");
    if (sampled_by == "timer" && checksums > 0) || (sampled_by == "nmi" && is_counted && checksums == 0) {
        bail!("checksum (interrupts off) has {checksums} samples, by {sampled_by}");
    }
    Ok(())
}

/// Every CPU has as many samples in a second of guest time as were asked for. (Nothing is filtered, coalesced or lost
/// there.)
fn is_rate_reached(serial: &Path) -> Result<()> {
    let log = String::from_utf8_lossy(&std::fs::read(serial)?).into_owned();
    let lines = log.lines().filter_map(|line| line.split_once("~kprof ")?.1.splitn(3, ' ').nth(2));
    let (mut tsc_hz, mut ticks) = (None, BTreeMap::<&str, Vec<u64>>::new());
    for line in lines {
        if let Some(value) = line.strip_prefix("# tsc-hz ") {
            tsc_hz = Some(value.parse::<f64>()?);
        } else if !line.starts_with('#') {
            let mut words = line.split(' ').skip(1);
            let (cpu, tsc) =
                (words.next().context("a sample without CPU")?, words.next().context("a sample without TSC")?);
            ticks.entry(cpu).or_default().push(u64::from_str_radix(tsc, 16)?);
        }
    }
    let tsc_hz = tsc_hz.context("no tsc-hz in the log")?;
    if ticks.is_empty() {
        bail!("no samples in the log");
    }
    for (cpu, ticks) in ticks {
        let rate = (ticks.len() - 1) as f64 * tsc_hz / (ticks[ticks.len() - 1] - ticks[0]).max(1) as f64;
        println!("CPU {cpu}: {rate:.0} ticks a second of guest time");
        if rate < MIN_RATE {
            bail!("CPU {cpu} has {rate:.0} ticks a second of guest time, at least {MIN_RATE} are wanted");
        }
    }
    Ok(())
}

fn at_most(lines: usize, most: usize) -> Result<()> {
    if lines > most { bail!("{lines} lines, {most} are allowed") } else { Ok(()) }
}

/// The lines of all files under a folder.
fn lines(folder: &Path) -> Result<usize> {
    let mut all = 0;
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        all += if path.is_dir() { lines(&path)? } else { std::fs::read_to_string(&path)?.lines().count() };
    }
    Ok(all)
}

/// The nightly toolchain's version; it has the library's source.
fn nightly(install: Install) -> Result<String> {
    toolchain::nightly_has("rust-src", install)?;
    let mut rustc = Command::new("rustc");
    let version =
        run::output(rustc.args(["+nightly", "--version"]).env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN"))?;
    Ok(version.trim().to_owned())
}
