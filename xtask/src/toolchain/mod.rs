//! Ways to compile for targets that are not the host: the target is installed, rustup adds it, or Debian's rustc builds
//! its standard library from source (design: section 9).

mod prepare;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::run;
use crate::tools::{self, Install, missing};
pub use prepare::{become_pinned, component, is_another, nightly_has, prepare_distro};

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
/// The bare kernel for aarch64, and a guest that is sampled from outside. The library that rustup installs has frame
/// records in every function that calls one.
pub const AARCH64: Target = Target { triple: "aarch64-unknown-none", build_std: "core" };
/// Static programs for the kernel's user space.
pub const MUSL: Target = Target { triple: "x86_64-unknown-linux-musl", build_std: "" };
/// Redox, for type checks.
pub const REDOX: Target = Target { triple: "x86_64-unknown-redox", build_std: "std,panic_abort" };
/// Linux on aarch64, for type checks of the Redox port there.
pub const AARCH64_LINUX: Target = Target { triple: "aarch64-unknown-linux-musl", build_std: "std,panic_unwind,test" };
/// The bare kernel for riscv64, and a guest that is sampled from outside.
pub const RISCV64: Target = Target { triple: "riscv64gc-unknown-none-elf", build_std: "core" };

impl Target {
    /// Whether it is for kernels, which are linked without a system.
    fn is_bare(self) -> bool {
        self.triple.contains("-none")
    }
}

/// The way that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toolchain {
    /// The toolchain in use has the target.
    Toolchain,
    /// Debian's cargo and rustc build the library.
    Distro,
}

fn installed(target: Target) -> bool {
    run::output(Command::new("rustc").args(["--print", "target-libdir", "--target", target.triple]))
        .is_ok_and(|folder| std::fs::read_dir(folder.trim()).is_ok_and(|mut entries| entries.next().is_some()))
}

fn add_by_rustup(target: Target, install: Install) -> Result<()> {
    if !install.0 {
        return Err(missing(format!("--no-install forbids `rustup target add {}`", target.triple)));
    }
    tools::install(Command::new("rustup").args(["target", "add", target.triple]))
        .map_err(|error| missing(format!("{error:#}")))?;
    // The toolchain in use may be another one than rustup's default, and rustup believes its own list of what is
    // installed.
    if !installed(target) {
        return Err(missing(format!("rustup has added {}, and rustc has it not", target.triple)));
    }
    Ok(())
}

/// Finds a way to compile for `target`, and says in one line which it took and why.
///
/// # Errors
/// If none works; the message says what each lacked.
pub fn find(target: Target, choice: Choice, install: Install) -> Result<Toolchain> {
    let say = |text: &str| eprintln!("toolchain: {}: {text}", target.triple);
    let has = installed(target);
    match choice {
        Choice::Installed if !has => {
            Err(missing(format!("--toolchain installed: rustc has no target {}", target.triple)))
        }
        Choice::Auto | Choice::Installed if has => {
            say("installed in the toolchain in use");
            Ok(Toolchain::Toolchain)
        }
        Choice::Rustup => {
            add_by_rustup(target, install).context("--toolchain rustup")?;
            say("added by rustup");
            Ok(Toolchain::Toolchain)
        }
        Choice::Distro => {
            prepare_distro(install)?;
            say("Debian's rustc builds the library from source, as asked for");
            Ok(Toolchain::Distro)
        }
        _ => match add_by_rustup(target, install) {
            Ok(()) => {
                say("was not installed, added by rustup");
                Ok(Toolchain::Toolchain)
            }
            Err(rustup) => {
                prepare_distro(install).with_context(|| format!("rustup cannot add {}: {rustup:#}", target.triple))?;
                say("not installed and rustup cannot add it: Debian's rustc builds the library from source");
                Ok(Toolchain::Distro)
            }
        },
    }
}

/// A cargo command that compiles for `target` in this way; the verb's arguments are to be added.
pub fn cargo(toolchain: Toolchain, verb: &str, target: Target) -> Result<Command> {
    let mut command = match toolchain {
        Toolchain::Toolchain => Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
        Toolchain::Distro => {
            let mut command = Command::new("/usr/bin/cargo");
            command.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1").env_remove("RUSTUP_TOOLCHAIN");
            if target.is_bare() {
                let name = target.triple.to_uppercase().replace('-', "_");
                command.env(format!("CARGO_TARGET_{name}_LINKER"), rust_lld()?);
            }
            command
        }
    };
    command.arg(verb).args(["--target", target.triple]).current_dir(run::root());
    if toolchain == Toolchain::Distro {
        command.args(["-Z", &format!("build-std={}", target.build_std)]);
        if target.is_bare() {
            command.arg("-Zbuild-std-features=compiler-builtins-mem");
        }
        command.env("CARGO_TARGET_DIR", target_folder(&run::root(), toolchain));
    }
    // `cargo xtask` sets these variables for its own build. Other builds must not get them.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    Ok(command)
}

/// The folder for what cargo compiles in this way, in a checkout. Two compilers do not share a folder.
pub fn target_folder(tree: &Path, toolchain: Toolchain) -> PathBuf {
    match toolchain {
        Toolchain::Toolchain => tree.join("target"),
        Toolchain::Distro => tree.join("target/distro"),
    }
}

/// Flags that keep the paths of this machine out of what is compiled in `tree`.
///
/// # Errors
/// If rustc does not print its sysroot and its version.
pub fn without_paths(toolchain: Toolchain, tree: &Path) -> Result<Vec<String>> {
    let rustc = if toolchain == Toolchain::Distro { "/usr/bin/rustc" } else { "rustc" };
    let sysroot = run::output(Command::new(rustc).args(["--print", "sysroot"]))?;
    let version = run::output(Command::new(rustc).arg("-vV"))?;
    let hash = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let mut places = vec![
        // The paths in the library's code begin like this if the library's source is not installed.
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
