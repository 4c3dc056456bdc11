//! Runs groups of tests side by side: each in a process of its own, some at once.
//!
//! In: names of groups, in the order in which they begin. Out: a line per group as it ends, what its failures said, and
//! a row for the table. Most groups keep one core busy (a machine in QEMU that counts instructions is one thread), so
//! two of them use two cores. Groups must not share a file that one of them changes: what they build in common is kept
//! by [`crate::build`], and what they install is installed by one process at a time ([`crate::tools`]).

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::units::{self, Counter};
use super::unsteady;
use crate::qemu;
use crate::run;

/// How often to look for groups that have ended.
const POLL: Duration = Duration::from_millis(50);
/// Lines shown of a group that ended without a result.
const LAST_LINES: usize = 100;

/// What all groups found together.
#[derive(Default)]
pub struct Found {
    /// A row for each group, in the order in which they began.
    pub rows: Vec<Row>,
    /// Why steps were left out, a line each.
    pub skipped: Vec<String>,
    /// What failed and passed when it ran again by itself, a line each.
    pub unsteady: Vec<String>,
}

/// What a group found, and what it took.
#[derive(Debug, PartialEq)]
pub struct Row {
    name: &'static str,
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
    seconds: f64,
    cpu_seconds: f64,
    units: usize,
}

/// The rows below their heads, and the sums of all columns; the elapsed time of groups that ran at once is in it twice.
pub fn table(rows: &[Row]) -> String {
    let head = ["group", "passed", "failed", "elapsed s", "CPU s", "units compiled"];
    let line = |[name, passed, failed, seconds, cpu, units]: [String; 6]| {
        format!("{name:16} {passed:>7} {failed:>7} {seconds:>10} {cpu:>8} {units:>15}\n")
    };
    let row = |row: &Row| {
        let [seconds, cpu] = [row.seconds, row.cpu_seconds].map(|time| format!("{time:.0}"));
        line([row.name.to_owned(), row.passed.to_string(), row.failed.to_string(), seconds, cpu, row.units.to_string()])
    };
    let sum = |of: fn(&Row) -> usize| rows.iter().map(of).sum();
    let all = Row {
        name: "all",
        passed: sum(|row| row.passed),
        failed: sum(|row| row.failed),
        seconds: rows.iter().map(|row| row.seconds).sum(),
        cpu_seconds: rows.iter().map(|row| row.cpu_seconds).sum(),
        units: sum(|row| row.units),
    };
    let lines: String = rows.iter().chain([&all]).map(row).collect();
    line(head.map(str::to_owned)) + &lines
}

struct Running {
    place: usize,
    start: Instant,
    log: PathBuf,
    child: run::Guard,
}

/// Runs the groups with `arguments` and this filter after `cargo xtask test --only GROUP`, at most `jobs` at once (at
/// least 1). Then what may fail on a busy host runs again by itself: see [`unsteady`].
///
/// # Errors
/// If a process cannot be started, or a log cannot be written.
pub fn run(groups: &[&'static str], jobs: usize, arguments: &[String], filter: &str) -> Result<Found> {
    // Another QEMU's logs do not replace those of this system's.
    let of_qemu = qemu::chosen().and_then(Path::parent).and_then(Path::file_name).unwrap_or_default();
    let folder = run::root().join("target/test").join(of_qemu);
    std::fs::create_dir_all(&folder)?;
    let counter = Counter::in_folder(&folder)?;
    let log_of = |name: &str| folder.join(format!("{}.log", name.replace([' ', '/'], "-")));
    let mut waiting: VecDeque<(usize, &'static str)> = groups.iter().copied().enumerate().collect();
    let mut running: Vec<Running> = Vec::new();
    let mut printed: BTreeMap<usize, Printed> = BTreeMap::new();
    let mut rows: BTreeMap<usize, Row> = BTreeMap::new();
    while !(waiting.is_empty() && running.is_empty()) {
        while running.len() < jobs
            && let Some((place, name)) = waiting.pop_front()
        {
            let log = log_of(name);
            // Written by one call, because standard output may go to the same terminal.
            let line = format!("{name}: begins, its output goes to {}\n", log.display());
            eprint!("{line}");
            let child = start(name, &log, &counter, arguments, filter)?;
            running.push(Running { place, start: Instant::now(), log, child: run::Guard(child) });
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
        let name = groups[group.place];
        let result = read(name, &text_of(&group.log)?, status);
        println!("{}", result.shown);
        let seconds = group.start.elapsed().as_secs_f64();
        let (passed, failed, cpu_seconds, units) =
            (result.passed, result.failed, result.cpu_seconds(), units::number(&group.log)?);
        rows.insert(group.place, Row { name, passed, failed, seconds, cpu_seconds, units });
        printed.insert(group.place, result);
    }
    let mut found = Found::default();
    let failures = printed.iter().flat_map(|(place, group)| group.failures.iter().map(|what| (*place, what.as_str())));
    for again in unsteady::chosen(failures, |place| groups[place]) {
        let name = groups[again.place];
        let log = log_of(format!("{name} again {}", again.filter).trim_end());
        eprintln!("{name}: runs again by itself, its output goes to {}", log.display());
        let status = run::Guard(start(name, &log, &counter, arguments, &again.filter)?).0.wait()?;
        let result = read(name, &text_of(&log)?, status);
        println!("{}", result.shown);
        if result.failed == 0 && result.passed > 0 {
            let row = rows.get_mut(&again.place).expect("each group has a row");
            row.failed -= again.checks.len();
            row.passed += again.checks.len();
            let logs = format!("{} and {}", log_of(name).display(), log.display());
            let line = |what: &String| format!("unsteady: {name}: {what} (it passed by itself; see {logs})");
            found.unsteady.extend(again.checks.iter().map(line));
        }
    }
    found.skipped = printed.into_values().flat_map(|group| group.skipped).collect();
    found.rows = rows.into_values().collect();
    Ok(found)
}

fn text_of(log: &Path) -> Result<String> {
    let log = std::fs::read(log).with_context(|| log.display().to_string())?;
    Ok(String::from_utf8_lossy(&log).into_owned())
}

fn start(name: &str, log: &Path, counter: &Counter, arguments: &[String], filter: &str) -> Result<Child> {
    let file = std::fs::File::create(log).with_context(|| log.display().to_string())?;
    let mut command = run::bound(&std::env::current_exe()?);
    command.args(["test", "--only", name]).args(arguments).arg(format!("--filter={filter}"));
    counter.watch(&mut command, log)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    command.spawn().with_context(|| format!("{command:?} cannot be started"))
}

/// What a group's process printed.
#[derive(Debug, PartialEq)]
struct Printed {
    shown: String,
    passed: usize,
    failed: usize,
    /// The first line of each failure: the check, and why.
    failures: Vec<String>,
    skipped: Vec<String>,
}

impl Printed {
    /// As the group's own line says; 0 if it has none.
    fn cpu_seconds(&self) -> f64 {
        let number = self.shown.strip_suffix(" s of CPU").and_then(|line| line.rsplit(' ').next()?.parse().ok());
        number.unwrap_or_default()
    }
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
        return Printed { shown, passed: 0, failed: 1, failures: Vec::new(), skipped: Vec::new() };
    };
    let is_skipped = |line: &&&str| line.starts_with(&format!("{name}: skipped: "));
    let skipped: Vec<String> = lines.iter().filter(is_skipped).map(|line| (*line).to_owned()).collect();
    // The failures come right before the group's line, and only the skipped steps come after that.
    let end = lines.len().saturating_sub(1 + skipped.len());
    let failed_mark = format!("FAILED {name}: ");
    let first = lines.iter().position(|line| line.starts_with(&failed_mark));
    let begin = first.unwrap_or(end.saturating_sub(1));
    let failures = lines[begin..end].iter().filter_map(|line| line.strip_prefix(&failed_mark));
    let failures = failures.map(str::to_owned).collect();
    Printed { shown: lines[begin..end].join("\n"), passed, failed, failures, skipped }
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
        let line = "storm   3 passed   0 failed  1.0 s,  2.5 s of CPU";
        let log = format!("building\n{line}\nstorm: skipped: no QEMU\n3 passed, 0 failed\n");
        let expected = Printed {
            shown: line.into(),
            passed: 3,
            failed: 0,
            failures: Vec::new(),
            skipped: vec!["storm: skipped: no QEMU".into()],
        };
        let printed = read("storm", &log, ended(0));
        assert_eq!(printed, expected);
        assert_eq!(printed.cpu_seconds(), 2.5);
    }

    #[test]
    fn failures_are_shown_whole() {
        let log = "table\nFAILED storm: first\n  more\nFAILED storm: second\nstorm 3 passed\n3 passed, 2 failed\n";
        let printed = read("storm", log, ended(1));
        assert_eq!(printed.shown, "FAILED storm: first\n  more\nFAILED storm: second\nstorm 3 passed");
        assert_eq!((printed.passed, printed.failed), (3, 2));
        assert_eq!(printed.failures, ["first", "second"]);
    }

    #[test]
    fn the_table_has_a_row_for_each_group_and_the_sums() {
        let row = |name, failed| Row { name, passed: 3, failed, seconds: 1.6, cpu_seconds: 2.4, units: 7 };
        let table = table(&[row("lint", 0), row("host tests", 1)]);
        let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0][..3], ["group", "passed", "failed"]);
        assert_eq!(words[1], ["lint", "3", "0", "2", "2", "7"]);
        assert_eq!(words[2], ["host", "tests", "3", "1", "2", "2", "7"]);
        assert_eq!(words[3], ["all", "6", "1", "3", "5", "14"]);
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
