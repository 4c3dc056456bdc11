//! Measuring a command line: CPU time of all its processes, wall time, peak memory, instructions.
//!
//! In: a shell command. Out: figures. Its output goes to /dev/null. Never interprets the figures.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Figures of one run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// User and system time of all processes, seconds.
    pub cpu: f64,
    /// Wall time, seconds.
    pub wall: f64,
    /// Peak memory of the largest child of this bench so far, MiB.
    pub peak_mib: f64,
}

/// Runs a shell command.
pub fn run(command: &str) -> Run {
    let usage = || getrusage(UsageWho::RUSAGE_CHILDREN).expect("getrusage works");
    let cpu = || (usage().user_time() + usage().system_time()).num_microseconds() as f64 / 1e6;
    let (before, start) = (cpu(), Instant::now());
    let mut shell = Command::new("sh");
    let status = shell.arg("-c").arg(format!("exec {command}")).stdout(Stdio::null()).status().expect("sh runs");
    assert!(status.success(), "{command}: {status}");
    Run { cpu: cpu() - before, wall: start.elapsed().as_secs_f64(), peak_mib: usage().max_rss() as f64 / 1024.0 }
}

/// Instructions of `binary -q FILE SYMS 2.2` by callgrind, if valgrind is there.
pub fn instructions(binary: &Path, files: &[&Path], folder: &Path) -> Option<u64> {
    let out = folder.join("callgrind.out");
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display())).arg(binary);
    let done = valgrind.arg("-q").args(files).arg("2.2").stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    let text = done.success().then(|| std::fs::read_to_string(&out).ok()).flatten()?;
    let line = text.lines().find(|line| line.starts_with("summary:") || line.starts_with("totals:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
