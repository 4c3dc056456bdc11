//! A kernel that runs elsewhere than its ELF file says, as with KASLR: `kprof-qemu` finds how far it was moved, by the
//! code in the guest's memory, and refuses the file of another kernel.
//!
//! The bare kernel is linked twice, at two addresses. The one runs, the file of the other is given.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{COUNTED, EVERY, LIMIT, Outcome, Outside};
use crate::toolchain::{self, KERNEL, Toolchain};
use crate::{build, run};

/// Where the kernel is linked, and where the one that runs is.
pub const LINKED: &str = "0xffffffff80200000";
pub const RUNS: &str = "0xffffffff81a00000";
pub const SLIDE: u64 = 0x180_0000;
pub const FOUND: &str = "the kernel runs 0x1800000 higher than ";

/// Runs the checks.
pub fn check(outside: &Outside, toolchain: Toolchain, outcome: &mut Outcome) {
    let built = self::kernels(toolchain, &outside.folder).map(|[unmoved, moved]| (unmoved, moved));
    let kernels = || built.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"));
    outcome.check(
        "a kernel that was moved has its right names by the unmoved file",
        kernels().and_then(|(unmoved, moved)| is_found(outside, unmoved, moved)),
    );
    outcome.check(
        "the counts of a kernel that was moved are those by its own file",
        kernels().and_then(|(unmoved, moved)| is_counted(outside, unmoved, moved)),
    );
    outcome.check("code that is not a kernel's is reported", is_firmware(outside));
    outcome.check(
        "the file of another build, and a wrong slide, are refused",
        kernels().and_then(|(unmoved, moved)| is_refused(outside, unmoved, moved)),
    );
}

/// A symbol at the end of the code, as many kernels have it: it is at no instruction, and moves with the code.
const CODE_ENDS: (&str, &str) = ("{ *(.text .text.*) }", "{ *(.text .text.*) etext = .; }");

/// Builds the kernel whose file is given, and the one that runs.
///
/// # Errors
/// If one does not build.
pub fn kernels(toolchain: Toolchain, folder: &Path) -> Result<[PathBuf; 2]> {
    let unmoved = build(toolchain, "unmoved", LINKED, folder)?;
    Ok([unmoved, build(toolchain, "moved", RUNS, folder)?])
}

/// Builds the bare kernel for an address.
///
/// # Errors
/// If it does not build.
fn build(toolchain: Toolchain, name: &str, address: &str, folder: &Path) -> Result<PathBuf> {
    let command = toolchain::cargo(toolchain, "build", KERNEL)?;
    link(command, name, &[(LINKED, address), CODE_ENDS], folder, "target/outside-bare")
}

/// Builds the bare kernel with this cargo command and a linker script in which words are replaced.
///
/// # Errors
/// If it does not build; if the script does not have such words.
pub fn link(
    mut command: Command,
    name: &str,
    replaced: &[(&str, &str)],
    folder: &Path,
    target: &str,
) -> Result<PathBuf> {
    let made = folder.join(format!("{name}.ld"));
    script("kernel-integration/ports/bare/kernel.ld", replaced, &made)?;
    let target = run::root().join(target);
    command.env("BARE_SCRIPT", &made).env_remove("CARGO_TARGET_DIR").arg("--target-dir").arg(&target);
    let (built, kernel) = (build::bare(command, target)?, folder.join(name));
    fs::copy(built, &kernel)?;
    Ok(kernel)
}

/// Writes a linker script of this project in which words are replaced.
///
/// # Errors
/// If it does not have such words.
pub fn script(source: &str, replaced: &[(&str, &str)], to: &Path) -> Result<()> {
    let mut text = fs::read_to_string(run::root().join(source))?;
    for (word, by) in replaced {
        ensure!(text.contains(word), "{source} does not say {word}");
        text = text.replace(word, by);
    }
    Ok(fs::write(to, text)?)
}

/// Runs a verb of the tool with this kernel; gives the exit code and what it said.
pub fn tool(outside: &Outside, kernel: &Path, words: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = run::bound(&outside.tool);
    let mut machine = outside.machine("moved.log", &COUNTED);
    *machine.last_mut().context("the machine has a kernel")? = kernel.display().to_string();
    let done = run::caught(command.args(words).arg("--").arg(&outside.qemu).args(machine), LIMIT)?;
    Ok((done.status.and_then(|status| status.code()), done.text))
}

/// A machine without a kernel: its firmware finds nothing to start, and resets it.
fn is_firmware(outside: &Outside) -> Result<()> {
    let mut command = run::bound(&outside.tool);
    command.args(["record", "-o"]).arg(outside.file("firmware.txt")).arg("--").arg(&outside.qemu);
    command.args(["-M", "q35", "-nodefaults", "-display", "none", "-no-reboot", "-boot", "reboot-timeout=100"]);
    let done = run::caught(&mut command, LIMIT)?;
    ensure!(done.text.contains("are of code in kernel mode that is not the kernel's: firmware"), "{}", done.text);
    Ok(())
}

fn is_found(outside: &Outside, unmoved: &Path, moved: &Path) -> Result<()> {
    let profile = outside.file("moved.txt");
    let record = ["record", "--every", EVERY, "-o", &profile.display().to_string()].map(str::to_owned);
    let mut folded = Vec::new();
    for (file, slide) in [(moved, None), (unmoved, None), (unmoved, Some("0x1800000"))] {
        let mut words: Vec<&str> = record.iter().map(String::as_str).collect();
        let file = file.display().to_string();
        words.extend(["--kernel", &file]);
        words.extend(slide.into_iter().flat_map(|slide| ["--slide", slide]));
        let (code, said) = tool(outside, moved, &words)?;
        ensure!(code == Some(33), "it ended with {code:?}: {said}");
        let is_moved = said.contains(FOUND);
        ensure!(is_moved == (file == unmoved.display().to_string()), "{file}: {said}");
        let text =
            run::output(Command::new(&outside.fold).args(["--strict", "-q", "--no-inline"]).arg(&profile).arg(&file))?;
        folded.push(text);
    }
    let of_work = folded[0].lines().filter(|line| line.starts_with("kmain;") && line.contains(";bare::work"));
    ensure!(of_work.count() > 3, "the work is not in the stacks: {}", folded[0]);
    ensure!(folded[0] == folded[1], "by the moved file:\n{}\nby the unmoved one:\n{}", folded[0], folded[1]);
    ensure!(folded[1] == folded[2], "found:\n{}\ngiven:\n{}", folded[1], folded[2]);
    Ok(())
}

fn is_counted(outside: &Outside, unmoved: &Path, moved: &Path) -> Result<()> {
    let count = |file: &Path| -> Result<(String, String)> {
        let (table, part) = (outside.file("moved-count.txt"), outside.file("moved-part.txt"));
        let names = [&table, &part, file].map(|path| path.display().to_string());
        let words = ["count", "--min", "0", "-o", &names[0], "--per-cpu", &names[1], "--kernel", &names[2]];
        let (code, said) = tool(outside, moved, &[&words[..], &["--from", "bare::work"]].concat())?;
        ensure!(code == Some(33) && said.contains(" 0 jumps without a reason"), "it ended with {code:?}: {said}");
        Ok((fs::read_to_string(table)?, fs::read_to_string(part)?))
    };
    let by_moved = match outside.is_unsteady() {
        true => outside.repeated(|| count(moved), Clone::clone)?,
        false => count(moved)?,
    };
    let is_alike = |other: &Result<_>| other.as_ref().is_ok_and(|other| *other == by_moved);
    let by_unmoved = outside.until_alike(|| count(unmoved), is_alike)?;
    ensure!(by_moved.0.contains("  bare::is_prime\n"), "{}", by_moved.0);
    ensure!(by_moved == by_unmoved, "by the moved file: {by_moved:?}\nby the unmoved one: {by_unmoved:?}");
    Ok(())
}

fn is_refused(outside: &Outside, unmoved: &Path, moved: &Path) -> Result<()> {
    // One part in a hundred of the code is another one.
    let other = outside.file("other");
    let mut bytes = fs::read(unmoved)?;
    let code = fs::read(moved)?.windows(64).position(|part| part.starts_with(&[0x55, 0x48, 0x89, 0xe5]));
    let code = code.context("the kernel has a function")? + 8192;
    bytes[code..code + 1024].iter_mut().for_each(|byte| *byte ^= 0x55);
    fs::write(&other, bytes)?;
    let profile = outside.file("refused.txt").display().to_string();
    for (file, slide, part) in [(other.as_path(), None, "only "), (unmoved, Some("0x1000000"), "nowhere")] {
        let file = file.display().to_string();
        let mut words = vec!["record", "--every", EVERY, "-o", &profile, "--kernel", &file];
        words.extend(slide.into_iter().flat_map(|slide| ["--slide", slide]));
        let (code, said) = tool(outside, moved, &words)?;
        let is_right = code == Some(2) && said.contains("is not the kernel that ran") && said.contains(part);
        ensure!(is_right, "{file} {slide:?}: exit code {code:?}: {said}");
        ensure!(said.contains("has all samples") && fs::read_to_string(&profile)?.contains("\nguest "), "{said}");
    }
    Ok(())
}
