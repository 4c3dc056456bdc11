//! Debian's Linux, which the test kernel is compared with.
//!
//! In: Debian's package `linux-image-amd64`, which is fetched and unpacked, never installed. Out: its kernel.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;
use crate::tools::Install;

/// Where it is kept.
pub fn folder() -> PathBuf {
    run::root().join("target/bench-kernel/linux")
}

/// The kernel, unpacked from its package; its symbols are beside it.
///
/// # Errors
/// If Debian's package cannot be downloaded.
pub fn kernel(install: Install) -> Result<PathBuf> {
    let folder = folder();
    std::fs::create_dir_all(&folder)?;
    let found = || {
        let entries = std::fs::read_dir(folder.join("unpacked/boot")).ok()?;
        let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        paths.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz")))
    };
    if let Some(kernel) = found() {
        return Ok(kernel);
    }
    if !install.0 {
        bail!("--no-install forbids fetching Debian's linux-image-amd64");
    }
    let depends = run::output(Command::new("apt-cache").args(["depends", "linux-image-amd64"]))?;
    let mut names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let package = names.find(|name| name.starts_with("linux-image")).context("linux-image-amd64 names no kernel")?;
    eprintln!("fetching Debian's {package}");
    run::output(Command::new("apt-get").args(["download", package]).current_dir(&folder))?;
    let files = std::fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let file = files.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let file = file.context("apt-get download left no package")?;
    run::output(Command::new("dpkg-deb").arg("-x").arg(&file).arg(folder.join("unpacked")))?;
    std::fs::remove_file(&file)?;
    found().context("the package holds no kernel")
}
