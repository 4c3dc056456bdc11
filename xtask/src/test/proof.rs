//! The crate under machines that watch: Miri, ThreadSanitizer, AddressSanitizer.
//!
//! All three need a nightly rustc with its source. What cannot run here says so, and is not counted as passed.

use std::process::Command;

use anyhow::{Result, bail};

use super::cargo::{LIMIT, count_tests};
use super::{Context, Outcome};
use crate::run;

/// Tests that a sanitizer sees through: those with threads, rings, handlers. `single_step` makes its own traps, in which
/// nothing may be called that a sanitizer calls.
const UNDER_SANITIZERS: [&str; 8] =
    ["--lib", "--test", "path", "--test", "published", "--test", "nested", "--test=export"];
const NOT_UNDER_SANITIZERS: [&str; 5] = ["--", "--skip=single_step", "--skip=wild", "--skip=gaps", "--skip=format::"];

/// Runs what can be run.
pub fn run(_: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    match nightly_has("miri") {
        Ok(()) => {
            let mut miri = nightly("miri");
            miri.args(["test", "--quiet", "--target-dir", "target/miri", "-p", "kprof", "--features", "profiling"]);
            // The handler finds its slots and words by addresses, as a kernel does; memory is handed over for ever, and a
            // sampler never comes back.
            miri.args(["--lib", "--tests"]).env("MIRIFLAGS", "-Zmiri-permissive-provenance -Zmiri-ignore-leaks");
            count_tests_of(&mut outcome, "Miri", &mut miri)?;
        }
        Err(why) => outcome.skipped.push(format!("no Miri: {why}")),
    }
    for (name, sanitizer) in [("ThreadSanitizer", "thread"), ("AddressSanitizer", "address")] {
        if let Err(why) = nightly_has("rust-src") {
            outcome.skipped.push(format!("no {name}: {why}"));
            continue;
        }
        let mut test = nightly("test");
        test.args(["--quiet", "-Zbuild-std", "--target", "x86_64-unknown-linux-gnu"]);
        test.args(["--target-dir", &format!("target/{sanitizer}"), "-p", "kprof", "--features", "profiling"]);
        test.args(UNDER_SANITIZERS).args(NOT_UNDER_SANITIZERS);
        // Ring memory is handed over for ever.
        test.env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}")).env("ASAN_OPTIONS", "detect_leaks=0");
        count_tests_of(&mut outcome, name, &mut test)?;
    }
    Ok(outcome)
}

/// Ignored tests are those that the file itself leaves to other groups.
fn count_tests_of(outcome: &mut Outcome, name: &str, command: &mut Command) -> Result<()> {
    let mut found = Outcome::default();
    count_tests(&mut found, name, command)?;
    found.failures.retain(|failure| !failure.contains(" ignored tests:"));
    outcome.passed += found.passed;
    outcome.failures.append(&mut found.failures);
    Ok(())
}

fn nightly(verb: &str) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["+nightly", verb]).current_dir(run::root());
    // Set by `cargo xtask` for its own build.
    cargo
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO");
    cargo
}

/// Whether rustup has a nightly with this component.
fn nightly_has(component: &str) -> Result<()> {
    let mut rustup = Command::new("rustup");
    let list = run::caught(rustup.args(["+nightly", "component", "list"]), LIMIT);
    let text = list.map(|finished| finished.text).unwrap_or_default();
    if !text.lines().any(|line| line.starts_with(component) && line.contains("(installed)")) {
        bail!("a nightly with {component} is not installed (`rustup toolchain install nightly -c {component}`)");
    }
    Ok(())
}
