//! Stacks of kernels without frame pointers, by their unwind tables.
//!
//! The test kernel is compiled without frame pointers, and has `.debug_frame`; its stacks are compared with the exact
//! ones of the shadow stack, as those by frame pointers are: see [`beside`]. The bare kernel has `.eh_frame`, and runs
//! elsewhere than its file says. `kprof-qemu` is told neither.

use std::fs;

use anyhow::{Result, ensure};

use super::moved::{self, FOUND, LINKED, RUNS};
use super::{COUNTED, Context, EVERY, LIMIT, Outcome, Outside, beside};
use crate::build;
use crate::parts::Parts;
use crate::run;
use crate::toolchain::{self, KERNEL, Toolchain};

/// Those of `.cargo/config.toml`, without frame pointers.
pub const FLAGS: [&str; 3] = ["-Crelocation-model=static", "-Cforce-frame-pointers=no", "-Clink-arg=--build-id=sha1"];
/// The linker script of the bare kernel throws the tables away.
const KEPT: [(&str, &str); 2] = [
    ("*(.eh_frame .eh_frame_hdr ", "*(.eh_frame_hdr "),
    (
        "    .data ALIGN",
        "    .eh_frame ALIGN(8) : AT(ADDR(.eh_frame) - 0xffffffff80000000) { KEEP(*(.eh_frame)) } :text
    .data ALIGN",
    ),
];
const NO_TABLES: &str = "larger functions have a frame pointer, and it has no unwind tables: stacks will lack callers";
const BY_TABLES: &str = "stacks are found by the unwind tables of ";

/// Runs the checks.
pub fn check(context: &mut Context, outside: &Outside, toolchain: Toolchain, outcome: &mut Outcome) {
    let compared = context.parts().and_then(|parts| compare(parts, outside));
    outcome.check("stacks of a kernel without frame pointers are those of the shadow stack", compared);
    let found = of_moved(outside, toolchain);
    outcome.check("a kernel without frame pointers has its stacks by the tables of the unmoved file", found);
    outcome.check("frame pointers are used where the kernel has them", by_frames(outside));
}

fn compare(parts: &Parts, outside: &Outside) -> Result<()> {
    let kernel = build::kernel_only_with(parts.toolchain, "profiling", &FLAGS)?;
    beside::compare(parts, outside, &kernel, "unwound", "tables")
}

fn of_moved(outside: &Outside, toolchain: Toolchain) -> Result<()> {
    let link = |name: &str, address: &str| {
        let mut command = toolchain::cargo(toolchain, "build", KERNEL)?;
        command.env("CARGO_ENCODED_RUSTFLAGS", [&FLAGS[..], &["-Cforce-unwind-tables=yes"]].concat().join("\x1f"));
        let replaced = [&KEPT[..], &[(LINKED, address)]].concat();
        moved::link(command, name, &replaced, &outside.folder, "target/outside-tables")
    };
    let (unmoved, runs) = (link("tables", LINKED)?, link("tables-moved", RUNS)?);
    let (profile, file) = (outside.file("tables.txt"), unmoved.display().to_string());
    let words = ["record", "--every", EVERY, "-o", &profile.display().to_string(), "--kernel", &file];
    let (code, said) = moved::tool(outside, &runs, &words)?;
    ensure!(code == Some(33) && said.contains(BY_TABLES) && said.contains(FOUND), "it ended with {code:?}: {said}");
    let mut fold = std::process::Command::new(&outside.fold);
    let text = run::output(fold.args(["--strict", "-q", "--no-inline"]).arg(&profile).arg(&file))?;
    let count = |is: &dyn Fn(&str) -> bool| -> u64 {
        let lines = text.lines().filter_map(|line| line.rsplit_once(' ')).filter(|(stack, _)| is(stack));
        lines.filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
    };
    // The firmware is `[unknown]`.
    let all = count(&|stack| stack != "[unknown]");
    let rooted = count(&|stack| stack.starts_with("kmain"));
    eprintln!("{rooted} of {all} stacks of a kernel without frame pointers reach their root");
    ensure!(all > 500 && rooted * 100 >= all * 90, "{rooted} of {all} stacks begin with kmain: {text}");
    let without = outside.file("tables-removed");
    let mut remove = std::process::Command::new("objcopy");
    run::output(remove.args(["-R", ".eh_frame", "-R", ".debug_frame"]).arg(&runs).arg(&without))?;
    let kernel = without.display().to_string();
    let words = ["record", "--every", EVERY, "-o", &profile.display().to_string(), "--kernel", &kernel];
    let (code, said) = moved::tool(outside, &runs, &words)?;
    ensure!(code == Some(33) && said.contains(NO_TABLES), "without tables: it ended with {code:?}: {said}");
    let primes = count(&|stack| stack == "kmain;bare::work;bare::is_prime");
    ensure!(primes * 3 > all, "{primes} of {all} samples are in is_prime under work: {text}");
    Ok(())
}

/// The bare kernel as it is has frame pointers and `.debug_frame`.
fn by_frames(outside: &Outside) -> Result<()> {
    let (profile, file) = (outside.file("frames.txt"), outside.kernel.display().to_string());
    let words = ["record", "--every", EVERY, "-o", &profile.display().to_string(), "--kernel", &file];
    let (code, said) = moved::tool(outside, &outside.kernel, &words)?;
    ensure!(code == Some(33) && !said.contains(BY_TABLES), "it ended with {code:?}: {said}");
    ensure!(fs::read_to_string(&profile)?.contains("\n# load "), "the profile does not say where the kernel ran");
    let _ = fs::remove_file(outside.file("none.txt"));
    let mut command = run::bound(&outside.tool);
    command.args(["record", "--unwind", "tables", "-o"]).arg(outside.file("none.txt")).arg("--").arg(&outside.qemu);
    let done = run::caught(command.args(outside.machine("none.log", &COUNTED)), LIMIT)?;
    let code = done.status.and_then(|status| status.code());
    ensure!(code == Some(2) && done.text.contains("--kernel"), "without a file: exit code {code:?}: {}", done.text);
    Ok(())
}
