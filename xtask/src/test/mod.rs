//! `cargo xtask test`: every test there is, a line per group, and a last line that counts.
//!
//! A group is a function in one of the files here. It counts what passed and what failed, and keeps what the failures
//! said; a step that cannot run on this machine says "skipped" with the reason and counts as neither.

mod cargo;
mod feature_off;
mod fuzz;
mod integration;
mod path;
mod proof;
mod readers;
pub mod scenario;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Args;

use crate::parts::Parts;
use crate::toolchain::Choice;
use crate::tools::Install;

/// Runs every test: format, lint, documentation, host tests, type checks, the kernel in QEMU.
#[derive(Args)]
#[command(after_help = "Example: only the scenarios whose name has `panic` in it:
  cargo xtask test --only scenarios --filter panic")]
pub struct Arguments {
    /// Only this group (see the lines printed)
    #[arg(long)]
    only: Option<String>,
    /// Only scenarios whose name contains this
    #[arg(long, default_value = "")]
    filter: String,
    /// Seconds for each fuzz target
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    fuzz_seconds: u64,
    /// Installs nothing: says what is missing instead
    #[arg(long)]
    no_install: bool,
    /// The way to compile for other targets
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    toolchain: Choice,
}

/// What a group found.
#[derive(Default)]
pub struct Outcome {
    /// Tests that passed.
    pub passed: usize,
    /// What each failed test said.
    pub failures: Vec<String>,
    /// Why steps were left out.
    pub skipped: Vec<String>,
}

impl Outcome {
    /// Counts one test.
    pub fn check(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(error) => self.failures.push(format!("{name}: {error:#}")),
        }
    }
}

/// What the groups need to know.
pub struct Context {
    /// May programs be installed?
    pub install: Install,
    /// The way to compile for other targets.
    pub toolchain: Choice,
    /// Part of the names of scenarios to run.
    pub filter: String,
    /// Seconds for each fuzz target.
    pub fuzz_seconds: u64,
    parts: Option<Parts>,
}

impl Context {
    /// What every kernel run needs; found and built at the first call.
    ///
    /// # Errors
    /// With what to type where a tool is missing.
    pub fn parts(&mut self) -> Result<&Parts> {
        if self.parts.is_none() {
            self.parts = Some(Parts::prepare(self.toolchain, self.install)?);
        }
        Ok(self.parts.as_ref().expect("just made"))
    }
}

type Group = (&'static str, fn(&mut Context) -> Result<Outcome>);

/// The groups: what is quick and finds most comes first.
const GROUPS: [Group; 18] = [
    ("format", cargo::format),
    ("lint", cargo::lint),
    ("documentation", cargo::documentation),
    ("host tests", cargo::host_tests),
    ("ring models", cargo::ring_models),
    ("redox", cargo::redox),
    ("readers", readers::run),
    ("fuzz", fuzz::run),
    ("proof", proof::run),
    ("feature off", feature_off::run),
    ("integration", integration::run),
    ("scenarios", scenario::run),
    ("toolchains", scenario::toolchains),
    ("sweep", path::sweep),
    ("storm", path::storm),
    ("path", path::run),
    ("repeatable", path::repeatable),
    ("truth", path::truth),
];

/// Runs the verb.
///
/// # Errors
/// If `--only` names no group.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut context = Context {
        install: Install(!arguments.no_install),
        toolchain: arguments.toolchain,
        filter: arguments.filter.clone(),
        fuzz_seconds: arguments.fuzz_seconds,
        parts: None,
    };
    let wanted = |name: &str| arguments.only.as_deref().is_none_or(|only| only == name);
    if !GROUPS.iter().any(|(name, _)| wanted(name)) {
        let names: Vec<&str> = GROUPS.iter().map(|(name, _)| *name).collect();
        anyhow::bail!("--only: there is no such group; there are: {}", names.join(", "));
    }
    let (mut passed, mut failed) = (0, 0);
    for (name, group) in GROUPS.into_iter().filter(|(name, _)| wanted(name)) {
        let start = Instant::now();
        let outcome = group(&mut context)
            .unwrap_or_else(|error| Outcome { failures: vec![format!("{error:#}")], ..Outcome::default() });
        for failure in &outcome.failures {
            println!("FAILED {name}: {failure}");
        }
        for reason in &outcome.skipped {
            println!("skipped {name}: {reason}");
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("{name:15} {:5} passed {:3} failed {seconds:7.1} s", outcome.passed, outcome.failures.len());
        passed += outcome.passed;
        failed += outcome.failures.len();
    }
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
