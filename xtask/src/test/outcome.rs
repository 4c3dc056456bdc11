//! What a group gets, and what it gives: the context and the outcome.
//!
//! In: the command line. Out: counts, what failed, what was skipped. Every group uses this file, so it uses none.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::parts::Parts;
use crate::run;
use crate::toolchain::Choice;
use crate::tools::{Install, Missing};

/// What a group found.
#[derive(Default)]
pub struct Outcome {
    /// Tests that passed.
    pub passed: usize,
    /// The names of those of them that have one.
    pub names: Vec<String>,
    /// What each failed test said.
    pub failures: Vec<String>,
    /// Why steps were left out.
    pub skipped: Vec<String>,
}

impl Outcome {
    /// Counts one test.
    pub fn check(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => {
                self.passed += 1;
                self.names.push(name.to_owned());
            }
            Err(error) => self.not_passed(&format!("{name}: {error:#}"), &error),
        }
    }

    /// Runs a script of `xtask/readers/` and counts the lines that it prints: `ok NAME`, `FAILED NAME: WHY`,
    /// `skipped NAME: WHY`.
    ///
    /// # Errors
    /// If the script cannot be started, does not succeed within the limit, or reports no check.
    pub fn script(&mut self, script: &mut Command, limit: Duration) -> Result<()> {
        let done = run::caught(script, limit)?;
        let before = self.passed + self.failures.len();
        for line in done.text.lines() {
            if let Some(name) = line.strip_prefix("ok ") {
                self.check(name, Ok(()));
            } else if let Some(failure) = line.strip_prefix("FAILED ") {
                self.failures.push(failure.to_owned());
            } else if let Some(reason) = line.strip_prefix("skipped ") {
                self.skipped.push(reason.to_owned());
            }
        }
        let is_silent = self.passed + self.failures.len() == before;
        if !done.status.is_some_and(|status| status.success()) || is_silent {
            bail!("{script:?} did not come to its end:\n{}", done.text);
        }
        Ok(())
    }

    /// Records why something has not passed: it has failed, or a program that it needs is missing.
    pub fn not_passed(&mut self, said: &str, error: &anyhow::Error) {
        let is_missing = error.chain().any(|cause| cause.is::<Missing>());
        let list = if is_missing { &mut self.skipped } else { &mut self.failures };
        list.push(said.to_owned());
    }
}

/// What the groups need to know.
pub struct Context {
    /// May programs be installed?
    pub install: Install,
    /// The way to compile for other targets.
    pub toolchain: Choice,
    /// Part of the names of scenarios, or of parts of the groups `outside`, to run.
    pub filter: String,
    /// Seconds for each fuzz target.
    pub fuzz_seconds: u64,
    /// Are warnings of the compiler errors?
    pub denies_warnings: bool,
    /// Whether only one of what is done in turn is done.
    pub is_in_turn: bool,
    /// The verbs of this program, which documents name.
    pub verbs: fn() -> clap::Command,
    /// What [`Context::parts`] has found.
    pub parts: Option<Parts>,
}

impl Context {
    /// The words that make clippy's warnings errors.
    pub fn deny(&self) -> &'static [&'static str] {
        if self.denies_warnings { &["--", "-D", "warnings"] } else { &[] }
    }

    /// The flags that make the compiler's warnings errors.
    pub fn deny_flags(&self) -> &'static str {
        if self.denies_warnings { "-D warnings" } else { "" }
    }

    /// Of what is done in turn: the one that the commit's hash chooses, or everything if the group was named by hand.
    ///
    /// # Errors
    /// If git does not know the commit.
    pub fn in_turn<'a, T>(&self, all: &'a [T]) -> Result<&'a [T]> {
        if !self.is_in_turn {
            return Ok(all);
        }
        let commit = run::output(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(run::root()))?;
        turn(all, &commit)
    }

    /// What every kernel run needs; found and built at the first call.
    ///
    /// # Errors
    /// If a tool is missing. The message says what to type.
    pub fn parts(&mut self) -> Result<&Parts> {
        if self.parts.is_none() {
            self.parts = Some(Parts::prepare(self.toolchain, self.install)?);
        }
        Ok(self.parts.as_ref().expect("just made"))
    }
}

/// The one of `all` that the hash of a commit chooses.
fn turn<'a, T>(all: &'a [T], commit: &str) -> Result<&'a [T]> {
    let hash = commit.get(..8).and_then(|digits| usize::from_str_radix(digits, 16).ok());
    let at = hash.with_context(|| format!("no hash of a commit: {commit:?}"))? % all.len();
    Ok(&all[at..=at])
}

/// The texts of all groups' files but this one, to see whether a check exists.
#[cfg(test)]
pub fn sources(but: &str) -> String {
    let mut texts = String::new();
    for folder in ["", "outside", "integration"] {
        for entry in std::fs::read_dir(run::root().join("xtask/src/test").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && !path.ends_with(but) {
                texts += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools;

    #[test]
    fn each_has_its_turn_and_a_commit_chooses_the_same_one_every_time() {
        let of = |commit| turn(&["a", "b", "c"], commit).unwrap();
        assert_eq!([of("00000000f"), of("00000001"), of("00000002\n"), of("00000003")], [["a"], ["b"], ["c"], ["a"]]);
        assert!(turn(&["a"], "HEAD").is_err());
    }

    #[test]
    fn what_lacks_a_program_is_skipped_and_what_is_wrong_has_failed() {
        let mut outcome = Outcome::default();
        outcome.check("runs", Ok(()));
        outcome.check("lacks", Err(tools::missing("no qemu")).context("the kernel").context("boots"));
        outcome.check("is wrong", Err(anyhow::anyhow!("no qemu")));
        assert_eq!((outcome.passed, outcome.names), (1, vec!["runs".to_owned()]));
        assert_eq!(outcome.skipped, ["lacks: boots: the kernel: no qemu"]);
        assert_eq!(outcome.failures, ["is wrong: no qemu"]);
    }
}
