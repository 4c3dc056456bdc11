//! `cargo xtask test`: the tests, a line per group with its seconds, and a last line that counts.
//!
//! A group is a function in one of the files here. It counts what passed and what failed, and keeps what the failures
//! said. A group installs what it needs, unless `--no-install` forbids it. A step that still cannot run counts as
//! skipped, with the reason, and not as passed or failed. Groups that take minutes run with `--thorough` only. Several
//! groups run side by side, each in a process of its own (`side_by_side`); one `--only` runs a group in this process.
//! Some of what a long group can do is done in turn, commit by commit ([`Context::in_turn`]); one `--only` does it all.

mod block;
mod cargo;
mod emulated;
pub mod feature_off;
mod fleet;
mod fuzz;
mod guards;
mod heap;
mod integration;
pub mod known_events;
mod locks;
mod lockups;
mod machines;
mod new_kind;
pub mod outcome;
pub mod outside;
mod packages;
mod page;
mod path;
mod proof;
mod python;
pub mod readers;
pub mod scenario;
mod side_by_side;
mod system_calls;
mod toolchains;
mod units;
mod unsteady;
mod waits;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

use self::outcome::{Context, Outcome};
pub use self::units::become_compiler;
use crate::qemu;
use crate::run;
use crate::toolchain::{self, Choice};
use crate::tools::{self, Install, Program};

/// Runs the tests: format, lint, documentation, host tests, type checks, the kernel in QEMU.
#[derive(Args)]
#[command(after_help = "Examples: everything that CI runs; and only the scenarios whose name has `panic` in it:
  cargo xtask test && cargo xtask test --thorough
  cargo xtask test --only scenarios --filter panic")]
pub struct Arguments {
    /// Runs the long groups, and only these: fuzzing, sanitizers, sweeps, statistics
    #[arg(long)]
    thorough: bool,
    /// Only this group, a long one or not (see the lines printed); may be repeated
    #[arg(long, conflicts_with = "thorough")]
    only: Vec<String>,
    /// Only scenarios, and parts of the groups `outside`, whose name contains this
    #[arg(long, default_value = "")]
    filter: String,
    /// Seconds for each fuzz target
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    fuzz_seconds: u64,
    /// Groups that run at the same time [default: 2, or 1 where there is one core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    /// Of what is done in turn, only what is this commit's turn
    #[arg(long, hide = true)]
    in_turn: bool,
    /// Prints the names of the checks that have passed
    #[arg(long, hide = true)]
    names: bool,
    /// Installs nothing: says what is missing instead
    #[arg(long)]
    no_install: bool,
    /// The way to compile for other targets
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    toolchain: Choice,
}

/// When a group runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runs {
    /// With `cargo xtask test`.
    Always,
    /// With `--thorough`.
    Thorough,
}
use Runs::{Always, Thorough};

type Group = (&'static str, Runs, fn(&mut Context) -> Result<Outcome>);

/// The groups, in the order in which they begin. The quick groups that find most faults come first, then those that
/// take longest, so that two groups that run at the same time end at about the same time.
const GROUPS: [Group; 32] = [
    ("format", Always, cargo::format),
    ("lint", Always, cargo::lint),
    ("feature off", Always, feature_off::run),
    ("host tests", Always, cargo::host_tests),
    ("scenarios", Always, scenario::run),
    ("documentation", Always, cargo::documentation),
    ("packages", Always, packages::run),
    ("integration", Always, integration::run),
    ("outside", Always, outside::run),
    ("system calls", Always, system_calls::run),
    ("path", Always, path::run),
    ("machines", Thorough, machines::run),
    ("proof", Thorough, proof::run),
    ("outside long", Thorough, outside::long),
    ("outside table", Thorough, machines::table::run),
    ("scenarios long", Thorough, scenario::long),
    ("sweep", Thorough, path::sweep),
    ("fuzz", Thorough, fuzz::run),
    ("repeatable", Thorough, path::repeatable),
    ("truth", Thorough, path::truth),
    ("emulated", Thorough, emulated::run),
    ("sanitizers", Thorough, proof::sanitizers),
    ("toolchains", Thorough, toolchains::run),
    ("redox", Thorough, cargo::redox),
    ("ring models", Thorough, cargo::ring_models),
    ("each feature", Thorough, cargo::each_feature),
    ("new record kind", Thorough, new_kind::run),
    ("publish", Thorough, packages::publish),
    ("readers", Thorough, readers::run),
    ("page", Thorough, page::run),
    ("fleet", Thorough, fleet::run),
    ("storm", Thorough, path::storm),
];

/// What the quick groups need besides QEMU.
const QUICK_PROGRAMS: [Program; 3] = [tools::NM, tools::BUSYBOX, Program { name: "strace", package: "strace" }];

/// The groups that fail by a warning of the compiler, so they run with the pinned Rust.
const DENIES_WARNINGS: [&str; 5] = ["format", "lint", "documentation", "redox", "each feature"];

/// Runs the verb. `verbs` is the command line of this program, which the commands in documents must keep to.
///
/// # Errors
/// If `--only` names no group.
pub fn run(arguments: &Arguments, verbs: fn() -> clap::Command) -> Result<ExitCode> {
    let [only] = &arguments.only[..] else { return side_by_side(arguments) };
    let (name, _, group) = named(only)?;
    let mut context = Context {
        install: Install(!arguments.no_install),
        toolchain: arguments.toolchain,
        filter: arguments.filter.clone(),
        fuzz_seconds: arguments.fuzz_seconds,
        denies_warnings: true,
        is_in_turn: arguments.in_turn,
        verbs,
        parts: None,
    };
    let start = Instant::now();
    let pinned = if DENIES_WARNINGS.contains(&name) { toolchain::become_pinned(context.install) } else { Ok(()) };
    context.denies_warnings = pinned.is_ok();
    let mut outcome = group(&mut context).unwrap_or_else(|error| {
        let mut outcome = Outcome::default();
        outcome.not_passed(&format!("{error:#}"), &error);
        outcome
    });
    if let Err(why) = pinned {
        outcome.skipped.push(format!("warnings are not errors: {why:#}"));
    }
    for name in outcome.names.iter().filter(|_| arguments.names) {
        println!("passed {name}");
    }
    for failure in &outcome.failures {
        println!("FAILED {name}: {failure}");
    }
    // Both times are printed, because on a busy machine the elapsed time says little.
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), run::cpu_seconds());
    let (passed, failed) = (outcome.passed, outcome.failures.len());
    println!("{name:16} {passed:5} passed {failed:3} failed {seconds:7.1} s, {cpu:7.1} s of CPU");
    // A reason of several lines becomes one line, because `side_by_side` reads one reason per line.
    let skipped = outcome.skipped.iter().map(|why| format!("{name}: skipped: {}", why.replace('\n', " ")));
    Ok(sums(passed, failed, &skipped.collect::<Vec<_>>()))
}

fn named(wanted: &str) -> Result<Group> {
    GROUPS.into_iter().find(|(name, ..)| *name == wanted).with_context(|| {
        let names: Vec<&str> = GROUPS.iter().map(|(name, ..)| *name).collect();
        format!("--only: there is no group {wanted:?}; there are: {}", names.join(", "))
    })
}

/// Runs the groups that were named, or the quick ones, or the long ones, several at once.
fn side_by_side(arguments: &Arguments) -> Result<ExitCode> {
    let wanted = if arguments.thorough { Thorough } else { Always };
    if wanted == Always && arguments.only.is_empty() {
        // Groups install what they need. Together, nobody waits or types for one after the other.
        let qemu = if qemu::chosen().is_none() { &qemu::PROGRAMS[..] } else { &[] };
        if let Err(why) = tools::require(&[qemu, &QUICK_PROGRAMS].concat(), Install(!arguments.no_install)) {
            println!("{why:#}\nWithout them the tests that need them are skipped, and named at the end.");
        }
    }
    let is_wanted = |(_, runs, _): &Group| arguments.only.is_empty() && *runs == wanted;
    let only = arguments.only.iter().map(|name| named(name)).collect::<Result<Vec<Group>>>()?;
    let groups = GROUPS.into_iter().filter(is_wanted).chain(only);
    let names: Vec<&str> = groups.map(|(name, ..)| name).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.map_or(cores.min(2), usize::from);
    let choice = arguments.toolchain.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let mut more = vec![
        "--in-turn".to_owned(),
        format!("--fuzz-seconds={}", arguments.fuzz_seconds),
        format!("--toolchain={choice}"),
    ];
    more.extend(qemu::chosen().map(|folder| format!("--qemu={}", folder.display())));
    more.extend(arguments.no_install.then(|| "--no-install".to_owned()));
    let found = side_by_side::run(&names, jobs, &more, &arguments.filter)?;
    println!("{}", side_by_side::table(&found.rows));
    found.unsteady.iter().for_each(|line| println!("{line}"));
    let sum = |of: fn(&side_by_side::Row) -> usize| found.rows.iter().map(of).sum();
    Ok(sums(sum(|row| row.passed), sum(|row| row.failed), &found.skipped))
}

/// Prints the last lines: everything that was skipped, because it has not passed and must be noticed, and then the
/// counts.
fn sums(passed: usize, failed: usize, skipped: &[String]) -> ExitCode {
    skipped.iter().for_each(|line| println!("{line}"));
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_of_the_continuous_integration_have_every_group_once() {
        let workflow = std::fs::read_to_string(run::root().join(".github/workflows/ci.yml")).unwrap();
        let of_jobs: Vec<&str> = workflow.lines().filter_map(|line| line.trim().strip_prefix("groups:")).collect();
        let words = of_jobs.iter().flat_map(|groups| shlex::split(groups).unwrap());
        let mut named: Vec<String> = words.filter(|word| word != "--only").collect();
        assert!(of_jobs.contains(&""), "no job runs the quick groups");
        named.extend(GROUPS.iter().filter(|(_, runs, _)| *runs == Always).map(|(name, ..)| (*name).to_owned()));
        named.sort();
        let mut all = GROUPS.map(|(name, ..)| name);
        all.sort();
        assert_eq!(named, all);
    }
}
