//! `cargo xtask storm --arch aarch64|riscv64`: broken chains of frame pointers and entries of every kind, at a high
//! rate.
//!
//! In: the bare kernel, booted with counted instructions and one CPU to sample, and with a thread for each of four
//! CPUs. Out: how many walks ended for each reason, and whether any stack is wrong: each one must be the work's, or end
//! where the kernel has broken it. Without a bounds check of the unwinder the kernel must not come to its end.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use super::{Arguments, REASONS};
use crate::profile::bare::{self, Boot, Processor, Variant};
use crate::tools::Install;
use crate::{build, toolchain};

/// Rounds of the kernel's storm in a second of guest time.
const ROUNDS_A_SECOND: u32 = 125;
/// Rounds with four CPUs, and ticks per second.
const ROUNDS_WITH_THREADS: u32 = 60;
const HZ_WITH_THREADS: u32 = 100;
/// The least ticks taken in a second of guest time on the sampled CPU.
const MIN_TICKS: u64 = 5_000;
/// More frames than a stack has anywhere but in the recursion; `Config::depth` is a little more.
const DEPTH: usize = 50;
/// The least walks that end for each reason in a second.
const MIN_WALKS: u64 = 30;

/// Runs the verb.
///
/// # Errors
/// If a number is not reached, a stack is wrong, or the kernel does not survive.
pub(super) fn run(arguments: &Arguments, processor: Processor) -> Result<ExitCode> {
    let install = Install(!arguments.no_install);
    let qemu = processor.find(install)?;
    let toolchain = toolchain::find(processor.target, arguments.toolchain, install)?;
    let fold = build::tool("kprof-fold")?;
    std::fs::create_dir_all(&arguments.output)?;
    let elf = processor.kernel(toolchain, Variant::Nmi)?;
    let serial = arguments.output.join(format!("{}.log", processor.name));
    let counted = |seconds| {
        let storm = Some(seconds * ROUNDS_A_SECOND);
        Boot { cpus: 2, is_counted: true, seed: 1, hz: arguments.hz, storm, misses: None, offers_cycles: true }
    };
    processor.boot(&qemu, &elf, counted(arguments.seconds), &serial)?;
    let seen = look(&fold, &serial, &elf)?;
    let mut too_few = Vec::new();
    let mut row = |name: &str, value: u64, least: u64| {
        println!("{name:32} {value:10}  (at least {least})");
        if value < least {
            too_few.push(name.to_owned());
        }
    };
    row("NMIs recorded", seen.samples, MIN_TICKS * u64::from(arguments.seconds));
    for (index, name) in REASONS.iter().enumerate() {
        let value = seen.reasons.get(&(index as u64 + 1)).copied().unwrap_or(0);
        row(&format!("walks ended by {name}"), value, MIN_WALKS * u64::from(arguments.seconds));
    }
    // Threads of the host take turns as they like, so only the stacks and the account are judged. One CPU writes the
    // samples of three to the serial port, which takes some 70 KB a second, so the rate is low.
    let hz = HZ_WITH_THREADS;
    let threads = Boot {
        cpus: 4,
        is_counted: false,
        seed: 1,
        hz,
        storm: Some(ROUNDS_WITH_THREADS),
        misses: None,
        offers_cycles: true,
    };
    processor.boot(&qemu, &elf, threads, &serial)?;
    let threads = look(&fold, &serial, &elf)?;
    println!("{:32} {:10}", "with four CPUs", threads.samples);
    println!("{:32} {:10}", "wrong results", 0);
    println!("the account balances");
    if !too_few.is_empty() {
        bail!("too few: {}", too_few.join(", "));
    }
    if !arguments.no_broken {
        let broken = processor.kernel(toolchain, Variant::Broken)?;
        match processor.boot(&qemu, &broken, counted(1), &serial) {
            Ok(()) => bail!("with a bounds check taken out the storm must fail, and it did not: it proves nothing"),
            Err(error) => {
                let said = format!("{error:#}");
                println!("with a bounds check taken out: {}, as it must be", said.lines().last().unwrap_or_default());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What a profile has.
struct Seen {
    samples: u64,
    /// Truncated walks by the number of the reason.
    reasons: BTreeMap<u64, u64>,
}

/// Reads a profile.
///
/// # Errors
/// If its account does not balance, or a stack is wrong.
fn look(fold: &Path, serial: &Path, elf: &Path) -> Result<Seen> {
    let folded = bare::folded(fold, serial, elf)?;
    let mut seen = Seen { samples: 0, reasons: BTreeMap::new() };
    for line in folded.lines() {
        let Some((stack, count)) = line.rsplit_once(' ') else { bail!("no folded line: {line}") };
        // Samples that a full ring did not take; the account counts them.
        if stack == "[lost]" {
            continue;
        }
        if !is_right(stack) {
            bail!("a wrong stack: {line}");
        }
        seen.samples += count.parse::<u64>()?;
    }
    // The marker of a truncated walk is 0xfffffffffffff400 and the reason.
    let log = String::from_utf8_lossy(&std::fs::read(serial)?).into_owned();
    for word in log.split([' ', '\n', '\r']).filter_map(|word| word.strip_prefix("fffffffffffff4")) {
        *seen.reasons.entry(u64::from_str_radix(word, 16)?).or_default() += 1;
    }
    Ok(seen)
}

/// Whether a stack can be: it begins at a root, or it was truncated below a function that breaks the chain. (At the
/// first instruction of `spin` the chain is not broken yet.)
fn is_right(stack: &str) -> bool {
    const STORM: &str = "bare_virt::storm::";
    let Some(rest) = stack.strip_prefix("[truncated];").filter(|_| !bare::is_rooted(stack)) else {
        return bare::is_rooted(stack);
    };
    let names: Vec<&str> = rest.split(';').collect();
    match names[..] {
        [kind, "spin"] => kind.starts_with(STORM),
        // The record says that this is the caller.
        ["bare_virt::work::round", kind, "spin"] => kind == format!("{STORM}looping"),
        _ => names.len() >= DEPTH && names.contains(&"bare_virt::storm::deep") && !rest.contains('['),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_right_only_where_the_kernel_has_broken_it() {
        for right in [
            "kmain;bare_virt::work::round;bare_virt::work::half;bare_virt::work::turns",
            "[syscall];stubs;bare_virt::work::calling",
            "[truncated];bare_virt::storm::unmapped;spin",
            "[truncated];bare_virt::work::round;bare_virt::storm::looping;spin",
            "[truncated];stubs",
        ] {
            assert!(is_right(right), "{right}");
        }
        let deep = |frames| format!("[truncated]{};bare_virt::work::turns", ";bare_virt::storm::deep".repeat(frames));
        assert!(is_right(&deep(DEPTH)) && !is_right(&deep(DEPTH - 2)));
        for wrong in [
            "[truncated];bare_virt::work::half;bare_virt::work::turns",
            "kmain;[unknown]",
            "bare_virt::work::half",
            "[truncated];bare_virt::work::round;bare_virt::storm::unmapped;spin",
        ] {
            assert!(!is_right(wrong), "{wrong}");
        }
    }
}
