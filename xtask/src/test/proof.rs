//! Runs the tests of the crate under Miri, ThreadSanitizer and AddressSanitizer, the model of the account for many
//! steps, many kills of the daemon, and simulations of the comparison of profiles.
//!
//! Miri is a part of nightly. The sanitizers need a rustc that accepts `-Z` flags, and its source. This is nightly, or
//! Debian's rustc with the sanitizers' runtime from LLVM, because Debian's rustc has no runtime. `--toolchain distro`
//! always uses Debian's rustc. A step that cannot run on this machine says so, and is not counted as passed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};

use super::cargo::{cargo, count_tests, must_succeed};
use super::outcome::{Context, Outcome};
use crate::build::{HOST, HOST_TESTS, IN_KERNEL};
use crate::run;
use crate::toolchain::{self, Choice, nightly_has};
use crate::tools::{self, Install};

/// Tests to run under the sanitizers: those with threads, rings and handlers. `single_step` is skipped: it handles
/// traps of its own, and its trap handler must not call what the sanitizers insert.
const UNDER_SANITIZERS: [&str; 12] = [
    "--lib",
    "--test=path",
    "--test=published",
    "--test=nested",
    "--test=export",
    "--test=ipi",
    "--test=halted",
    "--test=ownership",
    "--test=life",
    "--test=account_threads",
    "--test=heap",
    "--test=locks",
];
/// Tests that Miri completes in a minute or two each. Those with many threads or a long run are left to the sanitizers.
/// Each entry is a check with a time limit of its own.
const UNDER_MIRI: [(&str, &[&str]); 2] = [
    ("Miri, unit tests", &["--lib"]),
    (
        "Miri, integration tests",
        &["--test=copies", "--test=path", "--test=export", "--test=nmi_names", "--test=user_words"],
    ),
];
/// Cases of the model of the account, of 400 steps each: ten million steps.
const MODEL_CASES: &str = "25000";
/// The last ones need stack frames in order, and AddressSanitizer gives each function's variables memory of their own.
const NOT_UNDER_SANITIZERS: [&str; 5] =
    ["--", "--skip=single_step", "--skip=wild", "--skip=gaps", "--skip=a_record_has_the_"];

/// The tests of `kprof-fold` that draw thousands of profiles. `cargo test` leaves them out, so clippy does too.
pub const SIMULATIONS: [&str; 2] = ["--test=simulation", "--test=weight_simulation"];
/// How often a daemon is killed.
const KILLS: &str = "500";

/// Runs the model and the kills many times, the simulations, and Miri if it is or can be installed.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut model = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    model.args(["test", "--quiet", "--release", "-p", "kprof-events", "--features", "profiling", "--test", "account"]);
    model.current_dir(run::root()).env("KPROF_CASES", MODEL_CASES);
    count_tests_of(&mut outcome, "the account's model, ten million steps", &mut model)?;
    // Of all packages, because cargo compiles the dependencies of one alone with other features once more.
    let cargo = |words: &[&str]| cargo(&[&["test", "--quiet"][..], &HOST, &HOST_TESTS, words].concat());
    count_tests_of(&mut outcome, "the simulations of comparisons", &mut cargo(&SIMULATIONS))?;
    let kills = &mut cargo(&["--test=kill"]);
    outcome.check("500 kills of a daemon", must_succeed(kills.env("KPROF_KILLS", KILLS)).map(drop));
    match nightly_has("miri", context.install) {
        Ok(()) => {
            for (name, tests) in UNDER_MIRI {
                let mut miri = nightly("miri");
                miri.args(["test", "--quiet", "--target-dir", "target/miri"]).args(IN_KERNEL);
                // The handler finds its slots and words by integer addresses, as in a kernel. Memory is given to the
                // profiler for ever, and a sampler never returns, so leaks are ignored.
                miri.args(tests).env("MIRIFLAGS", "-Zmiri-permissive-provenance -Zmiri-ignore-leaks");
                count_tests_of(&mut outcome, name, &mut miri)?;
            }
        }
        Err(why) => outcome.skipped.push(format!("no Miri: {why}")),
    }
    Ok(outcome)
}

/// Runs the tests under the sanitizers that are or can be installed.
pub fn sanitizers(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (name, sanitizer, runtime) in [("ThreadSanitizer", "thread", "tsan"), ("AddressSanitizer", "address", "asan")] {
        let nightly = match context.toolchain {
            Choice::Distro => Err(anyhow!("--toolchain distro")),
            _ => nightly_has("rust-src", context.install),
        };
        let test = match nightly {
            Ok(()) => Ok(with_nightly(sanitizer)),
            Err(why) => {
                let distro = with_distro(sanitizer, runtime, context.install);
                distro.map_err(|error| anyhow!("{why:#}; and with Debian's rustc: {error:#}"))
            }
        };
        let mut test = match test {
            Ok(test) => test,
            Err(why) => {
                outcome.skipped.push(format!("no {name}: {why:#}"));
                continue;
            }
        };
        test.args(["--quiet", "-Zbuild-std", "--target", "x86_64-unknown-linux-gnu"]);
        test.args(IN_KERNEL);
        // Leaks are not reported, because ring memory is given to the profiler for ever.
        test.args(under(sanitizer)).args(NOT_UNDER_SANITIZERS).env("ASAN_OPTIONS", "detect_leaks=0");
        count_tests_of(&mut outcome, name, &mut test)?;
    }
    Ok(outcome)
}

/// What runs under a sanitizer. Of whole test programs, Miri sees all that AddressSanitizer sees, and more; of the unit
/// tests it runs some with fewer steps.
fn under(sanitizer: &str) -> impl Iterator<Item = &'static str> {
    let is_elsewhere =
        |test: &&str| UNDER_MIRI.iter().any(|(_, tests)| test.starts_with("--test=") && tests.contains(test));
    UNDER_SANITIZERS.into_iter().filter(move |test| sanitizer != "address" || !is_elsewhere(test))
}

fn with_nightly(sanitizer: &str) -> Command {
    let mut test = nightly("test");
    test.args(["--target-dir", &format!("target/{sanitizer}")]).env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"));
    test
}

/// Debian's cargo and rustc, linked with the runtime that comes with LLVM.
fn with_distro(sanitizer: &str, runtime: &str, install: Install) -> Result<Command> {
    toolchain::prepare_distro(install)?;
    let library = match find_runtime(runtime) {
        Some(library) => library,
        None => {
            tools::install_packages(&[RUNTIME_PACKAGE], install)?;
            find_runtime(runtime).with_context(|| format!("{RUNTIME_PACKAGE} has no runtime {runtime}"))?
        }
    };
    eprintln!("toolchain: Debian's rustc builds the library from source; {sanitizer} sanitizer: {}", library.display());
    let mut test = Command::new("/usr/bin/cargo");
    test.args(["test", "--target-dir", &format!("target/distro/{sanitizer}")]).current_dir(run::root());
    test.env("RUSTC", "/usr/bin/rustc").env("RUSTDOC", "/usr/bin/rustdoc").env("RUSTC_BOOTSTRAP", "1");
    test.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO_ENCODED_RUSTFLAGS");
    // The whole runtime is linked, before everything else, because no code refers to its interceptors by name. The
    // libraries that the runtime needs come last.
    let mut flags = format!("-Zsanitizer={sanitizer} -Zexternal-clangrt");
    for argument in ["-Wl,--whole-archive", &library.display().to_string(), "-Wl,--no-whole-archive"] {
        flags.push_str(&format!(" -Zpre-link-args={argument}"));
    }
    for argument in ["-Wl,--no-as-needed", "-lm", "-lresolv", "-lc"] {
        flags.push_str(&format!(" -Clink-arg={argument}"));
    }
    test.env("RUSTFLAGS", flags);
    Ok(test)
}

/// The package that has the runtime; older ones lack functions that rustc's LLVM calls.
const RUNTIME_PACKAGE: &str = "libclang-rt-19-dev";
const OLDEST_RUNTIME: u32 = 16;

/// The newest runtime in the folders of LLVM.
fn find_runtime(runtime: &str) -> Option<PathBuf> {
    let name = format!("linux/libclang_rt.{runtime}-x86_64.a");
    let versions = Path::new("/usr/lib").read_dir().ok()?.flatten().filter_map(|entry| {
        let version = entry.file_name().to_str()?.strip_prefix("llvm-")?.parse::<u32>().ok()?;
        Some((version, entry.path().join(format!("lib/clang/{version}/lib")).join(&name)))
    });
    versions.filter(|(version, path)| *version >= OLDEST_RUNTIME && path.is_file()).max().map(|(_, path)| path)
}

/// Ignored tests are no failure here: the test files leave them to other groups.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_miri_runs_whole_is_not_run_by_address_sanitizer_and_everything_is_by_thread_sanitizer() {
        assert_eq!(under("thread").count(), UNDER_SANITIZERS.len());
        let address: Vec<&str> = under("address").collect();
        assert!(address.contains(&"--lib") && address.contains(&"--test=heap"), "{address:?}");
        let left_out: Vec<&str> = under("thread").filter(|test| !address.contains(test)).collect();
        assert_eq!(left_out, ["--test=path", "--test=export"]);
    }
}
