//! `cargo xtask bench page`: the size of the interactive page, and how fast it is in a browser.
//!
//! In: a generated profile of a million samples with 20 000 distinct stacks. Out: bytes of the page, the time until it
//! is drawn, the time until a new range is drawn, and that of a frame while the lanes are zoomed and moved, each
//! against its limit. The medians are judged. The browser runs headless, without a GPU.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::Value;

use super::fold::input::{self, Shape};
use super::goals::Goals;
use super::measure::median;
use crate::build;
use crate::run;
use crate::test::readers::browser;
use crate::tools::{self, Install};

/// The size of the page and its speed in a browser.
#[derive(Args)]
pub struct Arguments {
    /// Installs nothing: says what is missing instead
    #[arg(long)]
    no_install: bool,
}

/// Limits: bytes of a page without and for each sample; milliseconds until it is drawn, until a new range is, and until
/// other lanes are in sight.
const MAX_BYTES: f64 = 1e6;
const MAX_BYTES_A_SAMPLE: f64 = 8.0;
const MAX_OPEN_MS: f64 = 1000.0;
const MAX_RANGE_MS: f64 = 100.0;
const MAX_ZOOM_MS: f64 = 50.0;
/// The profile has about a million samples.
const SHAPE: Shape = Shape { megabytes: 138, stacks: 20_000, functions: 3000, skewed: true };

/// Runs the verb.
///
/// # Errors
/// If something cannot be built, installed or run.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let install = Install(!arguments.no_install);
    let root = run::root();
    let programs = build::host("kprof-fold", "")?;
    let folder = root.join("target/bench-page");
    std::fs::create_dir_all(&folder)?;
    let (profile, symbols) = (SHAPE.make(&folder)?, input::symbols(&folder, SHAPE.functions)?);
    let page = folder.join("page.html");
    let mut fold = Command::new(programs.join("kprof-fold"));
    run::output(fold.args(["html", "-q", "--force", "-o"]).arg(&page).arg(&profile).arg(&symbols).arg("2.2"))?;
    let (node, browser) = (tools::program("node", "nodejs", install)?, browser(install)?);
    let mut script = Command::new(node);
    script.arg(root.join("xtask/readers/page-speed.mjs")).arg(&folder).arg(&page).arg(browser);
    let measured: Value = serde_json::from_str(run::output(&mut script)?.trim()).context("page-speed.mjs")?;
    let number = |name: &str| measured[name].as_f64().with_context(|| format!("{name} was not measured"));
    let times = |name: &str| -> Result<f64> {
        let list = measured[name].as_array().with_context(|| format!("{name} was not measured"))?;
        Ok(median(list.iter().filter_map(Value::as_f64)))
    };
    let (samples, bytes) = (number("samples")?, std::fs::metadata(&page)?.len() as f64);
    println!("{samples} samples, {} stacks, {} functions: {bytes} bytes", number("stacks")?, number("functions")?);
    let mut goals = Goals::default();
    goals.at_most("bytes a sample beyond the first megabyte", (bytes - MAX_BYTES) / samples, MAX_BYTES_A_SAMPLE);
    goals.at_most("milliseconds until the page is drawn", times("open")?, MAX_OPEN_MS);
    goals.at_most("milliseconds until a new range is drawn", times("range")?, MAX_RANGE_MS);
    goals.at_most("milliseconds of a frame while the lanes are zoomed and moved", times("zoom")?, MAX_ZOOM_MS);
    Ok(goals.end())
}
