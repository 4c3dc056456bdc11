//! The stacks of `attach` beside exact ones: the bare kernel runs under `kprof-qemu count --stops` with a gdb stub.
//!
//! `attach` stops the machine for each sample, until the machine ends. After each stop the shadow stack, which follows
//! every call, says in which context the first block runs on. If it is at the sampled address, its stack must be that
//! of the sample, frame by frame. If an interrupt comes first, it is at another address.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::attached::{Machine, ends_with};
use super::beside;
use super::{Outside, build};
use crate::qemu;
use crate::run;
use crate::stacks::{self, Stack};

/// So many of them must be at the address of the exact stack, of 100.
const MIN_SAME: usize = 70;
/// The address of code that the profile does not tell: firmware.
const UNKNOWN: u64 = 1 << 63;
/// The machine may be stopped before the first sample, when the connection begins.
const STOPS_BEFORE: std::ops::Range<u64> = 0..3;

pub fn check(outside: &Outside) -> Result<()> {
    let folder = outside.file("stopped");
    fs::create_dir_all(&folder)?;
    let file = |name: &str| folder.join(name);
    fs::write(file("syms.txt"), build::symbols_of(&outside.kernel)?)?;
    fs::copy(&outside.kernel, file("kernel"))?;
    let mut count = run::bound(&outside.tool);
    count.args(["count", "--kernel"]).arg(&outside.kernel).arg("-o").arg(file("counts.txt"));
    count.arg("--stops").arg(file("stops.txt")).arg("--").arg(&outside.qemu);
    let icount =
        ["-smp", "1", "-cpu", qemu::NO_X2APIC, "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-S"];
    let mut machine = Machine::start_by(count, outside, "stopped/serial.log", &icount)?;
    let done = machine.attach(outside, "stopped/samples.txt", &["--user"])?;
    ends_with(&done, 0, "has ended the connection")?;
    machine.comes_to_its_end(&file("serial.log"))?;
    let sampled = stacks::sampled(&outside.fold, &folder, 0)?;
    let exact = stacks::stops(&folder)?.remove(&0).unwrap_or_default();
    let with = |before: u64| -> Vec<(Stack, Stack)> {
        let sample = |number: u64| sampled.get(number.checked_sub(before + 1)? as usize);
        let pairs = exact.iter().filter_map(|(number, exact)| Some((sample(*number)?.clone(), exact.clone())));
        pairs.filter(|(sample, exact)| sample.address == exact.address).collect()
    };
    let pairs = STOPS_BEFORE.map(with).max_by_key(Vec::len).context("a number of stops")?;
    let known = sampled.iter().filter(|sample| sample.address > UNKNOWN).count();
    eprintln!("{} of {known} samples of attach are at the address of an exact stack", pairs.len());
    ensure!(pairs.len() * 100 >= known * MIN_SAME, "too few: the stops are counted in another way");
    let (all, _) = beside::judge(pairs.into_iter())?;
    ensure!(all >= 100, "too few samples of kernel code");
    Ok(())
}
