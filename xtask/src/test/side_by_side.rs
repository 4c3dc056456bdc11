//! Runs groups of tests side by side: each in a process of its own, some at once.
//!
//! In: names of groups, in the order in which they begin. Out: a line per group as it ends, what its failures said, and
//! the sums. Most groups keep one core busy (a machine in QEMU that counts instructions is one thread), so two of them
//! use two cores. Groups must not share a file that one of them changes: what they build in common is kept by
//! [`crate::build`], and what they install is installed by one process at a time ([`crate::tools`]).

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::run;

/// How often to look for groups that have ended.
const POLL: Duration = Duration::from_millis(50);
/// Lines shown of a group that ended without a result.
const LAST_LINES: usize = 100;

/// What all groups found together.
#[derive(Default)]
pub struct Sums {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
    /// Why steps were left out, a line each.
    pub skipped: Vec<String>,
}

struct Running {
    name: &'static str,
    log: PathBuf,
    child: run::Guard,
}

/// Runs the groups with `arguments` after `cargo xtask test --only GROUP`, at most `jobs` at once (at least 1).
///
/// # Errors
/// If a process cannot be started, or a log cannot be written.
pub fn run(groups: &[&'static str], jobs: usize, arguments: &[String]) -> Result<Sums> {
    let folder = run::root().join("target/test");
    std::fs::create_dir_all(&folder)?;
    let mut waiting: VecDeque<&'static str> = groups.iter().copied().collect();
    let mut running: Vec<Running> = Vec::new();
    let mut sums = Sums::default();
    while !(waiting.is_empty() && running.is_empty()) {
        while running.len() < jobs
            && let Some(name) = waiting.pop_front()
        {
            let log = folder.join(format!("{}.log", name.replace(' ', "-")));
            // Written by one call, because standard output may go to the same terminal.
            let line = format!("{name}: begins, its output goes to {}\n", log.display());
            eprint!("{line}");
            let child = start(name, &log, arguments)?;
            running.push(Running { name, log, child: run::Guard(child) });
        }
        let mut ended = None;
        for (index, group) in running.iter_mut().enumerate() {
            if let Some(status) = group.child.0.try_wait()? {
                ended = Some((index, status));
                break;
            }
        }
        let Some((index, status)) = ended else {
            std::thread::sleep(POLL);
            continue;
        };
        let group = running.swap_remove(index);
        let log = std::fs::read(&group.log).with_context(|| group.log.display().to_string())?;
        let result = read(group.name, &String::from_utf8_lossy(&log), status);
        println!("{}", result.shown);
        sums.passed += result.passed;
        sums.failed += result.failed;
        sums.skipped.extend(result.skipped);
    }
    Ok(sums)
}

fn start(name: &str, log: &PathBuf, arguments: &[String]) -> Result<Child> {
    let file = std::fs::File::create(log).with_context(|| log.display().to_string())?;
    let mut command = run::bound(&std::env::current_exe()?);
    command.args(["test", "--only", name]).args(arguments);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    command.spawn().with_context(|| format!("{command:?} cannot be started"))
}

/// What a group's process printed.
#[derive(Debug, PartialEq)]
struct Printed {
    shown: String,
    passed: usize,
    failed: usize,
    skipped: Vec<String>,
}

/// Reads the log of a group: its failures, its own line, what it skipped, and the last line, which has the counts. A
/// process that has not written its last line has failed, whatever its exit status is.
fn read(name: &str, log: &str, status: ExitStatus) -> Printed {
    let lines: Vec<&str> = log.lines().collect();
    let counts = lines.last().and_then(|line| {
        let (passed, failed) = line.strip_suffix(" failed")?.split_once(" passed, ")?;
        Some((passed.parse::<usize>().ok()?, failed.parse::<usize>().ok()?))
    });
    let Some((passed, failed)) = counts.filter(|(_, failed)| (*failed == 0) == status.success()) else {
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        let shown = format!("FAILED {name}: it ended without a result ({status}); its last lines:\n{last}");
        return Printed { shown, passed: 0, failed: 1, skipped: Vec::new() };
    };
    let is_skipped = |line: &&&str| line.starts_with(&format!("{name}: skipped: "));
    let skipped: Vec<String> = lines.iter().filter(is_skipped).map(|line| (*line).to_owned()).collect();
    // The failures come right before the group's line, and only the skipped steps come after that.
    let end = lines.len().saturating_sub(1 + skipped.len());
    let failures = lines.iter().position(|line| line.starts_with(&format!("FAILED {name}: ")));
    let begin = failures.unwrap_or(end.saturating_sub(1));
    Printed { shown: lines[begin..end].join("\n"), passed, failed, skipped }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn ended(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn a_group_is_shown_by_its_line_and_what_it_skipped_is_kept() {
        let log = "building\nstorm   3 passed   0 failed  1.0 s\nstorm: skipped: no QEMU\n3 passed, 0 failed\n";
        let expected = Printed {
            shown: "storm   3 passed   0 failed  1.0 s".into(),
            passed: 3,
            failed: 0,
            skipped: vec!["storm: skipped: no QEMU".into()],
        };
        assert_eq!(read("storm", log, ended(0)), expected);
    }

    #[test]
    fn failures_are_shown_whole() {
        let log = "table\nFAILED storm: first\n  more\nFAILED storm: second\nstorm 3 passed\n3 passed, 2 failed\n";
        let printed = read("storm", log, ended(1));
        assert_eq!(printed.shown, "FAILED storm: first\n  more\nFAILED storm: second\nstorm 3 passed");
        assert_eq!((printed.passed, printed.failed), (3, 2));
    }

    #[test]
    fn a_group_without_a_result_has_failed() {
        for (log, code) in
            [("building\nkilled", 0), ("", 0), ("3 passed, 0 failed\n", 101), ("3 passed, 1 failed\n", 0)]
        {
            let printed = read("storm", log, ended(code));
            assert_eq!((printed.passed, printed.failed), (0, 1), "{log:?}");
            assert!(printed.shown.starts_with("FAILED storm: it ended without a result"), "{}", printed.shown);
        }
    }
}
