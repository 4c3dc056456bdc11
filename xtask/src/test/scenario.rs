//! The scenarios: scripts in test-kernel/scenarios, each run in a machine of its own and judged by its exit code.
//!
//! The comments at the top of a script say how: `# cpus: 8`, `# accel: tcg`, `# limit: 60` (seconds), `# append: ...`,
//! `# kernel: off` (without the profiler), `# expect: success|failure|panic|time-limit`, `# serial: TEXT` (must be in
//! the serial log; may be repeated), `# same-as-host: PROGRAM` (what PROGRAM wrote to /root/PROGRAM.txt is what it
//! prints on the host), `# balanced: FILE` (the profile in /root/FILE has samples, and its account balances), `# folds:
//! FILE` (that profile, or `serial.log` or `serial-2.log`, has samples that fold), `# module: TEXT` (folded with the
//! module's image, some stack of /root/profiling.txt has this in it), `# folded: TEXT` (the same without the module),
//! `# latency: POINT TEXT` (`kprof-fold latency` prints TEXT of this point), `# event: FILE POINT TEXT` (`kprof-fold
//! report --event POINT` prints TEXT of that profile, and every stack of its events is whole), `# unfolded: FILE TEXT`
//! (no stack of that profile has this in it), `# heap: FILE` (see `heap.rs`), `# locks: FILE` (see `locks.rs`), `#
//! disk: MIB` (the machine has a disk of that size; may be repeated), `# block: FILE` (see `block.rs`), `# waits: FILE`
//! (what that profile says of tasks is exact, and what the serial log says is known of some of them: see `waits.rs`),
//! `# probes: PATTERN` (/root/probes.txt has the functions of the kernel that can have a probe and have such names), `#
//! known-events: POINT` (see `known_events.rs`), `# lockups: FILE MS` (see `lockups.rs`), `# verb: NAME` (runs with
//! `cargo xtask NAME` only), `# since-qemu: 9.0 WHAT` (an older QEMU lacks WHAT, so the scenario is skipped there), `#
//! run: WORDS` (one run for each such line, with these words on the command line, which the script has as variables;
//! `cpus=N` among them counts before `# cpus`), `# long: WORDS` (the group `scenarios long` runs it too, with these
//! words: more rounds of a race, or more time).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use super::known_events::{self, Estimate};
use super::outcome::{Context, Outcome};
use super::{block, heap, locks, waits};
use crate::build::{self, Kernel};
use crate::parts::Parts;
use crate::qemu::{self, Accel, Machine, Verdict};
use crate::run;

/// The time limit in seconds of a scenario that names none. It is long because a busy host takes many times longer than
/// an idle one.
const LIMIT: u32 = 600;

struct Scenario {
    name: String,
    text: String,
}

impl Scenario {
    fn directives(&self, key: &str) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(move |line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "))
    }

    fn directive(&self, key: &str) -> Option<&str> {
        self.directives(key).next()
    }

    /// The runs: a name, and the words that go on the command line.
    fn runs(&self) -> Vec<(String, String)> {
        self.runs_with("")
    }

    /// The runs of the long group, if it has more rounds or time for this scenario.
    fn long_runs(&self) -> Vec<(String, String)> {
        self.directive("long").map(|words| self.runs_with(words)).unwrap_or_default()
    }

    fn runs_with(&self, more: &str) -> Vec<(String, String)> {
        let runs: Vec<&str> = self.directives("run").collect();
        let runs = if runs.is_empty() { vec![""] } else { runs };
        let words = runs.iter().map(|run| format!("{run} {more}").trim().to_owned());
        words.map(|words| (format!("{} {words}", self.name).trim_end().replace(' ', "-"), words)).collect()
    }

    /// What this QEMU lacks for the scenario.
    fn lacks(&self, version: &qemu::Version) -> Result<Option<String>> {
        let Some(words) = self.directive("since-qemu") else { return Ok(None) };
        let parsed = words.split_once(' ').and_then(|(since, what)| Some((qemu::Version::parse(since)?, what)));
        let (since, what) = parsed.with_context(|| format!("# since-qemu: {words}"))?;
        let is_older = version.number < since.number;
        Ok(is_older.then(|| format!("QEMU {} has no {what}, which came with {}", version.text, since.text)))
    }

    /// Whether the machine's time goes on while the host does something else.
    fn is_in_host_time(&self) -> bool {
        self.directive("accel").is_none_or(|accel| accel != "icount")
    }

    fn number(&self, key: &str, default: u32) -> Result<u32> {
        self.directive(key).map_or(Ok(default), |text| text.parse().with_context(|| format!("# {key}: {text}")))
    }
}

fn all() -> Result<Vec<Scenario>> {
    let folder = run::root().join("test-kernel/scenarios");
    let mut scenarios = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        scenarios.push(Scenario { name, text: std::fs::read_to_string(&path)? });
    }
    scenarios.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scenarios)
}

/// The filter that runs a run of a scenario again, if the machine in it needs the host's time.
pub fn in_host_time(run: &str) -> Option<String> {
    let is_run =
        |scenario: &Scenario| [scenario.runs(), scenario.long_runs()].concat().iter().any(|(name, _)| name == run);
    all().ok()?.into_iter().find(is_run).filter(Scenario::is_in_host_time).map(|scenario| scenario.name)
}

/// Runs all scenarios (or those that the filter lets through).
pub fn run(context: &mut Context) -> Result<Outcome> {
    all_runs(context, Scenario::runs)
}

/// Runs those that have more rounds of a race, or more time, in the long groups.
pub fn long(context: &mut Context) -> Result<Outcome> {
    all_runs(context, Scenario::long_runs)
}

fn all_runs(context: &mut Context, runs: fn(&Scenario) -> Vec<(String, String)>) -> Result<Outcome> {
    let filter = context.filter.clone();
    let parts = context.parts()?;
    let mut outcome = Outcome::default();
    let folder = run::root().join("target/scenarios");
    std::fs::create_dir_all(&folder)?;
    let version = qemu::Version::of(&parts.qemu)?;
    let off = build::kernel(parts.toolchain, "", &[])?;
    let on = build::kernel(parts.toolchain, "profiling", &[])?;
    let is_wanted = |scenario: &Scenario| scenario.name.contains(&filter) && scenario.directive("verb").is_none();
    for scenario in all()?.into_iter().filter(is_wanted) {
        if let Some(why) = scenario.lacks(&version)? {
            outcome.skipped.push(format!("{}: {why}", scenario.name));
            continue;
        }
        for (name, words) in runs(&scenario) {
            let result = run_one(&scenario, parts, [&on, &off], &folder.join(&name), &words)
                .and_then(|estimates| estimates.iter().try_for_each(Estimate::is_within_its_bound));
            outcome.check(&name, result);
        }
    }
    Ok(outcome)
}

/// Runs one scenario with a kernel, its files in `folder`; `append` goes before the script's own words on the command
/// line. What is estimated in it is not judged here.
///
/// # Errors
/// If there is none with this name, or it fails.
pub fn one(name: &str, parts: &Parts, kernel: &Kernel, folder: &Path, append: &str) -> Result<Vec<Estimate>> {
    let scenario = all()?.into_iter().find(|scenario| scenario.name == name);
    run_one(&scenario.with_context(|| format!("there is no scenario {name}"))?, parts, [kernel; 2], folder, append)
}

fn run_one(
    scenario: &Scenario,
    parts: &Parts,
    [on, off]: [&Kernel; 2],
    folder: &Path,
    append: &str,
) -> Result<Vec<Estimate>> {
    let share = folder.join("root");
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(&share)?;
    let kernel = if scenario.directive("kernel") == Some("off") { off } else { on };
    let initrd = folder.join("initrd");
    parts.write_initrd(kernel, &initrd)?;
    for pattern in scenario.directives("probes") {
        parts.write_probes(kernel, pattern, &share.join("probes.txt"))?;
    }
    let accel = match scenario.directive("accel") {
        Some(name) => Accel::from_str(name, false).map_err(anyhow::Error::msg)?,
        None => Accel::Tcg,
    };
    let serial = folder.join("serial.log");
    let second_serial = folder.join("serial-2.log");
    let more = scenario.directive("append").unwrap_or("");
    let cpus = append.split(' ').find_map(|word| word.strip_prefix("cpus="));
    let cpus = cpus.map_or_else(|| scenario.number("cpus", 4), |text| text.parse().context("cpus="))?;
    let machine = Machine {
        kernel: &kernel.elf,
        initrd: initrd.clone(),
        share: &share,
        serial: &serial,
        second_serial: Some(&second_serial),
        seed: None,
        accel,
        cpus,
        append: format!("scenario={} accel={} {append} {more}", scenario.name, accel.name()),
        limit: Duration::from_secs(scenario.number("limit", LIMIT)?.into()),
        disks: block::images(scenario.directives("disk"), folder)?,
        runner: Vec::new(),
    };
    let verdict = machine.run(&parts.qemu, || ())?;
    let expected = match scenario.directive("expect").unwrap_or("success") {
        "success" => Verdict::Success,
        "failure" => Verdict::Failure,
        "panic" => Verdict::Panic,
        "time-limit" => Verdict::TimeLimit,
        other => bail!("# expect: {other}"),
    };
    if verdict != expected {
        bail!("{verdict:?} instead of {expected:?}; the end of the serial log:\n{}", qemu::last_lines(&serial, 40));
    }
    let log = String::from_utf8_lossy(&std::fs::read(&serial)?).into_owned();
    for text in scenario.directives("serial") {
        if !log.contains(text) {
            bail!("the serial log lacks {text:?}:\n{}", qemu::last_lines(&serial, 40));
        }
    }
    for program in scenario.directives("same-as-host") {
        compare_with_host(program, parts, &share, folder)?;
    }
    let symbols = folder.join("syms.txt");
    std::fs::write(&symbols, &kernel.symbols)?;
    for file in scenario.directives("balanced") {
        run::output(Command::new(&parts.fold).args(["report", "--strict"]).arg(share.join(file)).arg(&symbols))?;
    }
    for file in scenario.directives("folds") {
        let place = if file.starts_with("serial") { folder } else { share.as_path() };
        let folded = run::output(Command::new(&parts.fold).arg(place.join(file)).arg(&symbols))?;
        // A file that was rotated on a busy host may have samples of one function only.
        if !folded.lines().any(|line| line.contains(';')) {
            bail!("{file} folds to no stack with a caller:\n{folded}");
        }
    }
    for names in scenario.directives("folded") {
        let folded = run::output(Command::new(&parts.fold).arg(share.join("profiling.txt")).arg(&symbols))?;
        if !folded.lines().any(|line| line.contains(names)) {
            bail!("no stack has {names:?} in it:\n{folded}");
        }
    }
    for words in scenario.directives("unfolded") {
        let (file, names) = words.split_once(' ').with_context(|| format!("# unfolded: {words}"))?;
        let folded = run::output(Command::new(&parts.fold).arg(share.join(file)).arg(&symbols))?;
        if let Some(stack) = folded.lines().find(|line| line.contains(names)) {
            bail!("{file}: a stack has {names:?} in it: {stack}");
        }
    }
    for words in scenario.directives("latency") {
        let (point, text) = words.split_once(' ').with_context(|| format!("# latency: {words}"))?;
        let mut latency = Command::new(&parts.fold);
        let printed = run::output(latency.arg("latency").arg(share.join("profiling.txt")).args(["--event", point]))?;
        if !printed.contains(text) {
            bail!("{text:?} is not in:\n{printed}");
        }
    }
    for words in scenario.directives("event") {
        judge_event(words, parts, &share, &symbols)?;
    }
    let mut estimates = Vec::new();
    for point in scenario.directives("known-events") {
        estimates.extend(known_events::estimates(point, &share, &log, parts, &symbols)?);
    }
    for file in scenario.directives("heap") {
        estimates.extend(heap::estimates(&share.join(file), &log, parts, &symbols)?);
    }
    for file in scenario.directives("locks") {
        locks::judge(&share.join(file), &log, parts, &symbols)?;
    }
    for file in scenario.directives("block") {
        block::judge(&share.join(file), &log, parts, &symbols, folder)?;
    }
    for file in scenario.directives("waits") {
        waits::judge(&share.join(file), &log, parts, &symbols)?;
    }
    for words in scenario.directives("lockups") {
        super::lockups::judge(words, parts, folder, &symbols, &log).with_context(|| format!("# lockups: {words}"))?;
    }
    for names in scenario.directives("module") {
        let image = format!("module={}", parts.module.display());
        let mut fold = Command::new(&parts.fold);
        let folded = run::output(fold.arg(share.join("profiling.txt")).arg(&symbols).args(["--image", &image]))?;
        if !folded.lines().any(|line| line.contains(names)) {
            bail!("no stack has {names:?} in it:\n{folded}");
        }
    }
    std::fs::remove_file(&initrd)?;
    Ok(estimates)
}

/// Whether the report of a point's events has a text in it, and all their stacks reach the entry into the kernel.
fn judge_event(words: &str, parts: &Parts, share: &Path, symbols: &Path) -> Result<()> {
    let [file, point, text] = words.splitn(3, ' ').collect::<Vec<_>>()[..] else { bail!("# event: {words}") };
    let fold = |verb: &str| {
        let mut fold = Command::new(&parts.fold);
        fold.args([verb, "--event", point, "--quiet"]);
        fold
    };
    let file = share.join(file);
    let folded = run::output(fold("folded").arg(&file).arg(symbols))?;
    let beside = ["[lost]", "[not recorded]"];
    // An entry from user code, or the function in which a thread or a CPU's idle task begins.
    let threads = ["test_kernel::task::thread::thread_start", "secondary_main;"];
    let roots = [&["[syscall];", "[interrupt ", "[exception "][..], &threads].concat();
    let is_whole = |line: &str| roots.iter().any(|root| line.starts_with(root)) && !line.contains("[truncated]");
    if let Some(line) = folded.lines().find(|line| !is_whole(line) && !beside.iter().any(|one| line.starts_with(one))) {
        bail!("the stack of an event is not whole: {line}");
    }
    let report = run::output(fold("report").arg("--strict").arg(&file).arg(symbols))?;
    if report.contains(text) { Ok(()) } else { bail!("{text:?} is not in:\n{report}") }
}

/// Runs the same program on the host's Linux and compares what both wrote.
fn compare_with_host(program: &str, parts: &Parts, share: &Path, folder: &Path) -> Result<()> {
    let scratch = folder.join("host");
    std::fs::create_dir_all(&scratch)?;
    let mut command = Command::new(parts.programs.join(program));
    let host = run::caught(command.current_dir(&scratch), Duration::from_secs(LIMIT.into()))?;
    let guest = std::fs::read_to_string(share.join(format!("{program}.txt"))).context("what the guest wrote")?;
    let different: Vec<String> = host
        .text
        .lines()
        .zip(guest.lines())
        .filter(|(host, guest)| host != guest)
        .map(|(host, guest)| format!("  Linux: {host}\n  here:  {guest}"))
        .collect();
    if !different.is_empty() || host.text.lines().count() != guest.lines().count() {
        bail!(
            "{program} gives other results than on Linux ({} lines there, {} here):\n{}",
            host.text.lines().count(),
            guest.lines().count(),
            different.join("\n")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_runs_once_for_each_of_its_run_lines() {
        let scenario = |text: &str| Scenario { name: "trigger".into(), text: text.into() };
        let two = scenario("# run: trigger=ipi\n# run: trigger=timer cpus=1\n");
        assert_eq!(
            two.runs(),
            [
                ("trigger-trigger=ipi".to_owned(), "trigger=ipi".to_owned()),
                ("trigger-trigger=timer-cpus=1".to_owned(), "trigger=timer cpus=1".to_owned())
            ]
        );
        assert_eq!(two.long_runs(), []);
        assert_eq!(scenario("# cpus: 2\n").runs(), [("trigger".to_owned(), String::new())]);
        let long = scenario("# run: load=user\n# long: rounds=9\n");
        assert_eq!(long.runs(), [("trigger-load=user".to_owned(), "load=user".to_owned())]);
        assert_eq!(long.long_runs(), [("trigger-load=user-rounds=9".to_owned(), "load=user rounds=9".to_owned())]);
    }
}
