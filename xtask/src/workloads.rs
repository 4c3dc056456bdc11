//! The workloads: shell scripts in test-kernel/workloads. The first comment line of each says what it does.

use anyhow::{Context, Result, bail};

use crate::run;

/// A workload.
pub struct Workload {
    /// Its name: the script's without `.sh`.
    pub name: String,
    /// What it does, from the first comment.
    pub about: String,
}

/// All workloads by name.
///
/// # Errors
/// If the folder cannot be read.
pub fn all() -> Result<Vec<Workload>> {
    let folder = run::root().join("test-kernel/workloads");
    let mut workloads = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "sh") {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let about = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default().to_owned();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        workloads.push(Workload { name, about });
    }
    workloads.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(workloads)
}

/// Checks that there is a workload called `name`.
///
/// # Errors
/// If there is none. The message lists all workloads.
pub fn check(name: &str) -> Result<()> {
    let all = all()?;
    if all.iter().any(|workload| workload.name == name) {
        return Ok(());
    }
    let names: Vec<&str> = all.iter().map(|workload| workload.name.as_str()).collect();
    bail!("there is no workload {name}; there are: {} (see --list-workloads)", names.join(", "))
}
