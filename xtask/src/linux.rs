//! Debian's Linux, which the test kernel is compared with.
//!
//! In: Debian's package `linux-image-amd64` of this system or of another suite, and what it depends on, fetched and
//! unpacked, never installed. Out: its kernel. Up to Debian 13 the kernel is in the package `linux-image-VERSION`, as
//! `boot/vmlinuz-VERSION`; in later releases it is in `linux-binary-VERSION`, as `usr/lib/modules/VERSION/vmlinuz`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::archive::{Apt, Archive};
use crate::run;
use crate::tools::Install;

/// Where it is kept.
pub fn folder() -> PathBuf {
    run::root().join("target/bench-kernel/linux")
}

/// The kernel of this system's suite, unpacked from its package; its symbols are beside it.
///
/// # Errors
/// If Debian's package cannot be downloaded.
pub fn kernel(install: Install) -> Result<PathBuf> {
    kernel_of(None, install)
}

/// The same of another suite, if there is one.
///
/// # Errors
/// As [`kernel`].
pub fn kernel_of(suite: Option<&str>, install: Install) -> Result<PathBuf> {
    let folder = suite.map_or_else(folder, |suite| folder().with_file_name(format!("linux-of-{suite}")));
    std::fs::create_dir_all(&folder)?;
    let found = || find(&folder.join("unpacked"));
    if let Some(kernel) = found() {
        return Ok(kernel);
    }
    if !install.0 {
        bail!("--no-install forbids fetching Debian's linux-image-amd64");
    }
    let apt = match suite {
        Some(suite) => Archive::find(install)?.apt(suite, &folder)?,
        None => Apt::default(),
    };
    let mut package = META_PACKAGE.to_owned();
    while let Some(next) = kernel_package(&package, &apt)? {
        eprintln!("fetching Debian's {next}");
        unpack(&next, &apt, &folder)?;
        if let Some(kernel) = found() {
            return Ok(kernel);
        }
        package = next;
    }
    bail!("no package that {META_PACKAGE} depends on holds a kernel")
}

/// The package that always depends on the newest kernel.
const META_PACKAGE: &str = "linux-image-amd64";

/// The package with the kernel, or with a dependency on it, that this one depends on.
fn kernel_package(package: &str, apt: &Apt) -> Result<Option<String>> {
    let depends = run::output(apt.command("apt-cache").args(["depends", package]))?;
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let mut kernels = names.filter(|name| ["linux-image-", "linux-binary-"].iter().any(|kind| name.starts_with(kind)));
    Ok(kernels.next().map(str::to_owned))
}

/// Fetches a package and adds its files to `folder`/unpacked.
fn unpack(package: &str, apt: &Apt, folder: &Path) -> Result<()> {
    run::output(apt.command("apt-get").args(["download", package]).current_dir(folder))?;
    let files = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let file = files.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let file = file.context("apt-get download left no package")?;
    run::output(Command::new("dpkg-deb").arg("-x").arg(&file).arg(folder.join("unpacked")))?;
    std::fs::remove_file(&file)?;
    Ok(())
}

/// The kernel among the files of a package.
fn find(unpacked: &Path) -> Option<PathBuf> {
    let entries = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_kernel = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"));
    let in_boot = entries(unpacked.join("boot")).find(is_kernel);
    let in_modules = || entries(unpacked.join("usr/lib/modules")).flat_map(entries).find(is_kernel);
    in_boot.or_else(in_modules)
}
