//! Runs the fuzz targets of kprof and kprof-fold for a bounded time, starting from the stored corpus.
//!
//! The targets are those of cargo-fuzz. libFuzzer does not need nightly Rust, because the compiler's flags for coverage
//! are stable. Only AddressSanitizer needs nightly: `cargo +nightly fuzz run` in the same folders has it too.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};

use super::outcome::{Context, Outcome};
use crate::run;
use crate::tools;

/// The compiler's flags. With them libFuzzer learns which code ran and which values were compared, and every overflow
/// panics.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks --cfg fuzzing";
/// The time limit of compiling.
const BUILD_LIMIT: Duration = Duration::from_secs(1200);
/// If a target is still running this long after its time, it hangs and is ended.
const GRACE: Duration = Duration::from_secs(300);

/// Runs the group.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    // Building libFuzzer needs a C++ compiler.
    if !["c++", "g++", "clang++"].iter().any(|name| tools::find_installed(name).is_some()) {
        tools::install_packages(&["g++"], context.install)?;
    }
    let host = host()?;
    for name in ["kprof", "kprof-fold"] {
        let folder = run::root().join(name).join("fuzz");
        let programs = build(&folder, &host)?;
        let mut targets: Vec<PathBuf> =
            std::fs::read_dir(folder.join("corpus"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        targets.sort();
        for corpus in targets {
            let target = corpus.file_name().context("a corpus has a name")?.to_string_lossy().into_owned();
            let found = fuzz(&programs.join(&target), &corpus, context.fuzz_seconds);
            outcome.check(&format!("{name}, {target}"), found);
        }
    }
    Ok(outcome)
}

/// The target triple of this machine. If cargo gets it by `--target`, it compiles build scripts without `FLAGS`.
fn host() -> Result<String> {
    let text = run::output(Command::new("rustc").arg("-vV"))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

fn build(folder: &Path, host: &str) -> Result<PathBuf> {
    let target_folder = run::root().join("target/fuzz");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--release", "--target", host]).current_dir(folder);
    cargo.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", &target_folder);
    let done = run::caught(&mut cargo, BUILD_LIMIT)?;
    match done.status {
        Some(status) if status.success() => Ok(target_folder.join(host).join("release")),
        _ => Err(anyhow!("{} cannot be built:\n{}", folder.display(), done.text)),
    }
}

/// Runs one target. Inputs that it adds to the stored corpus are written under target/ only.
fn fuzz(program: &Path, corpus: &Path, seconds: u64) -> Result<()> {
    let found = program.with_extension("found");
    let artifacts = program.with_extension("artifacts");
    for folder in [&found, &artifacts] {
        std::fs::create_dir_all(folder)?;
    }
    let mut command = run::bound(program);
    command.arg(format!("-max_total_time={seconds}")).args([
        // Every run uses the same random numbers, so that a new failure comes from a change of the code. `cargo
        // +nightly fuzz run` uses different ones in each run.
        "-seed=1",
        "-timeout=120",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
    ]);
    command.arg(format!("-artifact_prefix={}/", artifacts.display())).args([&found, &corpus.to_path_buf()]);
    let done = run::caught(&mut command, Duration::from_secs(seconds) + GRACE)?;
    // Every stored input must be tried. How many more inputs are tried depends on the speed of the machine.
    let least = std::fs::read_dir(corpus)?.count() as u64;
    let last: Vec<&str> = done.text.lines().rev().take(30).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    let executed = done.text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    match (done.status, executed.and_then(|count| count.trim().parse::<u64>().ok())) {
        (Some(status), Some(runs)) if status.success() && runs >= least => Ok(()),
        (Some(status), Some(runs)) if status.success() => Err(anyhow!("only {runs} of {least} kept inputs were tried")),
        _ => {
            let why = |line: &&str| line.contains("ERROR: libFuzzer") || line.contains("panicked at");
            let why = done.text.lines().find(why).unwrap_or("no reason was printed");
            Err(anyhow!("an input was found ({}): {why}\n{}", artifacts.display(), last.join("\n")))
        }
    }
}
