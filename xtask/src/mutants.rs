//! `cargo xtask mutants`: changes the code on purpose, one place at a time, and says which changes no test notices.
//!
//! In: the parts of kprof whose faults would be silent (rings, draining, control, handler, account), or with
//! `--package kprof-daemon` the whole daemon; or only what differs from a commit. Out: the changes that no test has
//! noticed. Each of them must be in the list `mutants.txt` of the package, with the reason why no test needs to notice
//! it. The verb runs cargo-mutants, and builds it from the registry if it is missing. A run over everything takes
//! hours: `--shard 1/6` runs a sixth.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::run;
use crate::tools::{self, Install, missing};

/// Changes the code of a package on purpose and says which changes no test notices.
#[derive(Args)]
#[command(after_help = "Examples: what the last commit has changed; a sixth of everything; and of the daemon one file:
  cargo xtask mutants --since HEAD~1
  cargo xtask mutants --shard 1/6
  cargo xtask mutants --package kprof-daemon --file kprof-daemon/src/pace.rs")]
pub struct Arguments {
    /// The package
    #[arg(long, value_enum, default_value_t = Package::Kprof)]
    package: Package,
    /// Only this file of it
    #[arg(long)]
    file: Option<String>,
    /// Only code that differs from this commit
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
    /// A part of the changes: K/N, K from 0
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Installs nothing: says what is missing instead
    #[arg(long)]
    no_install: bool,
    /// Folder for the results
    #[arg(short, long, default_value = "target/mutants")]
    output: PathBuf,
}

/// A package whose code can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Package {
    /// What runs in the kernel
    Kprof,
    /// `profiled` and `kprof-record`
    KprofDaemon,
}

impl Package {
    fn name(self) -> &'static str {
        match self {
            Self::Kprof => "kprof",
            Self::KprofDaemon => "kprof-daemon",
        }
    }

    /// What is changed; nothing means everything.
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::Kprof => &KPROF_FILES,
            Self::KprofDaemon => &[],
        }
    }

    /// The list of changes that no test can notice, or that have no effect, each with the reason.
    fn argued(self) -> PathBuf {
        run::root().join(self.name()).join("mutants.txt")
    }
}

/// What of kprof is changed.
const KPROF_FILES: [&str; 8] = [
    "kprof/src/ring/*.rs",
    "kprof/src/drain.rs",
    "kprof/src/control/*.rs",
    "kprof/src/handler/*.rs",
    "kprof/src/export/*.rs",
    "kprof/src/state/account.rs",
    "kprof/src/state/owner.rs",
    "kprof/src/state/transition.rs",
];
/// The tests that should notice a change in kprof. Tests that take minutes are left out.
const KPROF_TESTS: [&str; 13] = [
    "account",
    "every_instruction",
    "export",
    "halted",
    "ipi",
    "life",
    "nested",
    "nmi_names",
    "ownership",
    "parts",
    "path",
    "published",
    "user_words",
];
/// Cases of the model of the account, of 400 steps each.
const CASES: &str = "80";

/// Runs the verb.
///
/// # Errors
/// If cargo-mutants is missing and cannot be built, or if the tests fail without any change.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let program = program(Install(!arguments.no_install))?;
    let mut command = Command::new(program);
    let package = arguments.package;
    command.args(["mutants", "--package", package.name(), "--timeout", "120", "--colors", "never"]);
    command.arg("--output").arg(run::root().join(&arguments.output)).current_dir(run::root());
    match &arguments.file {
        Some(file) => command.args(["--file", file]),
        None => command.args(package.files().iter().flat_map(|file| ["--file", file])),
    };
    if let Some(shard) = &arguments.shard {
        command.args(["--shard", shard]);
    }
    if let Some(commit) = &arguments.since {
        let difference = run::output(Command::new("git").args(["diff", commit]).current_dir(run::root()))?;
        let file = run::root().join("target/mutants.diff");
        std::fs::write(&file, difference)?;
        command.arg("--in-diff").arg(file);
    }
    if package == Package::Kprof {
        command.args(["--features", "profiling", "--", "--lib"]);
        command.args(KPROF_TESTS.iter().flat_map(|test| ["--test", test]));
    }
    let status =
        command.env("KPROF_CASES", CASES).status().with_context(|| format!("{command:?} cannot be started"))?;
    // 0: all were noticed; 2 and 3: some were not, or ran into the time limit. Everything else is an error.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        bail!("{command:?} failed ({status})");
    }
    let results = run::root().join(&arguments.output).join("mutants.out/missed.txt");
    let missed = std::fs::read_to_string(&results).with_context(|| results.display().to_string())?;
    let list = package.argued();
    let argued = std::fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let unargued = unargued(&missed, &argued);
    unargued.iter().for_each(|change| println!("no test notices: {change}"));
    let (missed, list) = (missed.lines().count(), list.display());
    println!("{missed} changes that no test notices, {} of them not in {list}", unargued.len());
    Ok(if unargued.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// cargo-mutants, from PATH or built under `target/`.
fn program(install: Install) -> Result<PathBuf> {
    let folder = run::root().join("target/kprof-tools/cargo-mutants");
    let built = folder.join("bin/cargo-mutants");
    if let Some(found) = run::find_program("cargo-mutants").or_else(|| built.is_file().then(|| built.clone())) {
        return Ok(found);
    }
    if !install.0 {
        return Err(missing("there is no cargo-mutants. Type: cargo install --locked cargo-mutants"));
    }
    eprintln!("building cargo-mutants");
    tools::install(
        Command::new("cargo").args(["install", "--quiet", "--locked", "cargo-mutants", "--root"]).arg(&folder),
    )?;
    Ok(built)
}

/// The missed changes that are not in the list. A line of the list is `FILE: CHANGE in FUNCTION`, without line and
/// column numbers, because these change with every edit. An indented line after it gives the reason.
fn unargued(missed: &str, argued: &str) -> Vec<String> {
    let argued: Vec<&str> = argued.lines().filter(|line| !line.starts_with([' ', '#'])).collect();
    let without_place = |line: &str| {
        let (file, rest) = line.split_once(':')?;
        let (_, change) = rest.split_once(": ")?;
        Some(format!("{file}: {change}"))
    };
    missed.lines().filter_map(without_place).filter(|change| !argued.contains(&change.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_change_is_argued_by_its_file_and_words_and_not_by_its_line() {
        let argued = "# why\nsrc/a.rs: replace < with <= in f\n    equal never comes\n";
        let missed = "src/a.rs:17:9: replace < with <= in f\nsrc/a.rs:17:9: replace < with == in f\n";
        assert_eq!(unargued(missed, argued), ["src/a.rs: replace < with == in f"]);
        assert_eq!(unargued("", argued), Vec::<String>::new());
    }

    #[test]
    fn every_argued_change_has_a_reason() {
        for package in <Package as clap::ValueEnum>::value_variants() {
            let argued = std::fs::read_to_string(package.argued()).unwrap();
            let lines: Vec<&str> = argued.lines().filter(|line| !line.starts_with('#')).collect();
            for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.starts_with(' ')) {
                assert!(lines.get(index + 1).is_some_and(|reason| reason.starts_with("    ")), "{line} has no reason");
            }
        }
    }
}
