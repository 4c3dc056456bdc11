//! The two machines. In: a kernel. Out: the calls that `kprof-qemu syscalls` has counted while it ran the script.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::build::Kernel;
use crate::initrd::Initrd;
use crate::parts::Parts;
pub use crate::qemu::Accel;
use crate::qemu::{self, Machine, Verdict};

/// What both kernels run.
pub const SCRIPT: &str = include_str!("script.sh");
/// Init of the Linux that prints its symbols.
const SYMBOLS: &str = "#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /dev /proc
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b grep -i ' [tw] ' /proc/kallsyms > /dev/ttyS0
$b poweroff -f
";
/// Without the workarounds for processors that are not this one, and at the addresses that it was linked to.
const LINUX: &str = "console=ttyS0 quiet nokaslr mitigations=off";
const LIMIT: Duration = Duration::from_secs(300);
/// Functions of a call that are kept: all that matter.
const FUNCTIONS: &str = "40";

/// A system call, by all who asked for it.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// How often.
    pub calls: u64,
    /// The median of its instructions; `None` if it has never returned.
    pub median: Option<f64>,
    /// All instructions.
    pub instructions: f64,
    /// Instructions of functions.
    pub functions: BTreeMap<String, f64>,
}

/// All calls, by name.
pub type Calls = BTreeMap<String, Row>;

/// The test kernel's calls.
///
/// # Errors
/// If it does not run to its end, or counts differ.
pub fn ours(parts: &Parts, kernel: &Kernel, folder: &Path, tool: &Path) -> Result<Calls> {
    ours_with(parts, kernel, folder, tool, "")
}

/// The same, with more on the kernel's command line.
pub fn ours_with(parts: &Parts, kernel: &Kernel, folder: &Path, tool: &Path, more: &str) -> Result<Calls> {
    count(parts, (&kernel.elf, &kernel.elf), folder, tool, format!("accel=icount {more}").trim_end())
}

/// Linux's calls.
///
/// # Errors
/// The same.
pub fn theirs(parts: &Parts, kernel: &Path, folder: &Path, tool: &Path) -> Result<Calls> {
    fs::create_dir_all(folder)?;
    let symbols = symbols(parts, kernel, folder)?;
    count(parts, (kernel, &symbols), folder, tool, LINUX)
}

/// The symbols of Linux, as it prints them. Debian's kernel comes without: its System.map names another package.
///
/// # Errors
/// If it does not print them.
pub fn symbols(parts: &Parts, kernel: &Path, folder: &Path) -> Result<PathBuf> {
    let name = kernel.file_name().context("the kernel has a name")?.to_string_lossy().replace("vmlinuz", "symbols");
    let file = kernel.with_file_name(name);
    if file.is_file() {
        return Ok(file);
    }
    let log = boot(parts, kernel, folder, (SYMBOLS, Accel::Tcg), LINUX, Vec::new())?;
    let is_symbol = |line: &&str| line.split_once(' ').is_some_and(|(address, _)| address.len() == 16);
    let lines: Vec<&str> = log.lines().map(str::trim_end).filter(is_symbol).collect();
    ensure!(lines.len() > 10_000, "Linux has printed {} symbols:\n{:.2000}", lines.len(), log);
    fs::write(&file, lines.join("\n"))?;
    Ok(file)
}

fn count(parts: &Parts, (kernel, symbols): (&Path, &Path), folder: &Path, tool: &Path, append: &str) -> Result<Calls> {
    let table = folder.join("calls.json");
    let _ = fs::remove_file(&table);
    let words = ["syscalls", "--format", "json", "--functions", FUNCTIONS];
    let files = ["--kernel", &symbols.display().to_string(), "-o", &table.display().to_string(), "--"];
    let runner = [&tool.display().to_string()[..]].into_iter().chain(words).chain(files).map(str::to_owned).collect();
    boot(parts, kernel, folder, (SCRIPT, Accel::Icount), append, runner)?;
    read(&table)
}

/// Runs a machine whose init is `script` to its end, and gives its serial log.
///
/// # Errors
/// If it does not run to its end.
pub fn boot(
    parts: &Parts,
    kernel: &Path,
    folder: &Path,
    (script, accel): (&str, Accel),
    append: &str,
    runner: Vec<String>,
) -> Result<String> {
    let (share, serial) = (folder.join("root"), folder.join("serial.log"));
    fs::create_dir_all(&share)?;
    let mut initrd = Initrd::empty();
    initrd.folder(Path::new("bin"));
    initrd.file("bin/busybox", &parts.busybox)?;
    initrd.first_text("init", script);
    initrd.write(&folder.join("initrd"))?;
    let machine = Machine {
        kernel,
        initrd: folder.join("initrd"),
        share: &share,
        serial: &serial,
        second_serial: None,
        seed: Some(1),
        accel,
        cpus: 1,
        append: append.to_owned(),
        limit: LIMIT,
        disks: Vec::new(),
        runner,
    };
    eprintln!("running {}", kernel.file_name().unwrap_or_default().display());
    match machine.run(&parts.qemu, || ())? {
        Verdict::Success | Verdict::Died(Some(0)) => Ok(String::from_utf8_lossy(&fs::read(&serial)?).into_owned()),
        verdict => bail!("{}: {verdict:?}; the end of the log:\n{}", kernel.display(), qemu::last_lines(&serial, 30)),
    }
}

fn read(file: &Path) -> Result<Calls> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let all: serde_json::Value = serde_json::from_str(&text)?;
    let sum = |name: &str| all["sums"][name].as_u64().unwrap_or(0);
    let parts = ["calls", "interrupts", "exceptions", "outside", "user"].map(sum);
    ensure!(parts.iter().sum::<u64>() == sum("executed") && sum("calls") > 0, "the sums are wrong: {}", all["sums"]);
    let mut calls = Calls::new();
    for call in all["calls"].as_array().context("there are calls")? {
        let functions = call["functions"].as_array().into_iter().flatten();
        let function = |function: &serde_json::Value| {
            Some((function["function"].as_str()?.to_owned(), function["instructions"].as_f64()?))
        };
        let row = Row {
            calls: call["calls"].as_u64().unwrap_or(0),
            median: call["median"].as_f64(),
            instructions: call["instructions"].as_f64().unwrap_or(0.0),
            functions: functions.filter_map(function).collect(),
        };
        calls.insert(call["name"].as_str().unwrap_or_default().to_owned(), row);
    }
    Ok(calls)
}
