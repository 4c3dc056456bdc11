//! `kprof-qemu syscalls` with the test kernel: every instruction has an owner, calls that neither allocate nor wait
//! have the same counts in two runs, and 200 planted instructions are found in their system call and in their function.

use anyhow::{Context as _, Result, ensure};

use super::Outside;
use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::yardstick::{self, Calls, Row};

/// Runs with planted instructions; `cargo xtask yardstick --planted` has more.
const PLANTED_RUNS: usize = 2;

/// Counts the test kernel's calls, and those of a kernel with planted instructions.
pub fn check(outside: &Outside, parts: &Parts) -> Result<()> {
    let count = |kernel: &Kernel, name: &str| yardstick::ours(parts, kernel, &outside.file(name), &outside.tool);
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    let (calls, again) = (count(&kernel, "calls-one")?, count(&kernel, "calls-two")?);
    let row = |calls: &Calls, name: &str| calls.get(name).cloned().with_context(|| format!("{name} was not counted"));
    let median = |row: &Row| row.median.context("no call has returned");
    // These calls neither allocate nor wait. When the host answers the machine's file system is not the same in two
    // runs, so calls that do have other counts.
    for name in ["getpid", "getuid", "uname", "close"] {
        let (one, two) = (row(&calls, name)?, row(&again, name)?);
        ensure!((one.calls, median(&one)?) == (two.calls, median(&two)?), "{name}: {one:?}, and again {two:?}");
    }
    // `exit_group` never returns, `wait4` sleeps until a child has ended, `read` and `write` do the work.
    let [exit, wait, write] = ["exit_group", "wait4", "write"].map(|name| row(&calls, name));
    let (exit, wait, write) = (exit?, wait?, write?);
    ensure!(exit.median.is_none() && exit.calls >= 100, "{exit:?}");
    ensure!(wait.median.is_some_and(|median| median < 100_000.0), "{wait:?}");
    ensure!(write.calls > 2000, "{write:?}");
    yardstick::check_planted(parts, &outside.file("planted"), &outside.tool, PLANTED_RUNS)
}
