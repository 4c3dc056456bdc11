//! Programs that the verbs need and Debian has: found, installed, or named with the command to type.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// May programs be installed?
#[derive(Clone, Copy, Debug)]
pub struct Install(pub bool);

fn is_root() -> bool {
    run::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Installs Debian packages, or says what to type.
///
/// # Errors
/// If installing is not allowed or fails; the message has the command.
pub fn install_packages(packages: &[&str], install: Install) -> Result<()> {
    let list = packages.join(" ");
    let hint = format!("sudo apt-get install --no-install-recommends {list}");
    if !install.0 {
        bail!("{list} is missing and --no-install forbids installing it. Type: {hint}");
    }
    if run::find_program("apt-get").is_none() {
        bail!("{list} is missing, and this is neither Debian nor Ubuntu: install it with your package manager");
    }
    if !is_root() {
        bail!("{list} is missing. Type: {hint}");
    }
    eprintln!("installing {list}");
    let apt = |arguments: &[&str]| {
        run::output(Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    let install = [&["install", "-y", "--no-install-recommends"], packages].concat();
    // A machine that never updated its lists finds nothing: update once, then it must work.
    if apt(&install).is_err() {
        apt(&["update"]).with_context(|| format!("package lists. Type: sudo apt-get update && {hint}"))?;
        apt(&install).with_context(|| format!("{list} cannot be installed. Type: {hint}"))?;
    }
    Ok(())
}

/// The program `name`; where it is missing, `package` is installed.
///
/// # Errors
/// As [`install_packages`].
pub fn program(name: &str, package: &str, install: Install) -> Result<PathBuf> {
    if let Some(path) = run::find_program(name) {
        return Ok(path);
    }
    install_packages(&[package], install)?;
    run::find_program(name).with_context(|| format!("{package} is installed, but there is no {name} on PATH"))
}

/// Debian's static busybox, unmodified. Taken out of its package, which need not be installed.
///
/// # Errors
/// If it is not there and cannot be fetched.
pub fn busybox(install: Install) -> Result<PathBuf> {
    let kept = run::root().join("target/kprof-tools/busybox");
    if kept.is_file() {
        return Ok(kept);
    }
    let installed = Path::new("/bin/busybox");
    let is_static = |path: &Path| {
        let list = run::output(Command::new("dpkg-query").args(["-W", "-f=${Status}", "busybox-static"]));
        path.is_file() && list.is_ok_and(|status| status.contains("install ok installed"))
    };
    let folder = kept.parent().context("target")?;
    std::fs::create_dir_all(folder)?;
    if is_static(installed) {
        std::fs::copy(installed, &kept)?;
        return Ok(kept);
    }
    if !install.0 {
        bail!(
            "busybox-static is missing and --no-install forbids fetching it. Type: sudo apt-get install busybox-static"
        );
    }
    eprintln!("fetching Debian's busybox-static");
    let download = || run::output(Command::new("apt-get").args(["download", "busybox-static"]).current_dir(folder));
    if download().is_err() {
        if is_root() {
            run::output(Command::new("apt-get").arg("update"))?;
        }
        download().context("Type: sudo apt-get update && sudo apt-get install busybox-static")?;
    }
    let package = std::fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get download left no package")?;
    let unpacked = folder.join("busybox-static");
    run::output(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&unpacked))?;
    let found =
        ["bin/busybox", "usr/bin/busybox"].map(|path| unpacked.join(path)).into_iter().find(|path| path.is_file());
    std::fs::copy(found.context("the package holds no busybox")?, &kept)?;
    std::fs::remove_dir_all(&unpacked)?;
    std::fs::remove_file(&package)?;
    Ok(kept)
}
