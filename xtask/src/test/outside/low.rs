//! A kernel in the lower half of the address space: `kprof-qemu` has its stacks and names as those of any other kernel.
//!
//! The bare kernel is linked at 2 MiB. It is sampled with its file, with what nm prints of it, without either, and by
//! its gdb stub; and its instructions are counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::attached::{Machine, ends_with};
use super::moved::{self, LINKED};
use super::{EVERY, Outcome, Outside};
use crate::run;
use crate::toolchain::{self, KERNEL, Toolchain};

const LOW: &str = "0x200000";
/// How much higher than in memory the kernel of the linker script runs.
const HIGHER: &str = " - 0xffffffff80000000";
/// One sample in this many may be of the firmware and the boot.
const BOOT_PART: u64 = 20;

/// Stacks with their samples.
type Folded = Vec<(String, u64)>;

/// Runs the checks.
pub fn check(outside: &Outside, toolchain: Toolchain, outcome: &mut Outcome) {
    let built = build(toolchain, &outside.folder);
    let kernel = || built.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"));
    outcome.check("a kernel in the lower half has its stacks", kernel().and_then(|kernel| has_stacks(outside, kernel)));
    outcome.check("its instructions are counted", kernel().and_then(|kernel| is_counted(outside, kernel)));
    outcome.check("its stacks by the gdb stub are such, too", kernel().and_then(|kernel| by_stub(outside, kernel)));
}

fn build(toolchain: Toolchain, folder: &Path) -> Result<PathBuf> {
    let command = toolchain::cargo(toolchain, "build", KERNEL)?;
    moved::link(command, "low", &[(LINKED, LOW), (HIGHER, "")], folder, "target/outside-bare")
}

/// Nearly all samples are of stacks that begin with the first function, and the work is in its functions.
fn is_whole(folded: &[(String, u64)]) -> Result<()> {
    let sum = |is: &dyn Fn(&str) -> bool| folded.iter().filter(|(stack, _)| is(stack)).map(|(_, n)| n).sum::<u64>();
    let (all, whole) = (sum(&|_| true), sum(&|stack| stack == "kmain" || stack.starts_with("kmain;")));
    let work = sum(&|stack| stack.starts_with("kmain;") && stack.contains(";bare::work;"));
    ensure!(all > 200 && (all - whole) * BOOT_PART < all, "{whole} of {all} samples are under kmain: {folded:?}");
    ensure!(work * 2 > all, "{work} of {all} samples are in the work: {folded:?}");
    Ok(())
}

fn has_stacks(outside: &Outside, kernel: &Path) -> Result<()> {
    let (list, profile) = (outside.file("low.nm"), outside.file("low.txt"));
    fs::write(&list, run::output(Command::new("nm").arg("-S").arg(kernel))?)?;
    let record = |known: Option<&Path>| -> Result<[Folded; 2]> {
        let names = [Some(profile.as_path()), known].map(|path| path.map(|path| path.display().to_string()));
        let mut words = vec!["record", "--every", EVERY, "-o"];
        words.extend(names[0].as_deref());
        words.extend(names[1].iter().flat_map(|name| ["--kernel", name]));
        let (code, said) = moved::tool(outside, kernel, &words)?;
        ensure!(code == Some(33), "it ended with {code:?}: {said}");
        ensure!(said.contains("the kernel runs where ") == known.is_some(), "{said}");
        ensure!(!said.contains("are of code in kernel mode that is not the kernel's"), "{said}");
        let folded = |symbols: &Path| {
            let folded = outside.folded_with(&["--no-inline"], "low.txt", symbols)?;
            is_whole(&folded).with_context(|| format!("recorded with {known:?}, folded with {symbols:?}"))?;
            anyhow::Ok(folded)
        };
        Ok([folded(kernel)?, folded(&list)?])
    };
    let first = match outside.is_unsteady() {
        true => outside.repeated(|| record(Some(kernel)), Clone::clone)?,
        false => record(Some(kernel))?,
    };
    // Only the kernel's file has the code by which the caller of a function without a frame is known.
    for known in [Some(list.as_path()), None] {
        let is_alike = |other: &Result<_>| other.as_ref().is_ok_and(|other| *other == first);
        let other = outside.until_alike(|| record(known), is_alike)?;
        ensure!(other == first, "the same samples, and other stacks with {known:?}: {first:#?}, {other:#?}");
    }
    let sum = |folded: &Folded| folded.iter().map(|(_, count)| count).sum::<u64>();
    let [by_file, by_list] = first.map(|folded| sum(&folded));
    ensure!(by_file == by_list, "{by_file} samples by the file, {by_list} by the list of symbols");
    Ok(())
}

/// The counts are by function, with all calls and returns explained.
fn is_counted(outside: &Outside, kernel: &Path) -> Result<()> {
    let names = [outside.file("low-count.txt"), kernel.to_owned()].map(|path| path.display().to_string());
    let (code, said) = moved::tool(outside, kernel, &["count", "-o", &names[0], "--kernel", &names[1]])?;
    ensure!(code == Some(33) && said.contains(" 0 jumps without a reason"), "it ended with {code:?}: {said}");
    let table = fs::read_to_string(&names[0])?;
    ensure!(table.contains("  bare::is_prime\n"), "{table}");
    Ok(())
}

fn by_stub(outside: &Outside, kernel: &Path) -> Result<()> {
    let outside = Outside { kernel: kernel.to_owned(), ..outside.clone() };
    let mut machine = Machine::start(&outside, "low-stub.log", &["-S"])?;
    let done = machine.attach(&outside, "low-stub.txt", &["--hz", "2000"])?;
    ends_with(&done, 0, "has ended the connection")?;
    machine.comes_to_its_end(&outside.file("low-stub.log"))?;
    let folded = outside.folded_with(&["--no-inline"], "low-stub.txt", kernel)?;
    let strange = folded
        .iter()
        .map(|(stack, _)| stack)
        .find(|stack| stack.contains("bare::work") && !stack.starts_with("kmain;"));
    let work: u64 = folded.iter().filter(|(stack, _)| stack.contains("bare::work")).map(|(_, count)| count).sum();
    ensure!(work > 0 && strange.is_none(), "{work} samples of the work, {strange:?}: {folded:?}");
    Ok(())
}
