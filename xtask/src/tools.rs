//! Programs that the verbs need and Debian has: found, installed, or named with the command to type.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};

use crate::run;

/// May programs be installed?
#[derive(Clone, Copy, Debug)]
pub struct Install(pub bool);

/// Why something cannot run on this machine: a program is missing and cannot be installed. A test that needs the
/// program is skipped with this reason; it has not failed.
#[derive(Debug)]
pub struct Missing(String);

impl std::fmt::Display for Missing {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// The error of a [`Missing`] program.
pub fn missing(why: impl Into<String>) -> anyhow::Error {
    Missing(why.into()).into()
}

fn is_root() -> bool {
    run::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Runs a command that installs something. Only one process of these verbs does this at a time, because neither rustup
/// nor the update of apt's lists supports two processes at once.
///
/// # Errors
/// As [`run::output`].
pub fn install(command: &mut Command) -> Result<String> {
    let _alone = install_lock()?;
    run::output(command)
}

fn install_lock() -> Result<File> {
    run::lock(&run::root().join("target/kprof-tools/install.lock"))
}

/// Finds a program on PATH. Waits while another process of these verbs installs something: a package manager puts a
/// program in its place before the libraries that it needs are there.
pub fn find_installed(name: &str) -> Option<PathBuf> {
    // Without the lock the program is looked for all the same.
    let _none_is_installed_now = install_lock();
    run::find_program(name)
}

/// An apt-get that asks nothing and waits for other users of the package database.
fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["-o", "DPkg::Lock::Timeout=600", "-o", "APT::Update::Error-Mode=any"]).args(arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Updates the package lists, once in the life of this process. The lists of a fresh machine are as old as its image:
/// they name packages that are gone, or that are too old. If this fails, returns the reason and no error, because the
/// old lists may still be good enough.
fn update_lists() -> Option<&'static str> {
    static FAILURE: OnceLock<Option<String>> = OnceLock::new();
    let update = || {
        eprintln!("updating the package lists");
        install(&mut apt_get(&["update"])).err().map(|error| format!("{error:#}"))
    };
    let failure = FAILURE.get_or_init(update).as_deref();
    if let Some(failure) = failure {
        eprintln!("the package lists may be old: {failure}");
    }
    failure
}

/// Whether packages may be installed here; else what to type.
fn may_install(what: &str, hint: &str, install: Install) -> Result<()> {
    if !install.0 {
        return Err(missing(format!("{what} is missing and --no-install forbids installing it. Type: {hint}")));
    }
    if run::find_program("apt-get").is_none() {
        return Err(missing(format!(
            "{what} is missing, and this is neither Debian nor Ubuntu: install it with your package manager"
        )));
    }
    if !is_root() {
        return Err(missing(format!("{what} is missing. Type: {hint}")));
    }
    Ok(())
}

/// Installs Debian packages from fresh lists, upgrades those that are installed already, or says what to type.
///
/// # Errors
/// If installing is not allowed or fails; the message has the command.
pub fn install_packages(packages: &[&str], install: Install) -> Result<()> {
    let list = packages.join(" ");
    let hint = format!("sudo apt-get update && sudo apt-get install --no-install-recommends {list}");
    may_install(&list, &hint, install)?;
    let lists = update_lists();
    eprintln!("installing {list}");
    self::install(&mut apt_get(&[&["install", "-y", "--no-install-recommends"], packages].concat())).map(drop).map_err(
        |error| {
            let lists = lists.map_or_else(String::new, |failure| format!("; the package lists are old: {failure}"));
            missing(format!("{list} cannot be installed ({error:#}{lists}). Type: {hint}"))
        },
    )
}

/// The version of a package that apt would install from fresh lists, without its epoch; `None` if it knows none.
pub fn candidate(package: &str, install: Install) -> Option<String> {
    if install.0 && is_root() {
        update_lists();
    }
    let policy = run::output(Command::new("apt-cache").args(["policy", package]).env("LC_ALL", "C")).ok()?;
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?.trim();
    (version != "(none)").then(|| version.split_once(':').map_or(version, |(_, rest)| rest).to_owned())
}

/// The program `name`; where it is missing, `package` is installed.
///
/// # Errors
/// As [`install_packages`].
pub fn program(name: &str, package: &str, install: Install) -> Result<PathBuf> {
    if let Some(path) = find_installed(name) {
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
    let _alone = run::lock(&folder.join("busybox.lock"))?;
    if kept.is_file() {
        return Ok(kept);
    }
    if is_static(installed) {
        run::copy_whole(installed, &kept)?;
        return Ok(kept);
    }
    let hint = "sudo apt-get update && sudo apt-get install busybox-static";
    if !install.0 {
        return Err(missing(format!("busybox-static is missing and --no-install forbids fetching it. Type: {hint}")));
    }
    eprintln!("fetching Debian's busybox-static");
    if is_root() {
        update_lists();
    }
    self::install(apt_get(&["download", "busybox-static"]).current_dir(folder))
        .map_err(|error| missing(format!("busybox-static cannot be fetched ({error:#}). Type: {hint}")))?;
    let package = std::fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get download left no package")?;
    let unpacked = folder.join("busybox-static");
    run::output(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&unpacked))?;
    let found =
        ["bin/busybox", "usr/bin/busybox"].map(|path| unpacked.join(path)).into_iter().find(|path| path.is_file());
    run::copy_whole(&found.context("the package holds no busybox")?, &kept)?;
    std::fs::remove_dir_all(&unpacked)?;
    std::fs::remove_file(&package)?;
    Ok(kept)
}
