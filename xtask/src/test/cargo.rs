//! The groups that cargo runs: format, lint, documentation, host tests, models of the ring, the type check for Redox.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::outcome::{Context, Outcome};
use super::{guards, proof};
use crate::build::{HOST, HOST_TESTS, IN_KERNEL};
use crate::run;
use crate::toolchain::{self, Target};

/// The time limit of one run of cargo.
pub const LIMIT: Duration = Duration::from_secs(1800);

/// Cargo, in the repository.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(run::root());
    command
}

/// Runs it; what it printed.
pub fn must_succeed(command: &mut Command) -> Result<String> {
    run::must_succeed(command, LIMIT)
}

/// `cargo fmt`.
pub fn format(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    toolchain::component("rustfmt", "cargo-fmt", context.install)?;
    outcome.check("cargo fmt", must_succeed(&mut cargo(&["fmt", "--all", "--check"])).map(drop));
    Ok(outcome)
}

/// `cargo clippy`, for the host crates and the kernel, with the profiler on and off.
pub fn lint(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    toolchain::component("clippy", "cargo-clippy", context.install)?;
    let deny = context.deny();
    let run = |arguments: &[&[&str]]| must_succeed(&mut cargo(&arguments.concat())).map(drop);
    outcome.check("host crates", run(&[&["clippy", "--quiet", "--all-targets"], &HOST, deny]));
    outcome.check("the simulations", run(&[&["clippy", "--quiet"], &HOST, &proof::SIMULATIONS, deny]));
    let off = ["--package", "redox-check", "--no-default-features"];
    outcome.check("Redox drop-in, profiler off", run(&[&["clippy", "--quiet", "--all-targets"], &off, deny]));
    outcome.check("kprof with the profiler", run(&[&["clippy", "--quiet", "--all-targets"], &IN_KERNEL, deny]));
    guards::run(&mut outcome, context.verbs)?;
    let toolchain = toolchain::find(toolchain::KERNEL, context.toolchain, context.install)?;
    if toolchain == toolchain::Toolchain::Distro {
        outcome.skipped.push("the kernel's lint: Debian's toolchain has no clippy for it".into());
        return Ok(outcome);
    }
    for features in ["", "profiling"] {
        let mut command = toolchain::cargo(toolchain, "clippy", toolchain::KERNEL)?;
        command.args(["--quiet", "--package", "test-kernel", "--features", features]).args(deny);
        outcome.check(&format!("test kernel, features: {features:?}"), must_succeed(&mut command).map(drop));
    }
    for (package, features) in [("bare", ""), ("bare", "heap,lockup"), ("test-module", "")] {
        let mut command = toolchain::cargo(toolchain, "clippy", toolchain::KERNEL)?;
        command.args(["--quiet", "--package", package, "--features", features]).args(deny);
        outcome.check(&format!("{package}, features: {features:?}"), must_succeed(&mut command).map(drop));
    }
    for (package, target) in [
        ("guests", toolchain::AARCH64),
        ("guests", toolchain::RISCV64),
        ("bare-virt", toolchain::AARCH64),
        ("bare-virt", toolchain::RISCV64),
    ] {
        let name = format!("{package} for {}", target.triple);
        match toolchain::find(target, context.toolchain, context.install) {
            Ok(toolchain @ toolchain::Toolchain::Toolchain) => {
                let mut command = toolchain::cargo(toolchain, "clippy", target)?;
                command.args(["--quiet", "--package", package]).args(deny);
                outcome.check(&name, must_succeed(&mut command).map(drop));
            }
            Ok(_) => outcome.skipped.push(format!("{name}: Debian's toolchain has no clippy for it")),
            Err(why) => outcome.skipped.push(format!("{name}: {why:#}")),
        }
    }
    Ok(outcome)
}

/// `cargo clippy` of `kprof` with each of its features alone, and of `kprof-events` without locks.
pub fn each_feature(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    toolchain::component("clippy", "cargo-clippy", context.install)?;
    for features in ["profiling", "profiling,testing"] {
        let alone = ["--package", "kprof", "--features", features];
        let words = [&["clippy", "--quiet", "--tests"][..], &alone, context.deny()];
        let mut command = cargo(&words.concat());
        outcome.check(&format!("kprof with {features}"), must_succeed(&mut command).map(drop));
    }
    let events = ["clippy", "--quiet", "--tests", "--package", "kprof-events", "--features", "profiling"];
    let without_locks = must_succeed(&mut cargo(&[&events[..], context.deny()].concat()));
    outcome.check("kprof-events without locks", without_locks.map(drop));
    Ok(outcome)
}

/// `cargo doc` without a warning, private items included.
pub fn documentation(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut command = cargo(&[&["doc", "--quiet", "--no-deps", "--document-private-items"][..], &HOST].concat());
    outcome.check("cargo doc", must_succeed(command.env("RUSTDOCFLAGS", context.deny_flags())).map(drop));
    let mut command = cargo(&[&["doc", "--quiet", "--no-deps", "--document-private-items"][..], &IN_KERNEL].concat());
    outcome.check(
        "cargo doc, what is compiled into a kernel",
        must_succeed(command.env("RUSTDOCFLAGS", context.deny_flags())).map(drop),
    );
    Ok(outcome)
}

/// Runs tests and adds up the counts in their lines `test result: ...`. Each failed test counts once. The first failure
/// also contains what was printed.
pub fn count_tests(outcome: &mut Outcome, name: &str, command: &mut Command) -> Result<()> {
    let line = format!("{command:?}");
    let finished = run::caught(command, LIMIT)?;
    let has_succeeded = finished.status.is_some_and(|status| status.success());
    count(outcome, name, &line, has_succeeded, &finished.text);
    Ok(())
}

/// What a reader of a long log needs: the first lines of each panic and of each compiler error, and the end.
fn excerpt(text: &str) -> String {
    const LINES: usize = 12;
    const END: usize = 60;
    let lines: Vec<&str> = text.lines().collect();
    let end = lines.len().saturating_sub(END);
    let mut shown = 0;
    let mut said = Vec::new();
    for line in &lines[..end] {
        let begins = line.contains(" panicked at ") || line.starts_with("error");
        shown = if begins { LINES } else { shown };
        if shown > 0 {
            said.push(*line);
            shown -= 1;
        }
    }
    said.extend(&lines[end..]);
    said.join("\n")
}

fn count(outcome: &mut Outcome, name: &str, line: &str, has_succeeded: bool, text: &str) {
    let (mut passed, mut failures) = (0, Vec::new());
    for line in text.lines().filter_map(|line| line.strip_prefix("test result: ")) {
        let count = |what: &str| {
            let words: Vec<&str> = line.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
            words.windows(2).find(|pair| pair[1] == what).and_then(|pair| pair[0].parse::<usize>().ok()).unwrap_or(0)
        };
        passed += count("passed");
        failures.extend((0..count("failed")).map(|_| format!("{name}: a test failed")));
        let ignored = count("ignored");
        if ignored > 0 {
            failures.push(format!("{name}: {ignored} ignored tests: a test runs or is deleted"));
        }
    }
    if !has_succeeded {
        let said = format!("{line} did not succeed:\n{}", excerpt(text));
        match failures.iter_mut().find(|failure| failure.ends_with("a test failed")) {
            Some(failure) => *failure = format!("{failure}: {said}"),
            // The command reached the time limit, did not compile, or is a test that prints no line `test result: ...`.
            None => failures.push(format!("{name}: {said}")),
        }
    } else if passed + failures.len() == 0 {
        failures.push(format!("{name}: {line} ran no test"));
    }
    outcome.passed += passed;
    outcome.failures.append(&mut failures);
}

/// All tests that run on the host, documentation examples too.
pub fn host_tests(_: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    // Other packages enable the feature `profiling` of these two, so their tests would run here and again below.
    let mut workspace = cargo(&[&["test", "--quiet", "--no-fail-fast"][..], &HOST, &HOST_TESTS].concat());
    count_tests(&mut outcome, "workspace", &mut workspace)?;
    let mut kprof = cargo(&[&["test", "--quiet", "--no-fail-fast"][..], &IN_KERNEL].concat());
    count_tests(&mut outcome, "kprof and its events", &mut kprof)?;
    let mut off = cargo(&["test", "--quiet", "--package", "kprof-events", "--test", "surface"]);
    count_tests(&mut outcome, "every public item with the profiler off", &mut off)?;
    // An optimised handler, as in a kernel, has few enough instructions that an NMI can be put before each of them.
    let mut handler = cargo(&["test", "--quiet", "--package", "kprof", "--features", "profiling"]);
    handler.args(["--test", "every_instruction", "--test", "export"]).args(as_in_a_kernel(&[]));
    let name = "optimised: an NMI before each instruction of the handler, the stack of a panic's export";
    count_tests(&mut outcome, name, &mut handler)?;
    Ok(outcome)
}

/// Options of cargo that compile `kprof`, and these packages, as a release build does, and all others as a test does:
/// an optimized proptest would take longer to compile than the tests run.
fn as_in_a_kernel(others: &[&str]) -> Vec<String> {
    let release = ["opt-level=3", "codegen-units=1", "debug-assertions=false", "overflow-checks=false"];
    let packages = ["kprof", "kprof-events", "kprof-format"].iter().chain(others);
    let options = packages.flat_map(|package| release.map(|option| format!("profile.dev.package.{package}.{option}")));
    options.flat_map(|option| ["--config".to_owned(), option]).collect()
}

/// loom's models of the ring.
pub fn ring_models(_: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut command = cargo(&["test", "--quiet", "--package", "kprof", "--test", "loom"]);
    command.args(["--target-dir", "target/loom"]).args(as_in_a_kernel(&["loom", "generator"]));
    command.env("RUSTFLAGS", "--cfg kprof_loom");
    count_tests(&mut outcome, "loom", &mut command)?;
    Ok(outcome)
}

/// Type checks: the daemon for Redox, and the port to its kernel for aarch64. (`emulated` runs that port's test, and
/// the host tests those for x86_64.)
pub fn redox(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let checks: [(&str, Target, &[&str]); 3] = [
        ("kprof-daemon", toolchain::REDOX, &["--package", "kprof-daemon"]),
        ("the port on aarch64", toolchain::AARCH64_LINUX, &["--package", "redox-check", "--tests"]),
        (
            "the port on aarch64, profiler off",
            toolchain::AARCH64_LINUX,
            &["--package", "redox-check", "--no-default-features"],
        ),
    ];
    for (name, target, words) in checks {
        let checked = || {
            let toolchain = toolchain::find(target, context.toolchain, context.install)?;
            let mut command = toolchain::cargo(toolchain, "check", target)?;
            must_succeed(command.args(["--quiet"]).args(words).env("RUSTFLAGS", context.deny_flags())).map(drop)
        };
        outcome.check(&format!("type check of {name}"), checked());
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(has_succeeded: bool, text: &str) -> (usize, Vec<String>) {
        let mut outcome = Outcome::default();
        count(&mut outcome, "group", "cargo test", has_succeeded, text);
        (outcome.passed, outcome.failures)
    }

    #[test]
    fn a_failed_test_counts_once_and_says_what_was_printed() {
        let text =
            "test result: ok. 5 passed; 0 failed; 0 ignored\nboom\ntest result: FAILED. 2 passed; 1 failed; 0 ignored";
        let (passed, failures) = counted(false, text);
        assert_eq!((passed, failures.len()), (7, 1));
        assert!(failures[0].contains("did not succeed") && failures[0].contains("boom"), "{failures:?}");
    }

    #[test]
    fn no_tests_ignored_tests_and_a_run_that_was_ended_are_failures() {
        for (has_succeeded, text) in
            [(true, ""), (true, "test result: ok. 1 passed; 0 failed; 2 ignored"), (false, "error: could not compile")]
        {
            assert_eq!(counted(has_succeeded, text).1.len(), 1, "{text}");
        }
        assert_eq!(counted(true, "test result: ok. 3 passed; 0 failed; 0 ignored").1.len(), 0);
    }

    #[test]
    fn an_excerpt_has_each_panic_and_the_end() {
        let many = |name: &str| (0..200).map(|number| format!("{name} {number}\n")).collect::<String>();
        let text = format!("{}thread 'a' panicked at b.rs:1:\nwhy\n{}the end", many("before"), many("after"));
        let said = excerpt(&text);
        assert!(said.contains(" panicked at b.rs:1:\nwhy\nafter 0\n") && said.ends_with("the end"), "{said}");
        assert!(!said.contains("before 199") && !said.contains("after 50\n"), "{said}");
        assert_eq!(excerpt("short\ntext"), "short\ntext");
    }
}
