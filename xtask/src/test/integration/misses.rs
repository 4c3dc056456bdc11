//! The bare kernel for riscv64 with ticks that are caused by an event, and not by time: loads that miss the data TLB.
//!
//! In: a profile of work whose misses are known. Out: checks that the shares are those of the misses, although nearly
//! all the time goes to a function without any; that as many ticks came as there were misses for; that header and
//! report name the event and show no time.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::profile::bare::{self, Boot, Processor};
use crate::run;

/// After how many misses a tick comes.
const PERIOD: u64 = 100;
/// The functions, and the misses of each one in a round of the kernel's work.
const MISSES: [(&str, u64); 3] = [("half", 5000), ("third", 3000), ("fifth", 2000)];
/// The kernel's rounds.
const ROUNDS: u64 = 40;
/// The largest part of the ticks that may be elsewhere, and by which a share may be wrong: the kernel's stack and its
/// export miss the TLB too, and the last ticks of a function may belong to the one before it.
const BOUND: f64 = 0.015;

/// Instructions are not counted, because the ticks do not come from a clock.
const BOOT: Boot =
    Boot { cpus: 1, is_counted: false, seed: 1, hz: 1000, storm: None, misses: Some(PERIOD), offers_cycles: true };

/// Boots the kernel in a QEMU that cannot enable the counter's interrupt, and checks that the log says so.
///
/// # Errors
/// If it does not.
pub(super) fn none(processor: Processor, qemu: &Path, elf: &Path, serial: &Path) -> Result<()> {
    processor.boot(qemu, elf, BOOT, serial)?;
    let log = String::from_utf8_lossy(&std::fs::read(serial)?).into_owned();
    ensure!(log.contains("bare: kprof: the overflow of a counter cannot interrupt this CPU"), "{log}");
    Ok(())
}

/// Boots the kernel and checks the profile.
///
/// # Errors
/// If something is not as it must be.
pub(super) fn check(processor: Processor, qemu: &Path, fold: &Path, elf: &Path, serial: &Path) -> Result<()> {
    processor.boot(qemu, elf, BOOT, serial)?;
    let log = String::from_utf8_lossy(&std::fs::read(serial)?).into_owned();
    for fact in ["# trigger timer", "# event dtlb-load-misses every 100"] {
        ensure!(log.lines().any(|line| line.ends_with(fact)), "the header has no {fact}");
    }
    ensure!(!log.lines().any(|line| line.contains(" # hz ")), "the header has a rate, and there is none");
    let folded = bare::folded(fold, serial, elf)?;
    let of = |what: &str| -> u64 {
        let counts = folded.lines().filter_map(|line| line.rsplit_once(' ')).filter(|(stack, _)| stack.contains(what));
        counts.filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
    };
    let (all, known) = (of(""), MISSES.map(|(_, misses)| misses).iter().sum::<u64>());
    println!("{}, a tick after {PERIOD} misses: {all} samples", processor.name);
    let expected = (known * ROUNDS / PERIOD) as f64;
    ensure!((all as f64 / expected - 1.0).abs() <= BOUND, "{all} ticks, {expected} are expected");
    for (name, misses) in MISSES {
        let samples = of(&format!("kmain;bare_virt::misses::round;bare_virt::misses::{name}"));
        let (share, truth) = (samples as f64 / all as f64, misses as f64 / known as f64);
        println!("  true {:6.3} %, measured {:6.3} %  {name}", truth * 100.0, share * 100.0);
        ensure!((share - truth).abs() <= BOUND, "{name}: {share:.4} of the samples, {truth:.4} of the misses");
    }
    ensure!(of("bare_virt::misses::without") as f64 / all as f64 <= BOUND, "a function without misses has samples");
    let report = run::output(Command::new(fold).arg("report").arg(serial).arg(elf))?;
    for words in ["Where all dtlb-load-misses went", "one after 100 of them", ": balanced"] {
        ensure!(report.contains(words), "the report does not say {words}:\n{report}");
    }
    ensure!(!report.contains("self cost"), "the report has a time:\n{report}");
    Ok(())
}
