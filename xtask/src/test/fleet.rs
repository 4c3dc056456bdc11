//! Runs the queries of docs/fleet.md with DuckDB and with Spark, over the tables of 500 generated profiles. Each result
//! must be what `report` and `folded` say of the same profiles. OpenTelemetry's package for Python decodes what `export
//! --to otlp` writes. The same with `--event` for every fifth profile.
//!
//! The engines are Python packages under target/python; Spark needs a Java runtime, which is installed where it is
//! missing. `xtask/readers/fleet.py` reads the page and the texts that are made here.

mod hits;
mod profiles;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::cargo::count_tests;
use super::outcome::{Context, Outcome};
use super::python;
use crate::build;
use crate::run;
use crate::tools;
use profiles::Profile;

/// The time limit of the script.
const LIMIT: Duration = Duration::from_secs(1200);
/// What the program must be compiled with.
const FEATURES: &str = "kprof-fold/parquet,kprof-fold/otlp";
/// How many profiles are generated.
const PROFILES: u64 = 500;
/// One profile of this many also has its hits of a point exported.
const WITH_HITS: u64 = 5;

/// Runs the group.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let root = run::root();
    let python = python::environment(context.install)?;
    let folder = root.join("target/fleet");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    let tools = root.join("target/tools");
    let mut tests = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // The packages of the host tests, so that their dependencies are not compiled again, and everything but the
    // programs where the host tests have it (a cargo before 1.91 compiles all of it in this folder). The programs are
    // in a folder of their own: in `target` another group's build, which has not these features, can replace the
    // program between the compilation of this test and its run.
    tests.args(["test", "--quiet"]).args(build::HOST).args(build::HOST_TESTS);
    tests.args(["--features", FEATURES, "--test", "event_tables", "--target-dir"]).arg(&tools);
    tests.env("CARGO_BUILD_BUILD_DIR", root.join("target")).current_dir(&root);
    count_tests(&mut outcome, "tables and OpenTelemetry's profiles of events", &mut tests)?;
    let fold = tools.join("debug/kprof-fold");
    (0..PROFILES).try_for_each(|number| make(&fold, &folder, number))?;
    let java = tools::program("java", "default-jre-headless", context.install);
    for (engine, missing) in [("otlp", None), ("duckdb", None), ("spark", java.err())] {
        if let Some(reason) = missing {
            outcome.skipped.push(format!("{engine}: {reason:#}"));
            continue;
        }
        let mut script = Command::new(&python);
        script.arg(root.join("xtask/readers/fleet.py")).args([engine, "docs/fleet.md"]).arg(&folder);
        outcome.script(script.current_dir(&root), LIMIT)?;
    }
    Ok(outcome)
}

/// Writes a profile's tables, and what `report` and `folded` say of it.
fn make(fold: &Path, folder: &Path, number: u64) -> Result<()> {
    let profile = Profile::new(number);
    let day = folder.join(format!("fleet/day=2026-11-{:02}", 1 + number % 20));
    let texts = folder.join("texts").join(format!("{number:03}"));
    std::fs::create_dir_all(&texts)?;
    let (file, syms) = (texts.join("profile"), texts.join("syms"));
    std::fs::write(&file, profile.text())?;
    std::fs::write(&syms, profile.symbols())?;
    std::fs::write(texts.join("about"), format!("{} {}\n", profile.machine(), profile.build()))?;
    let run = |words: &[&str], output: &Path| {
        let mut fold = Command::new(fold);
        fold.args(words).arg("-q").arg(&file).arg(&syms).arg("-o").arg(output);
        run::output(&mut fold).map(drop)
    };
    let (machine, build) = (profile.machine(), profile.build());
    let tables = ["export", "--to", "parquet", "--machine", &machine, "--build", &build];
    std::fs::create_dir_all(&day)?;
    run(&tables, &day.join(format!("run{number:03}")))?;
    run(&["export", "--to", "otlp"], &texts.join("otlp"))?;
    run(&["report", "--top", "0", "--limit", "0%"], &texts.join("report"))?;
    run(&["folded"], &texts.join("folded"))?;
    run(&["folded", "--by", "task"], &texts.join("task"))?;
    run(&["folded", "--by", "cpu"], &texts.join("cpu"))?;
    for cpu in 0..profiles::CPUS {
        let of_cpu = ["--cpu", &cpu.to_string()];
        run(&[&["folded"][..], &of_cpu].concat(), &texts.join(format!("cpu-{cpu}")))?;
        run(&[&["report"][..], &of_cpu].concat(), &texts.join(format!("report-{cpu}.json")))?;
    }
    for second in 0..profiles::SECONDS {
        let [from, to] = [second, second + 1].map(|second| second.to_string());
        run(&["folded", "--between", &from, &to], &texts.join(format!("second-{second}")))?;
    }
    if number.is_multiple_of(WITH_HITS) {
        let of = |words: &[&str], output: &Path| run(&[words, &["--event", hits::POINT]].concat(), output);
        of(&tables, &day.join(format!("hits{number:03}")))?;
        of(&["export", "--to", "otlp"], &texts.join("hits-otlp"))?;
        of(&["folded"], &texts.join("hits"))?;
        of(&["folded", "--count"], &texts.join("hits-count"))?;
        for cpu in 0..profiles::CPUS {
            of(&["folded", "--cpu", &cpu.to_string()], &texts.join(format!("hits-cpu-{cpu}")))?;
        }
    }
    Ok(())
}
