//! The group `toolchains`: the test kernel in every way that this machine can build it, and the bare kernel by a
//! nightly toolchain, each booted; and the oldest Rust that compiles what goes into kernels.
//!
//! In: the toolchains that can be had. Out: a check for each.

use std::process::Command;

use anyhow::Result;
use clap::ValueEnum as _;

use super::cargo::must_succeed;
use super::outcome::{Context, Outcome};
use super::{integration, scenario};
use crate::toolchain::{self, Choice};
use crate::tools::{self, Install};
use crate::{build, run};

/// Builds the kernel in every way that this machine can, and boots each; the bare kernel by a nightly toolchain too.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let install = context.install;
    let parts = context.parts()?;
    for choice in [Choice::Installed, Choice::Rustup, Choice::Distro] {
        let name = choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let trigger = match toolchain::find(toolchain::KERNEL, choice, install) {
            Ok(trigger) => trigger,
            Err(error) => {
                outcome.skipped.push(format!("{name}: {error:#}"));
                continue;
            }
        };
        let folder = run::root().join("target/scenarios").join(format!("toolchain-{name}"));
        let result = build::kernel(trigger, "profiling", &[])
            .and_then(|kernel| scenario::one("boot", parts, &kernel, &folder, ""))
            .map(drop);
        outcome.check(&name, result);
    }
    integration::by_nightly(context, &mut outcome)?;
    oldest_rust(&mut outcome, install);
    Ok(outcome)
}

/// The oldest Rust that compiles what goes into kernels, as `kprof/Cargo.toml` says (clippy checks calls against it
/// too).
const OLDEST_RUST: &str = "1.88.0";

/// Compiles `kprof` with the oldest Rust, if that version is or can be installed.
fn oldest_rust(outcome: &mut Outcome, install: Install) {
    let with_it = |arguments: &[&str]| {
        let mut command = Command::new("cargo");
        command.arg(format!("+{OLDEST_RUST}")).args(arguments).current_dir(run::root());
        command.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
        must_succeed(&mut command).map(drop)
    };
    let is_there = || with_it(&["--version"]);
    if is_there().is_err() && install.0 {
        let mut rustup = Command::new("rustup");
        // The next check notices if this fails.
        let words = ["toolchain", "install", OLDEST_RUST, "--profile", "minimal", "--no-self-update"];
        let _ = tools::install(rustup.args(words));
    }
    if let Err(why) = is_there() {
        let first = format!("{why:#}").lines().next().unwrap_or_default().to_owned();
        outcome.skipped.push(format!("kprof by Rust {OLDEST_RUST}: {first}"));
        return;
    }
    let check = [
        "check",
        "--quiet",
        "--target-dir",
        "target/oldest",
        "--features",
        "kprof/profiling,kprof-events/profiling,kprof-events/locks",
    ];
    let packages =
        ["--package", "kprof-format", "--package", "kprof", "--package", "kprof-events", "--package", "kprof-port"];
    outcome.check("what goes into kernels, by the oldest Rust", with_it(&[&check[..], &packages].concat()));
}
