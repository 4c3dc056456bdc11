//! `cargo xtask yardstick --planted`: 200 instructions in one system call are found in this call and in their function.
//!
//! In: how many runs. Out: a line for each. Each run has another system call and another seed of the kernel's random
//! numbers. The same kernel runs the script twice: as it is, and with the call named on its command line, for which it
//! then calls a function of 200 instructions. What is compared knows neither: of all functions in all calls, it is the
//! one whose instructions have grown most for each call.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::machines::{Calls, Row, ours_with};
use crate::build;
use crate::parts::Parts;

/// The kernel in which a call can be made slower, and the function that makes it so.
const SLOWER: [&str; 2] = ["--cfg", "kprof_slower"];
const FUNCTION: &str = "test_kernel::syscall::slower";
/// What is planted; with the call, the frame and the return it is a little more.
const PLANTED: std::ops::RangeInclusive<f64> = 200.0..=204.0;
/// Calls of the script, by number and name.
const CALLS: [(u64, &str); 20] = [
    (39, "getpid"),
    (1, "write"),
    (3, "close"),
    (63, "uname"),
    (0, "read"),
    (102, "getuid"),
    (33, "dup2"),
    (59, "execve"),
    (12, "brk"),
    (257, "openat"),
    (61, "wait4"),
    (82, "rename"),
    (83, "mkdir"),
    (84, "rmdir"),
    (87, "unlink"),
    (9, "mmap"),
    (10, "mprotect"),
    (217, "getdents64"),
    (21, "access"),
    (158, "arch_prctl"),
];

/// Makes the runs. Each must find what is planted.
pub fn check(parts: &Parts, folder: &Path, tool: &Path, runs: usize) -> Result<()> {
    let kernel = build::kernel(parts.toolchain, "profiling", &SLOWER)?;
    for run in 1..=runs {
        let (number, name) = CALLS[(run - 1) % CALLS.len()];
        // Without the shared folder, whose device answers as fast as the host does, a run depends on its seed only.
        let seed = format!("random-seed={run} seed={run} boot-id={run} share=late");
        let count = |name: &str, more: &str| {
            ours_with(parts, &kernel, &folder.join(name), tool, format!("{seed} {more}").trim_end())
        };
        let (before, after) = (count("before", "")?, count("planted", &format!("slower-call={number}"))?);
        let found = find(&before, &after).with_context(|| format!("run {run}: nothing has grown"))?;
        let median = found.surplus.map_or_else(|| "-".to_owned(), |surplus| format!("{surplus}"));
        println!(
            "run {run}: planted in {name}; found: {:.1} instructions of {} in {}, whose median has grown by {median}",
            found.of_function, found.function, found.call
        );
        let is_right = found.call == name && found.function == FUNCTION;
        ensure!(is_right && PLANTED.contains(&found.of_function), "run {run}: {name} is not what was found: {found:?}");
    }
    println!("{runs} of {runs} runs: the planted instructions are found in their call and in their function");
    Ok(())
}

/// What has grown most.
#[derive(Debug)]
struct Found {
    call: String,
    /// What the median of the call has grown by, if it returns.
    surplus: Option<f64>,
    function: String,
    of_function: f64,
}

/// The function that has grown most for each call of a system call. (What a call allocates depends on what was freed
/// before, so all of its instructions may differ by as much as is planted; those of one function do not.)
fn find(before: &Calls, after: &Calls) -> Option<Found> {
    let each = |row: &Row, name: &str| row.functions.get(name).copied().unwrap_or(0.0) / row.calls.max(1) as f64;
    let of_call = |(call, other): (&String, &Row)| {
        let one = before.get(call)?;
        let functions = other.functions.keys().map(|name| (name, each(other, name) - each(one, name)));
        let (function, of_function) = functions.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
        let surplus = other.median.zip(one.median).map(|(other, one)| other - one);
        Some(Found { call: call.clone(), surplus, function: function.clone(), of_function })
    };
    after.iter().filter_map(of_call).max_by(|one, other| one.of_function.total_cmp(&other.of_function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_grown_most_for_each_call_is_found_and_not_what_was_called_more_often() {
        let row = |calls, median, functions: [(&str, f64); 2]| Row {
            calls,
            median: Some(median),
            instructions: 0.0,
            functions: functions.map(|(name, count)| (name.to_owned(), count)).into(),
        };
        let one = |read, pid| Calls::from([("read".to_owned(), read), ("getpid".to_owned(), pid)]);
        let before =
            one(row(10, 400.0, [("copy", 3000.0), ("get", 900.0)]), row(2, 166.0, [("get", 90.0), ("x", 0.0)]));
        let after =
            one(row(90, 410.0, [("copy", 27_900.0), ("get", 8100.0)]), row(2, 370.0, [("get", 90.0), ("slow", 404.0)]));
        let found = find(&before, &after).unwrap();
        assert_eq!((&found.call[..], found.surplus), ("getpid", Some(204.0)));
        assert_eq!((&found.function[..], found.of_function), ("slow", 202.0));
        assert!(find(&Calls::new(), &after).is_none());
    }
}
