//! `cargo xtask yardstick --flamegraph`: flame graphs of Debian's Linux, which has neither frame pointers nor
//! `.eh_frame`, and was moved by KASLR: an exact one, and one of samples by its ORC tables.
//!
//! In: Debian's kernel and its symbols, which it has printed itself in a boot without KASLR. Out: SVGs, folded stacks,
//! what part of the kernel's instructions has a stack that begins at a root (where a thread, an entry or the boot
//! begins), and how many sampled stacks are those of the shadow stack.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::machines::{self, Accel, SCRIPT};
use super::orc;
use crate::parts::Parts;
use crate::tools::Install;

/// As for the table, but with KASLR.
const LINUX: &str = "console=ttyS0 quiet mitigations=off";
/// The first functions of threads, of the boot, and of what user code has entered the kernel by.
const ROOTS: [&str; 7] = [
    "ret_from_fork",
    "ret_from_fork_asm",
    "start_kernel",
    "x86_64_start_kernel",
    "startup_64",
    "common_startup_64",
    "[user]",
];
/// The first words of names of entries.
const ENTRIES: [&str; 3] = ["asm_", "entry_", "secondary_startup_64"];
/// Executed instructions between two samples, on average.
const EVERY: &str = "200003";
const BEFORE: &str = "[unknown]";

/// Runs Linux, draws it, and prints the shares.
///
/// # Errors
/// If the kernel does not run to its end, or cannot be unpacked.
pub fn run(parts: &Parts, kernel: &Path, folder: &Path, tool: &Path, install: Install) -> Result<()> {
    fs::create_dir_all(folder)?;
    let symbols = machines::symbols(parts, kernel, folder)?;
    let [svg, folded, table] = ["flamegraph.svg", "linux.folded", "functions.txt"].map(|name| folder.join(name));
    let [vmlinux, samples, exact] = ["vmlinux", "samples.txt", "exact.txt"].map(|name| folder.join(name));
    orc::extract(kernel, &vmlinux, install)?;
    fs::copy(&symbols, folder.join("kernel"))?;
    let files = [tool, &symbols, &svg, &folded, &table].map(|path| path.display().to_string());
    let [tool, symbols, picture, stacks, rows] = files.each_ref().map(String::as_str);
    let words = [tool, "count", "--kernel", symbols, "--flamegraph", picture, "--folded", stacks, "-o", rows];
    let others = [&vmlinux, &samples, &exact].map(|path| path.display().to_string());
    let [tables, samples, exact] = others.each_ref().map(String::as_str);
    let sampled = ["--tables", tables, "--samples", samples, "--visits", exact, "--every", EVERY, "--"];
    let runner = words.into_iter().chain(sampled).map(str::to_owned).collect();
    machines::boot(parts, kernel, folder, (SCRIPT, Accel::Icount), LINUX, runner)?;
    let by_root = by_root(&fs::read_to_string(&folded)?)?;
    let all: u64 = by_root.values().sum();
    let rooted: u64 = by_root.iter().filter(|(root, _)| is_root(root)).map(|(_, count)| count).sum();
    ensure!(all > 0, "nothing of Linux was executed");
    let share = |count: u64| 100.0 * count as f64 / all as f64;
    println!("{all} instructions of Linux and its programs; {:.2} % have a stack that begins at a root", share(rooted));
    let mut rows: Vec<(&String, &u64)> = by_root.iter().collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (root, count) in rows.into_iter().take_while(|(_, count)| share(**count) >= 0.01) {
        println!("{:>8.2} % {}{root}", share(*count), if is_root(root) { "" } else { "no root: " });
    }
    println!("flame graph: {}", svg.display());
    let of_samples = folder.join("sampled.svg");
    orc::draw(&parts.fold, folder, &of_samples)?;
    println!("of the samples: {}", of_samples.display());
    orc::compare(&parts.fold, folder)
}

fn is_root(function: &str) -> bool {
    ROOTS.contains(&function) || ENTRIES.iter().any(|entry| function.starts_with(entry))
}

/// Instructions by outermost function. What ran before Linux is left out.
fn by_root(folded: &str) -> Result<BTreeMap<String, u64>> {
    let mut by_root = BTreeMap::new();
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').context("a line has a count")?;
        if stack != BEFORE {
            let root = stack.split(';').next().unwrap_or_default();
            *by_root.entry(root.to_owned()).or_insert(0) += count.parse::<u64>()?;
        }
    }
    Ok(by_root)
}
