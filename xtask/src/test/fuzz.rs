//! The fuzz targets of kprof and kprof-fold, for a bounded time, beginning with the kept corpus.
//!
//! The targets are those of cargo-fuzz. Nothing of what libFuzzer needs is nightly's: the compiler's flags for coverage
//! are stable, only AddressSanitizer is not (`cargo +nightly fuzz run` in the same folders has that too).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};

use super::{Context, Outcome};
use crate::run;
use crate::tools;

/// What tells libFuzzer which code ran, and which values were compared; and no overflow passes unseen.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks --cfg fuzzing";
/// Compiling takes no longer, whatever happens.
const BUILD_LIMIT: Duration = Duration::from_secs(1200);
/// A target that is still running so long after its time has hung.
const GRACE: Duration = Duration::from_secs(300);

/// Runs the group.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    // libFuzzer is built with it.
    if !["c++", "g++", "clang++"].iter().any(|name| run::find_program(name).is_some()) {
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

/// The target triple of this machine; naming it keeps build scripts free of the flags.
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

/// One target. What it finds beyond the kept corpus stays under target/.
fn fuzz(program: &Path, corpus: &Path, seconds: u64) -> Result<()> {
    let found = program.with_extension("found");
    let artifacts = program.with_extension("artifacts");
    for folder in [&found, &artifacts] {
        std::fs::create_dir_all(folder)?;
    }
    let mut command = run::bound(program);
    command.arg(format!("-max_total_time={seconds}")).args([
        // The same way each time: what breaks here was changed here. `cargo +nightly fuzz run` looks for ways not gone
        // yet.
        "-seed=1",
        "-timeout=120",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
    ]);
    command.arg(format!("-artifact_prefix={}/", artifacts.display())).args([&found, &corpus.to_path_buf()]);
    let done = run::caught(&mut command, Duration::from_secs(seconds) + GRACE)?;
    // How many more are tried in the time depends on the machine; the kept ones are tried on each.
    let least = std::fs::read_dir(corpus)?.count() as u64;
    let last: Vec<&str> = done.text.lines().rev().take(30).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    let executed = done.text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    match (done.status, executed.and_then(|count| count.trim().parse::<u64>().ok())) {
        (Some(status), Some(runs)) if status.success() && runs >= least => Ok(()),
        (Some(status), Some(runs)) if status.success() => Err(anyhow!("only {runs} of {least} kept inputs were tried")),
        _ => Err(anyhow!("an input was found ({}):\n{}", artifacts.display(), last.join("\n"))),
    }
}
