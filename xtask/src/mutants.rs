//! `cargo xtask mutants`: changes the code on purpose, one place at a time, and says which changes no test notices.
//!
//! In: the parts of kprof whose faults would be silent (rings, draining, control, handler, account, points, unwinder),
//! or with `--package kprof-daemon` the whole daemon; or only what differs from a commit. Out: the changes that no test
//! has noticed. Each of them must be in the list `mutants.txt` of the package, with the reason why no test needs to
//! notice it. The verb runs cargo-mutants on a copy of the repository, and builds it from the registry if it is
//! missing. Each change costs the time to compile the tests again. So the tests run in parts: the first part tries all
//! changes, and each further part only those that no part before it has noticed. A run over everything takes hours:
//! `--shard 1/6` runs a sixth.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::Args;

mod found;

use found::{Found, again};

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

    /// The packages whose code is changed, and whose tests notice it.
    fn cargo_names(self) -> &'static [&'static str] {
        match self {
            Self::Kprof => &["kprof", "kprof-events"],
            Self::KprofDaemon => &["kprof-daemon"],
        }
    }

    /// What is changed; nothing means everything.
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::Kprof => &KPROF_FILES,
            Self::KprofDaemon => &[],
        }
    }

    /// The tests of each run, as arguments of cargo: each run tries what the one before it has missed. No arguments
    /// mean all tests of the package.
    fn stages(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Kprof => &KPROF_STAGES,
            Self::KprofDaemon => &[&[]],
        }
    }

    /// The list of changes that no test can notice, or that have no effect, each with the reason.
    fn argued(self) -> PathBuf {
        run::root().join(self.name()).join("mutants.txt")
    }
}

/// What of kprof is changed.
const KPROF_FILES: [&str; 15] = [
    "kprof/events/src/points/*.rs",
    "kprof/src/ring/*.rs",
    "kprof/src/drain.rs",
    "kprof/src/drain/*.rs",
    "kprof/src/control/*.rs",
    "kprof/src/handler/*.rs",
    "kprof/src/export/*.rs",
    "kprof/src/account.rs",
    "kprof/src/moment.rs",
    "kprof/src/stream/copier.rs",
    "kprof/src/stream/meta.rs",
    "kprof/src/stream/mod.rs",
    "kprof/src/stream/owner.rs",
    "kprof/src/transition.rs",
    "kprof/src/unwind/*.rs",
];
/// The tests that should notice a change in kprof: first the unit tests, then those of the others that notice most,
/// then the rest. Tests that take minutes are left out.
const KPROF_STAGES: [&[&str]; 3] = [
    &["--features=profiling", "--lib"],
    &["--features=profiling", "--test=account", "--test=export", "--test=life"],
    &[
        "--features=profiling",
        "--test=copies",
        "--test=every_instruction",
        "--test=halted",
        "--test=heap",
        "--test=ipi",
        "--test=lockup",
        "--test=nested",
        "--test=nmi_names",
        "--test=ownership",
        "--test=path",
        "--test=points",
        "--test=published",
        "--test=records",
        "--test=user_words",
        "--test=waiting",
    ],
];
/// Cases of the model of the account, of 400 steps each.
const CASES: &str = "80";

impl Arguments {
    /// The arguments of cargo-mutants that choose what is changed.
    fn choice(&self) -> Result<Vec<String>> {
        let files = match &self.file {
            Some(file) => std::slice::from_ref(file).to_vec(),
            None => self.package.files().iter().map(|&file| file.to_owned()).collect(),
        };
        let mut choice: Vec<String> = files.into_iter().flat_map(|file| ["--file".to_owned(), file]).collect();
        if let Some(shard) = &self.shard {
            choice.extend(["--shard".to_owned(), shard.clone()]);
        }
        if let Some(commit) = &self.since {
            let difference = run::output(Command::new("git").args(["diff", commit]).current_dir(run::root()))?;
            // Relative to the repository, where cargo-mutants runs.
            let file = "target/mutants.diff";
            fs::write(run::root().join(file), difference).context(file)?;
            choice.extend(["--in-diff".to_owned(), file.to_owned()]);
        }
        Ok(choice)
    }
}

/// Runs the verb.
///
/// # Errors
/// If cargo-mutants is missing and cannot be built, or if the tests fail without any change.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let program = program(Install(!arguments.no_install))?;
    let output = run::root().join(&arguments.output);
    let package = arguments.package;
    let mut found = Found::default();
    for (stage, tests) in package.stages().iter().enumerate() {
        let choice = match stage {
            0 => arguments.choice()?,
            _ if found.missed.is_empty() => break,
            _ => again(&found.missed),
        };
        let stage_output = output.join(format!("stage-{}", stage + 1));
        let mut command = Command::new(&program);
        command.args(["mutants", "--colors", "never"]);
        for name in package.cargo_names() {
            command.args(["--package", name, "--test-package", name]);
        }
        // Files of unit tests, which cargo-mutants knows by `cfg(test)` alone.
        command.args(["--exclude", "**/tests.rs", "--exclude", "**/tests/**"]);
        // Not after `--`: arguments there choose what runs, and all tests of the package are compiled for each change.
        command.args(tests.iter().map(|test| format!("--cargo-arg={test}")));
        command.arg("--output").arg(&stage_output).args(choice);
        // The dependencies are compiled once and not for each copy.
        command.env("CARGO_TARGET_DIR", run::root().join("target/mutants/build"));
        let now = changes(command.current_dir(run::root()), &stage_output)?;
        found = if stage == 0 { now } else { found.refined(now)? };
    }
    let list = package.argued();
    let argued = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let unargued = unargued(&found.missed, &argued);
    unargued.iter().for_each(|change| println!("no test notices: {change}"));
    println!("{}", found.summary());
    println!(
        "{} changes that no test notices, {} of them not in {}",
        found.missed.len(),
        unargued.len(),
        list.display()
    );
    Ok(if unargued.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs cargo-mutants and reads what it says about each change. Debug information is left out: it takes a fifth of the
/// time to compile.
fn changes(command: &mut Command, output: &Path) -> Result<Found> {
    // Results of an earlier run would stay there if there is nothing to change now.
    let results = output.join("mutants.out");
    if results.exists() {
        fs::remove_dir_all(&results).with_context(|| results.display().to_string())?;
    }
    fs::create_dir_all(output).with_context(|| output.display().to_string())?;
    command.env("KPROF_CASES", CASES).env("CARGO_PROFILE_DEV_DEBUG", "none");
    let status = command.status().with_context(|| format!("{command:?} cannot be started"))?;
    // 0: all were noticed; 2 and 3: some were not, or ran into the time limit. Everything else is an error.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        bail!("{command:?} failed ({status})");
    }
    Found::read(&results)
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
fn unargued(missed: &[String], argued: &str) -> Vec<String> {
    let argued: Vec<&str> = argued.lines().filter(|line| !line.starts_with([' ', '#'])).collect();
    let without_place = |line: &String| match (line.split_once(':'), line.split_once(": ")) {
        (Some((file, _)), Some((_, change))) => format!("{file}: {change}"),
        _ => line.clone(),
    };
    missed.iter().map(without_place).filter(|change| !argued.contains(&change.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_change_is_argued_by_its_file_and_words_and_not_by_its_line() {
        let argued = "# why\nsrc/a.rs: replace < with <= in f\n    equal never comes\n";
        let missed = ["src/a.rs:17:9: replace < with <= in f", "src/a.rs:17:9: replace < with == in f"];
        assert_eq!(unargued(&missed.map(str::to_owned), argued), ["src/a.rs: replace < with == in f"]);
        assert_eq!(unargued(&[], argued), Vec::<String>::new());
    }

    #[test]
    fn what_is_changed_exists_and_each_test_is_in_one_run() {
        let tests = KPROF_STAGES.concat();
        let names: Vec<&str> = tests.iter().filter_map(|argument| argument.strip_prefix("--test=")).collect();
        for (place, name) in names.iter().enumerate() {
            let is_in = |folder: &&str| run::root().join(folder).join(name).with_extension("rs").is_file();
            assert!(["kprof/tests", "kprof/events/tests"].iter().any(is_in), "{name}");
            assert!(!names[..place].contains(name), "{name} is in two runs");
        }
        assert!(tests.contains(&"--lib") && names.len() > 10, "{tests:?}");
        for file in KPROF_FILES {
            assert!(run::root().join(file.trim_end_matches("*.rs")).exists(), "{file}");
        }
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
