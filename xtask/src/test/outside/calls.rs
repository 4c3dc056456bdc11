//! `kprof-qemu syscalls` with the test kernel: every instruction has an owner, calls that neither allocate nor wait
//! have the same counts in two runs, and 200 planted instructions are found in their system call and in their function.

use anyhow::{Context as _, Result, ensure};

use super::Outside;
use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::yardstick::{self, Calls, Row};

/// The call that is slower in a kernel with this flag, and the function that makes it so.
const SLOWER: [&str; 2] = ["--cfg", "kprof_slower"];
const CALL: &str = "getpid";
const FUNCTION: &str = "test_kernel::syscall::process::slower";
const PLANTED: f64 = 200.0;
/// Instructions around the planted ones, in the function and in its caller: call, frame, registers that are saved.
const AROUND: [f64; 2] = [4.0, 16.0];

/// Counts the test kernel's calls, and those of one with planted instructions.
pub fn check(outside: &Outside, parts: &Parts) -> Result<()> {
    let count = |kernel: &Kernel, name: &str| yardstick::ours(parts, kernel, &outside.file(name), &outside.tool);
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    let slower = build::kernel(parts.toolchain, "profiling", &SLOWER)?;
    let (calls, again) = (count(&kernel, "calls-one")?, count(&kernel, "calls-two")?);
    let planted = count(&slower, "calls-planted")?;
    let row = |calls: &Calls, name: &str| calls.get(name).cloned().with_context(|| format!("{name} was not counted"));
    let median = |row: &Row| row.median.context("no call has returned");
    // These calls neither allocate nor wait. When the host answers the machine's file system is not the same in two
    // runs, so calls that do have other counts.
    for name in [CALL, "getuid", "uname", "close"] {
        let (one, two) = (row(&calls, name)?, row(&again, name)?);
        ensure!((one.calls, median(&one)?) == (two.calls, median(&two)?), "{name}: {one:?}, and again {two:?}");
    }
    let (before, after) = (row(&calls, CALL)?, row(&planted, CALL)?);
    let surplus = median(&after)? - median(&before)?;
    let of_function = after.functions.get(FUNCTION).copied().unwrap_or(0.0) / after.calls as f64;
    eprintln!("planted: {surplus} instructions in {CALL}, of these {of_function} in {FUNCTION}");
    let is_found = (PLANTED..=PLANTED + AROUND[0]).contains(&of_function)
        && (of_function..=of_function + AROUND[1]).contains(&surplus);
    ensure!(is_found, "{surplus} instructions in {CALL}, {of_function} in {FUNCTION}: {before:?} {after:?}");
    // `set_tid_address` has the same function in it, and is slower too.
    for name in ["getuid", "dup2", "uname", "close"] {
        let (before, after) = (row(&calls, name)?, row(&planted, name)?);
        ensure!(median(&before)? == median(&after)?, "{name}: {before:?} {after:?}");
    }
    // `exit_group` never returns, `wait4` sleeps until a child has ended, `read` and `write` do the work.
    let [exit, wait, write] = ["exit_group", "wait4", "write"].map(|name| row(&calls, name));
    let (exit, wait, write) = (exit?, wait?, write?);
    ensure!(exit.median.is_none() && exit.calls >= 100, "{exit:?}");
    ensure!(wait.median.is_some_and(|median| median < 100_000.0), "{wait:?}");
    ensure!(write.calls > 2000, "{write:?}");
    Ok(())
}
