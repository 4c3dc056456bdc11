//! Ways to compile for targets that are not the host: the target is installed, rustup adds it, or Debian's rustc builds
//! its standard library from source (design: section 9).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::run;
use crate::tools::{self, Install, missing};

/// Which way to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// The first that works.
    Auto,
    /// The target is installed.
    Installed,
    /// `rustup target add`.
    Rustup,
    /// Debian's rustc with its source.
    Distro,
}

/// A target and the standard library parts it needs.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The target triple.
    pub triple: &'static str,
    /// Crates to build where the library is built from source.
    pub build_std: &'static str,
}

/// The kernel's target.
pub const KERNEL: Target = Target { triple: "x86_64-unknown-none", build_std: "core,alloc" };
/// Static programs for the kernel's user space.
pub const MUSL: Target = Target { triple: "x86_64-unknown-linux-musl", build_std: "" };
/// Redox, for type checks.
pub const REDOX: Target = Target { triple: "x86_64-unknown-redox", build_std: "std,panic_abort" };

/// The way that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The toolchain in use has the target.
    Toolchain,
    /// Debian's cargo and rustc build the library.
    Distro,
}

/// Sees to it that rustup has a nightly toolchain with this component.
///
/// # Errors
/// If it cannot be installed.
pub fn nightly_has(component: &str, install: Install) -> Result<()> {
    let rustup =
        |arguments: &[&str]| run::output(Command::new("rustup").args(arguments).env_remove("RUSTUP_TOOLCHAIN"));
    let list = |more: &str| rustup(&["component", "list", "--toolchain", "nightly", more]).unwrap_or_default();
    let has = |text: String| text.lines().any(|line| line.starts_with(component));
    if has(list("--installed")) {
        return Ok(());
    }
    let words = ["toolchain", "install", "nightly", "--profile", "minimal", "--component", component];
    let hint = format!("rustup {}", words.join(" "));
    if !install.0 {
        return Err(missing(format!("there is no nightly toolchain with {component}. Type: {hint}")));
    }
    eprintln!("installing {component} for the nightly toolchain");
    // To a nightly that is there the component is added: another nightly would compile everything again.
    let done = if list("--installed").is_empty() {
        rustup(&words)
    } else {
        rustup(&["component", "add", component, "--toolchain", "nightly"])
    };
    done.map(drop).map_err(|error| missing(format!("no nightly toolchain with {component}: {error:#}")))
}

/// Sees to it that the toolchain in use has this component, by the name of its program.
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
    run::output(Command::new("rustup").args(["component", "add", name]))
        .map(drop)
        .map_err(|error| missing(format!("there is no {program}: {error:#}")))
}

fn installed(target: Target) -> bool {
    run::output(Command::new("rustc").args(["--print", "target-libdir", "--target", target.triple]))
        .is_ok_and(|folder| std::fs::read_dir(folder.trim()).is_ok_and(|mut entries| entries.next().is_some()))
}

fn add_by_rustup(target: Target, install: Install) -> Result<()> {
    if !install.0 {
        return Err(missing(format!("--no-install forbids `rustup target add {}`", target.triple)));
    }
    run::output(Command::new("rustup").args(["target", "add", target.triple]))
        .map(drop)
        .map_err(|error| missing(format!("{error:#}")))
}

/// Debian's packages of a new rustc; those named `rustc` and so on stay as old as the release.
const DISTRO: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// Sees to it that Debian's rustc, cargo and source are there, new enough and of one version.
///
/// # Errors
/// With what to type where they cannot be installed.
pub fn prepare_distro(install: Install) -> Result<()> {
    let Err(why) = distro_is_usable() else { return Ok(()) };
    let oldest = env!("CARGO_PKG_RUST_VERSION");
    // What is too old is not installed in the first place: it would be found, and would break every build.
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

/// Whether what is installed of Debian's Rust can build this workspace; else why it cannot.
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

/// Finds a way to compile for `target`, and says in one line which it took and why.
///
/// # Errors
/// If none works; the message says what each lacked.
pub fn find(target: Target, choice: Choice, install: Install) -> Result<Way> {
    let say = |text: &str| eprintln!("toolchain: {}: {text}", target.triple);
    let has = installed(target);
    match choice {
        Choice::Installed if !has => {
            Err(missing(format!("--toolchain installed: rustc has no target {}", target.triple)))
        }
        Choice::Auto | Choice::Installed if has => {
            say("installed in the toolchain in use");
            Ok(Way::Toolchain)
        }
        Choice::Rustup => {
            add_by_rustup(target, install).context("--toolchain rustup")?;
            say("added by rustup");
            Ok(Way::Toolchain)
        }
        Choice::Distro => {
            prepare_distro(install)?;
            say("Debian's rustc builds the library from source, as asked for");
            Ok(Way::Distro)
        }
        _ => match add_by_rustup(target, install) {
            Ok(()) => {
                say("was not installed, added by rustup");
                Ok(Way::Toolchain)
            }
            Err(rustup) => {
                prepare_distro(install).with_context(|| format!("rustup cannot add {}: {rustup:#}", target.triple))?;
                say("not installed and rustup cannot add it: Debian's rustc builds the library from source");
                Ok(Way::Distro)
            }
        },
    }
}

/// A cargo command that compiles for `target` in this way; the verb's arguments are to be added.
pub fn cargo(way: Way, verb: &str, target: Target) -> Result<Command> {
    let mut command = match way {
        Way::Toolchain => Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
        Way::Distro => {
            let mut command = Command::new("/usr/bin/cargo");
            command.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1").env_remove("RUSTUP_TOOLCHAIN");
            if target.triple == KERNEL.triple {
                command.env("CARGO_TARGET_X86_64_UNKNOWN_NONE_LINKER", rust_lld()?);
            }
            command
        }
    };
    command.arg(verb).args(["--target", target.triple]).current_dir(run::root());
    if way == Way::Distro {
        command.args(["-Z", &format!("build-std={}", target.build_std)]);
        if target.triple == KERNEL.triple {
            command.arg("-Zbuild-std-features=compiler-builtins-mem");
        }
        command.env("CARGO_TARGET_DIR", target_folder(&run::root(), way));
    }
    // Set by `cargo xtask` for its own build; it must not leak into others.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    Ok(command)
}

/// Where cargo puts what it compiles in this way, in a checkout: two compilers do not share a folder.
pub fn target_folder(tree: &Path, way: Way) -> PathBuf {
    match way {
        Way::Toolchain => tree.join("target"),
        Way::Distro => tree.join("target/distro"),
    }
}

/// Flags that keep the paths of this machine out of what is compiled in `tree`.
///
/// # Errors
/// If rustc does not say where it lives.
pub fn without_paths(way: Way, tree: &Path) -> Result<Vec<String>> {
    let rustc = if way == Way::Distro { "/usr/bin/rustc" } else { "rustc" };
    let sysroot = run::output(Command::new(rustc).args(["--print", "sysroot"]))?;
    let version = run::output(Command::new(rustc).arg("-vV"))?;
    let hash = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let mut places = vec![
        // What the library's own paths are where its source is not installed.
        (Path::new(sysroot.trim()).join("lib/rustlib/src/rust"), format!("/rustc/{hash}")),
        (tree.to_owned(), ".".to_owned()),
    ];
    places.extend(cargo_home.map(|home| (home, "/cargo".to_owned())));
    Ok(places.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect())
}

/// The linker that comes with rustup's toolchain.
fn rust_lld() -> Result<PathBuf> {
    let sysroot = run::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let path = PathBuf::from(sysroot.trim()).join("lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld");
    if path.is_file() {
        return Ok(path);
    }
    ["rust-lld", "ld.lld"].into_iter().find_map(run::find_program).context("no rust-lld: install Debian's package lld")
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
