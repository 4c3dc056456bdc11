//! The groups that cargo runs: format, lint, documentation, host tests, models of the ring, the type check for Redox.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::{Context, Outcome};
use crate::run;
use crate::toolchain::{self, Target};

/// No cargo run of a test takes longer, whatever happens.
pub const LIMIT: Duration = Duration::from_secs(1800);

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(run::root());
    command
}

fn must_succeed(command: &mut Command) -> Result<String> {
    let line = format!("{command:?}");
    let finished = run::caught(command, LIMIT)?;
    match finished.status {
        Some(status) if status.success() => Ok(finished.text),
        Some(status) => bail!("{line} failed ({status}):\n{}", finished.text),
        None => bail!("{line} was ended after {} s:\n{}", LIMIT.as_secs(), finished.text),
    }
}

/// `cargo fmt`.
pub fn format(_: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    outcome.check("cargo fmt", must_succeed(&mut cargo(&["fmt", "--all", "--check"])).map(drop));
    Ok(outcome)
}

/// The packages that are compiled for the host.
const HOST: [&str; 7] = ["--workspace", "--exclude", "test-kernel", "--exclude", "test-module", "--exclude", "bare"];

/// `cargo clippy`, for the host crates and the kernel, with the profiler on and off.
pub fn lint(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let deny = ["--", "-D", "warnings"];
    let run = |arguments: &[&[&str]]| must_succeed(&mut cargo(&arguments.concat())).map(drop);
    outcome.check("host crates", run(&[&["clippy", "--quiet", "--all-targets"], &HOST, &deny]));
    let on = ["--package", "kprof", "--features", "profiling"];
    let off = ["--package", "redox-check", "--no-default-features"];
    outcome.check("Redox drop-in, profiler off", run(&[&["clippy", "--quiet", "--all-targets"], &off, &deny]));
    outcome.check("kprof with the profiler", run(&[&["clippy", "--quiet", "--all-targets"], &on, &deny]));
    let way = toolchain::find(toolchain::KERNEL, context.toolchain, context.install)?;
    if way == toolchain::Way::Distro {
        outcome.skipped.push("the kernel's lint: Debian's toolchain has no clippy for it".into());
        return Ok(outcome);
    }
    for features in ["", "profiling"] {
        let mut command = toolchain::cargo(way, "clippy", toolchain::KERNEL)?;
        command.args(["--quiet", "--package", "test-kernel", "--features", features]).args(deny);
        outcome.check(&format!("test kernel, features: {features:?}"), must_succeed(&mut command).map(drop));
    }
    for package in ["bare", "test-module"] {
        let mut command = toolchain::cargo(way, "clippy", toolchain::KERNEL)?;
        command.args(["--quiet", "--package", package]).args(deny);
        outcome.check(package, must_succeed(&mut command).map(drop));
    }
    Ok(outcome)
}

/// `cargo doc` without a warning.
pub fn documentation(_: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut command = cargo(&[&["doc", "--quiet", "--no-deps"][..], &HOST].concat());
    outcome.check("cargo doc", must_succeed(command.env("RUSTDOCFLAGS", "-D warnings")).map(drop));
    let mut command = cargo(&["doc", "--quiet", "--no-deps", "--package", "kprof", "--features", "profiling"]);
    outcome.check("cargo doc, kprof", must_succeed(command.env("RUSTDOCFLAGS", "-D warnings")).map(drop));
    Ok(outcome)
}

/// Runs tests and adds up what their closing lines count.
pub fn count_tests(outcome: &mut Outcome, name: &str, command: &mut Command) -> Result<()> {
    let line = format!("{command:?}");
    let finished = run::caught(command, LIMIT)?;
    let before = outcome.passed + outcome.failures.len();
    for line in finished.text.lines().filter_map(|line| line.strip_prefix("test result: ")) {
        let count = |what: &str| {
            let words: Vec<&str> = line.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
            words.windows(2).find(|pair| pair[1] == what).and_then(|pair| pair[0].parse::<usize>().ok()).unwrap_or(0)
        };
        outcome.passed += count("passed");
        let failed = count("failed");
        outcome.failures.extend((0..failed).map(|_| format!("{name}: a test failed")));
        let ignored = count("ignored");
        if ignored > 0 {
            outcome.failures.push(format!("{name}: {ignored} ignored tests: a test runs or is deleted"));
        }
    }
    if !finished.status.is_some_and(|status| status.success()) {
        let tail: Vec<&str> = finished.text.lines().rev().take(120).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        outcome.failures.push(format!("{name}: {line} did not succeed:\n{}", tail.join("\n")));
    } else if outcome.passed + outcome.failures.len() == before {
        outcome.failures.push(format!("{name}: {line} ran no test"));
    }
    Ok(())
}

/// All tests that run on the host, documentation examples too.
pub fn host_tests(_: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut workspace = cargo(&[&["test", "--quiet", "--no-fail-fast"][..], &HOST].concat());
    count_tests(&mut outcome, "workspace", &mut workspace)?;
    let mut kprof = cargo(&["test", "--quiet", "--no-fail-fast", "--package", "kprof", "--features", "profiling"]);
    count_tests(&mut outcome, "kprof with the profiler", &mut kprof)?;
    // The handler as it is in a kernel has few enough instructions to put an NMI before each.
    let mut handler = cargo(&["test", "--quiet", "--release", "--package", "kprof", "--features", "profiling"]);
    handler.args(["--test", "every_instruction"]);
    count_tests(&mut outcome, "an NMI before each instruction of the optimised handler", &mut handler)?;
    Ok(outcome)
}

/// loom's models of the ring.
pub fn ring_models(_: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut command = cargo(&["test", "--quiet", "--release", "--package", "kprof", "--test", "loom"]);
    command.args(["--target-dir", "target/loom"]).env("RUSTFLAGS", "--cfg kprof_loom");
    count_tests(&mut outcome, "loom", &mut command)?;
    Ok(outcome)
}

/// The daemon's type check for Redox.
pub fn redox(context: &mut Context) -> Result<Outcome> {
    const REDOX: Target = toolchain::REDOX;
    let mut outcome = Outcome::default();
    let way = toolchain::find(REDOX, context.toolchain, context.install)?;
    let mut command = toolchain::cargo(way, "check", REDOX)?;
    command.args(["--quiet", "--package", "kprof-daemon"]);
    outcome.check("type check of kprof-daemon", must_succeed(&mut command).map(drop));
    Ok(outcome)
}
