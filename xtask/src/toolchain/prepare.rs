//! Installs what a way to compile needs: components of rustup's toolchains, Debian's Rust.
//!
//! In: what is wanted, and whether anything may be installed. Out: nothing, or a [`tools::Missing`] error that says
//! what to type. Never installs a version that is too old: later runs would find it, and every build would fail.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::run;
use crate::tools::{self, Install, missing};

/// Makes sure that rustup has a nightly toolchain with this component.
///
/// # Errors
/// If it cannot be installed.
pub fn nightly_has(component: &str, install: Install) -> Result<()> {
    let rustup = |arguments: &[&str]| {
        let mut command = Command::new("rustup");
        command.args(arguments).env_remove("RUSTUP_TOOLCHAIN");
        command
    };
    let list = |more: &str| {
        run::output(&mut rustup(&["component", "list", "--toolchain", "nightly", more])).unwrap_or_default()
    };
    let has = |text: String| text.lines().any(|line| line.starts_with(component));
    if has(list("--installed")) {
        return Ok(());
    }
    let words =
        ["toolchain", "install", "nightly", "--profile", "minimal", "--no-self-update", "--component", component];
    let hint = format!("rustup {}", words.join(" "));
    if !install.0 {
        return Err(missing(format!("there is no nightly toolchain with {component}. Type: {hint}")));
    }
    eprintln!("installing {component} for the nightly toolchain");
    // If a nightly is installed, the component is added to it. With another nightly, cargo would compile everything
    // again.
    let mut command = if list("--installed").is_empty() {
        rustup(&words)
    } else {
        rustup(&["component", "add", component, "--toolchain", "nightly"])
    };
    tools::install(&mut command)
        .map(drop)
        .map_err(|error| missing(format!("no nightly toolchain with {component}: {error:#}")))
}

/// Makes sure that the toolchain in use has this component. It has the component if `program` can be run.
///
/// # Errors
/// If it cannot be installed.
pub fn component(name: &str, program: &str, install: Install) -> Result<()> {
    if run::output(Command::new(program).arg("--version")).is_ok() {
        return Ok(());
    }
    if !install.0 {
        return Err(missing(format!("there is no {program}. Type: rustup component add {name}")));
    }
    tools::install(Command::new("rustup").args(["component", "add", name]))
        .map(drop)
        .map_err(|error| missing(format!("there is no {program}: {error:#}")))
}

/// The Rust whose warnings are errors in the tests: the oldest one that compiles this workspace. A newer compiler has
/// new warnings, and those must not fail the tests of somebody who has changed nothing.
const PINNED: &str = concat!(env!("CARGO_PKG_RUST_VERSION"), ".0");
/// Set in the process that [`become_pinned`] has started.
const IS_PINNED: &str = "KPROF_PINNED";

/// Makes sure that this process uses the pinned Rust. If another one is in use, rustup installs the pinned one, and
/// this process is replaced by the same one with it.
///
/// # Errors
/// If there is no such Rust; the reason.
pub fn become_pinned(install: Install) -> Result<()> {
    let rustc = run::output(Command::new("rustc").arg("--version"))?;
    if rustc.split(' ').nth(1).and_then(version_of) == version_of(PINNED) {
        return Ok(());
    }
    if is_another() {
        bail!("rustup has started {} instead of Rust {PINNED}", rustc.trim());
    }
    let words =
        ["toolchain", "install", PINNED, "--profile", "minimal", "-c", "clippy", "-c", "rustfmt", "--no-self-update"];
    if !install.0 && run::output(Command::new("rustup").args(["run", PINNED, "cargo-clippy", "--version"])).is_err() {
        return Err(missing(format!("there is no Rust {PINNED}. Type: rustup {}", words.join(" "))));
    }
    if install.0 {
        tools::install(Command::new("rustup").args(words)).map_err(|error| missing(format!("{error:#}")))?;
    }
    let mut again = Command::new("rustup");
    again.args(["run", PINNED]).arg(std::env::current_exe()?).args(std::env::args_os().skip(1)).env(IS_PINNED, "1");
    // Set by the cargo that has started this process.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        again.env_remove(name);
    }
    Err(again.exec().into())
}

/// Whether this process runs with another Rust than the one that has started it.
pub fn is_another() -> bool {
    std::env::var_os(IS_PINNED).is_some()
}

/// Debian's packages of a new rustc; those named `rustc` and so on stay as old as the release.
const DISTRO: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// Makes sure that Debian's rustc, cargo and source are installed, new enough and of the same version.
///
/// # Errors
/// If they cannot be installed. The message says what to type.
pub fn prepare_distro(install: Install) -> Result<()> {
    let Err(why) = distro_is_usable() else { return Ok(()) };
    let oldest = env!("CARGO_PKG_RUST_VERSION");
    // A version that is too old is not installed, because later runs would find it, and every build would fail.
    let offered = tools::candidate(DISTRO[0], install);
    if offered.as_deref().and_then(version_of).is_some_and(|version| Some(version) < version_of(oldest)) {
        let offered = offered.unwrap_or_default();
        return Err(missing(format!(
            "{why}, and this system's newest {} is {offered}, older than {oldest}",
            DISTRO[0]
        )));
    }
    tools::install_packages(&DISTRO, install)?;
    distro_is_usable().map_err(|why| missing(format!("{} are installed, but {why}", DISTRO.join(", "))))
}

/// Whether the installed packages of Debian's Rust can build this workspace. If not, the reason.
fn distro_is_usable() -> Result<(), String> {
    let oldest = env!("CARGO_PKG_RUST_VERSION");
    let version = |program: &str| -> Result<(u32, u32), String> {
        let text = run::output(Command::new(program).arg("--version")).map_err(|_| format!("there is no {program}"))?;
        text.split(' ')
            .nth(1)
            .and_then(version_of)
            .ok_or_else(|| format!("{program} does not tell its version: {text}"))
    };
    let (rustc, cargo) = (version("/usr/bin/rustc")?, version("/usr/bin/cargo")?);
    for (name, (major, minor)) in [("rustc", rustc), ("cargo", cargo)] {
        if Some((major, minor)) < version_of(oldest) {
            return Err(format!("Debian's {name} is {major}.{minor}, older than {oldest}"));
        }
    }
    let sysroot = run::output(Command::new("/usr/bin/rustc").args(["--print", "sysroot"]))
        .map_err(|error| format!("Debian's rustc does not tell its sysroot: {error:#}"))?;
    // Debian's sysroot refers to the source of the same version by a symbolic link.
    let source = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/src/lib.rs");
    if !source.is_file() {
        return Err(format!("the library's source of Debian's rustc is missing ({})", source.display()));
    }
    Ok(())
}

/// Major and minor number of a version, as `1.96.0+dfsg1-1`.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(version_of("1.96.0+dfsg1-1~deb12u2"), Some((1, 96)));
        assert_eq!(version_of("1.95"), Some((1, 95)));
        assert!(version_of("1.100.0") > version_of("1.96.1"));
        assert_eq!(version_of("unknown"), None);
    }
}
