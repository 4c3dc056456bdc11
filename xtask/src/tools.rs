//! Programs that the verbs need and Debian has: found, installed, or named with the command to type.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use elf::ElfBytes;
use elf::endian::AnyEndian;

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

/// Whether this process may install packages.
pub fn is_root() -> bool {
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
pub fn update_lists() -> Option<&'static str> {
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

/// The command that installs Debian's packages.
fn hint(packages: &str) -> String {
    format!("sudo apt-get update && sudo apt-get install --no-install-recommends {packages}")
}

/// Whether packages may be installed here; else what to do. `programs` are the missing programs in this system's words.
fn may_install(programs: &str, packages: &str, install: Install) -> Result<()> {
    if run::find_program("apt-get").is_none() {
        return Err(missing(format!(
            "missing on PATH: {programs}. This is neither Debian nor Ubuntu: install them with your package manager"
        )));
    }
    let hint = hint(packages);
    if !install.0 {
        return Err(missing(format!("missing: {programs}, and --no-install forbids installing them. Type: {hint}")));
    }
    if !is_root() {
        return Err(missing(format!("missing: {programs}, and only root may install them. Type: {hint}")));
    }
    Ok(())
}

/// Installs Debian packages from fresh lists, upgrades those that are installed already, or says what to type.
///
/// # Errors
/// If installing is not allowed or fails; the message has the command.
pub fn install_packages(packages: &[&str], install: Install) -> Result<()> {
    install_programs(&packages.join(", "), packages, install)
}

/// The same, for programs that have other names than their packages.
fn install_programs(programs: &str, packages: &[&str], install: Install) -> Result<()> {
    let list = packages.join(" ");
    may_install(programs, &list, install)?;
    let hint = hint(&list);
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

/// A program that is needed, and Debian's package of it.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name on PATH.
    pub name: &'static str,
    /// Debian's package.
    pub package: &'static str,
}

/// Reads the symbols of kernels; any other `nm` does it too.
pub const NM: Program = Program { name: "nm", package: "binutils" };
/// The shell and the tools of the test kernel's user space.
pub const BUSYBOX: Program = Program { name: "a static busybox", package: "busybox-static" };

impl Program {
    fn is_there(self) -> bool {
        match self.name {
            name if name == NM.name => ["nm", "llvm-nm"].into_iter().any(|name| find_installed(name).is_some()),
            name if name == BUSYBOX.name => kept_busybox().is_file() || static_busybox().is_some(),
            name => find_installed(name).is_some(),
        }
    }
}

/// Makes sure that all these programs are there: the missing ones are installed together, or named together, so that
/// nobody learns of them one after the other.
///
/// # Errors
/// As [`install_packages`].
pub fn require(programs: &[Program], install: Install) -> Result<()> {
    let missing: Vec<&Program> = programs.iter().filter(|program| !program.is_there()).collect();
    // Busybox is fetched, not installed: that needs no root.
    let is_fetched = |program: &&&Program| program.name == BUSYBOX.name && can_fetch(install);
    if missing.iter().all(|program| is_fetched(&program)) {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|program| program.name).collect();
    let packages: Vec<&str> = missing.iter().map(|program| program.package).collect();
    install_programs(&names.join(", "), &packages, install)
}

/// The program `name`; where it is missing, `package` is installed.
///
/// # Errors
/// As [`install_packages`].
pub fn program(name: &str, package: &str, install: Install) -> Result<PathBuf> {
    if let Some(path) = find_installed(name) {
        return Ok(path);
    }
    install_programs(name, &[package], install)?;
    run::find_program(name).with_context(|| format!("{package} is installed, but there is no {name} on PATH"))
}

/// Where the busybox of the test kernel is kept.
fn kept_busybox() -> PathBuf {
    run::root().join("target/kprof-tools/busybox")
}

/// A static busybox of this system.
fn static_busybox() -> Option<PathBuf> {
    let found = run::find_program("busybox").into_iter().chain(run::find_program("busybox.static"));
    found.chain([PathBuf::from("/bin/busybox")]).find(|path| std::fs::read(path).is_ok_and(|file| is_static(&file)))
}

/// Whether this is a program for x86_64 that needs no interpreter, and so no library.
fn is_static(file: &[u8]) -> bool {
    let Ok(elf) = ElfBytes::<AnyEndian>::minimal_parse(file) else { return false };
    let has_interpreter = |segments: elf::segment::SegmentTable<'_, AnyEndian>| {
        segments.iter().any(|segment| segment.p_type == elf::abi::PT_INTERP)
    };
    elf.ehdr.e_machine == elf::abi::EM_X86_64 && elf.segments().is_some_and(|segments| !has_interpreter(segments))
}

/// Whether a package can be fetched without being installed.
fn can_fetch(install: Install) -> bool {
    install.0 && run::find_program("apt-get").is_some()
}

/// A static busybox: this system's, or Debian's, taken out of its package, which need not be installed.
///
/// # Errors
/// If it is not there and cannot be fetched.
pub fn busybox(install: Install) -> Result<PathBuf> {
    let kept = kept_busybox();
    if kept.is_file() {
        return Ok(kept);
    }
    let folder = kept.parent().context("target")?;
    let _alone = run::lock(&folder.join("busybox.lock"))?;
    if kept.is_file() {
        return Ok(kept);
    }
    if let Some(installed) = static_busybox() {
        run::copy_whole(&installed, &kept)?;
        return Ok(kept);
    }
    if !can_fetch(install) {
        may_install(BUSYBOX.name, BUSYBOX.package, install)?;
    }
    eprintln!("fetching Debian's busybox-static");
    if is_root() {
        update_lists();
    }
    self::install(apt_get(&["download", "busybox-static"]).current_dir(folder)).map_err(|error| {
        missing(format!("busybox-static cannot be fetched ({error:#}). Type: {}", hint(BUSYBOX.package)))
    })?;
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
