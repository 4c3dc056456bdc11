//! The group `packages`: checks that the packages for a registry are complete, and that a crate outside of this
//! repository builds with them.
//!
//! In: the workspace. Out: the packaged files, unpacked into a temporary folder; checks of their lists; builds by a
//! crate that knows only them, with the feature `profiling` on and off. With `--thorough` also cargo's own verification
//! of every package, which compiles each from its packaged files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::cargo::{LIMIT, cargo, must_succeed};
use super::outcome::{Context, Outcome};
use crate::run;

/// What each package must hold.
const NEEDED: [&str; 5] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"];
/// What no package may contain, because only sources are of use to others.
const UNWANTED: [&str; 4] = ["tests/", "fuzz/", "benches/", "golden"];

/// A kernel outside of the repository. It implements the trait and calls what every kernel calls.
const OUTSIDE: &str = r#"#![no_std]
//! A port outside of kprof's repository.
use core::ops::Range;
use kprof::{Config, CpuSet, CpuSlot, Kernel, NmiToken, Profiler, Registers, Setup, Task};

pub struct Port;
pub static PROFILER: Profiler<Port> = Profiler::new(Port);
static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];

// SAFETY: nothing runs.
unsafe impl Kernel for Port {
    fn cpu(&self) -> usize {
        0
    }
    fn signal(&self, _: &CpuSet<'_>) {}
    fn stack_range(&self, _: u64) -> Option<Range<u64>> {
        None
    }
    fn is_entry_code(&self, _: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        Task { id: 1, idle: false }
    }
    fn sleep_ns(&self, _: u64) {}
}

pub fn boot(log: &mut dyn core::fmt::Write) {
    let config = Config { tsc_hz: 1_000_000_000, text: (1, 2), ..Config::new() };
    let _ = PROFILER.init(|| Setup { slots: &SLOTS, meta: &mut [], config });
    let _ = PROFILER.register(0, || &mut []);
    let _ = PROFILER.start();
    let _ = PROFILER.stop();
    let _ = PROFILER.write_status(&mut *log);
}

pub fn nmi(at: &Registers) {
    // SAFETY: nothing runs.
    PROFILER.on_nmi(&unsafe { NmiToken::new() }, at);
}
"#;

/// Runs the group.
pub fn run(_: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let packages = packages()?;
    must_succeed(&mut cargo(&["package", "--workspace", "--no-verify", "--allow-dirty", "--quiet"]))?;
    let folder = run::root().join("target/packages-outside");
    // The earlier build is removed too. All packaged files have the same modification time, so cargo would not notice a
    // change.
    for old in [&folder, &run::root().join("target/outside-build")].into_iter().filter(|old| old.exists()) {
        std::fs::remove_dir_all(old)?;
    }
    std::fs::create_dir_all(folder.join("src"))?;
    let mut unpacked = BTreeMap::new();
    for (name, version) in &packages {
        let file = run::root().join(format!("target/package/{name}-{version}.crate"));
        must_succeed(Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(&folder))?;
        let path = folder.join(format!("{name}-{version}"));
        outcome.check(&format!("{name} is packaged whole, without its tests"), is_whole(&path));
        unpacked.insert(name.as_str(), path);
    }
    std::fs::write(folder.join("Cargo.toml"), manifest(&unpacked))?;
    std::fs::write(folder.join("src/lib.rs"), OUTSIDE)?;
    for features in ["", "profiling"] {
        let result = build(&folder, &["build", "--features", features]);
        outcome.check(&format!("an outside crate builds from the packaged files, features: {features:?}"), result);
    }
    Ok(outcome)
}

/// Cargo's own verification: each package is compiled from its packaged files, in a dry run of its publication.
pub fn publish(_: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    forget_unpacked(&packages()?)?;
    let result = must_succeed(&mut cargo(&["publish", "--workspace", "--dry-run", "--allow-dirty", "--quiet"]));
    outcome.check("cargo publish --workspace --dry-run", result.map(drop));
    Ok(outcome)
}

/// Deletes what an earlier verification in this checkout has unpacked and compiled. Cargo keeps it by the path of its
/// temporary registry and by the version, and would use the old sources again.
fn forget_unpacked(packages: &[(String, String)]) -> Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home =
        home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"))).context("no CARGO_HOME")?;
    let Ok(registries) = std::fs::read_dir(home.join("registry/src")) else { return Ok(()) };
    for registry in registries {
        let registry = registry?;
        // Registries on the network have their host before the `-`.
        if !registry.file_name().to_string_lossy().starts_with('-') {
            continue;
        }
        for (name, version) in packages {
            let unpacked = registry.path().join(format!("{name}-{version}"));
            if unpacked.is_dir() {
                std::fs::remove_dir_all(&unpacked)?;
                forget_compiled(name)?;
            }
        }
    }
    Ok(())
}

/// Makes cargo compile a package again. Waits for a cargo that another group runs, by the lock that cargo itself takes:
/// it would miss what is deleted under it.
fn forget_compiled(name: &str) -> Result<()> {
    let target = run::root().join("target/debug");
    let lock = std::fs::File::open(target.join(".cargo-lock"));
    if let Ok(lock) = &lock {
        lock.lock()?;
    }
    for compiled in std::fs::read_dir(target.join(".fingerprint")).into_iter().flatten() {
        let compiled = compiled?;
        if compiled.file_name().to_string_lossy().starts_with(&format!("{name}-")) {
            std::fs::remove_dir_all(compiled.path())?;
        }
    }
    Ok(())
}

/// The packages that are published: name and version.
fn packages() -> Result<Vec<(String, String)>> {
    let text = run::output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    let all = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let is_published = |package: &&serde_json::Value| package["publish"].is_null();
    let word = |package: &serde_json::Value, key: &str| package[key].as_str().map(str::to_owned).context("metadata");
    let packages: Vec<(String, String)> = all
        .iter()
        .filter(is_published)
        .map(|package| Ok((word(package, "name")?, word(package, "version")?)))
        .collect::<Result<_>>()?;
    if packages.len() < 3 { bail!("only {} packages are published", packages.len()) } else { Ok(packages) }
}

/// Checks that a package has every file of `NEEDED` and none of `UNWANTED`.
fn is_whole(package: &Path) -> Result<()> {
    for name in NEEDED {
        let path = package.join(name);
        // In the repository a licence is a symbolic link. In the package it must be a file.
        if !path.is_file() || path.is_symlink() || std::fs::metadata(&path)?.len() == 0 {
            bail!("{} is missing", path.display());
        }
    }
    let mut todo = vec![package.to_path_buf()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let inside = path.strip_prefix(package)?.display().to_string();
            if UNWANTED.iter().any(|unwanted| format!("{inside}/").starts_with(unwanted) || inside.ends_with(".case")) {
                bail!("{inside} is packaged");
            }
            if path.is_dir() {
                todo.push(path);
            }
        }
    }
    Ok(())
}

/// The manifest of the outside crate. kprof, and the packages of this repository that it depends on, come from the
/// packaged files.
fn manifest(unpacked: &BTreeMap<&str, PathBuf>) -> String {
    let mut text = String::from(
        "[workspace]\n[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[features]\n\
         profiling = [\"kprof/profiling\"]\n\n[dependencies]\nkprof = \"*\"\n\n\
         [patch.crates-io]\n",
    );
    for (name, path) in unpacked {
        text += &format!("{name} = {{ path = {:?} }}\n", path.display().to_string());
    }
    text
}

fn build(folder: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = cargo(arguments);
    command.arg("--quiet").current_dir(folder).env("CARGO_TARGET_DIR", run::root().join("target/outside-build"));
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let finished = run::caught(&mut command, LIMIT)?;
    match finished.status {
        Some(status) if status.success() => Ok(()),
        _ => bail!("{command:?} failed:\n{}", finished.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_a_licence_or_with_tests_is_refused() {
        let folder = run::root().join("target/tmp/a-package");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("src")).unwrap();
        for name in NEEDED {
            assert!(is_whole(&folder).is_err(), "{name} is missing, and nobody noticed");
            std::fs::write(folder.join(name), "text").unwrap();
        }
        is_whole(&folder).unwrap();
        std::fs::create_dir_all(folder.join("tests/golden")).unwrap();
        assert_eq!(is_whole(&folder).unwrap_err().to_string(), "tests is packaged");
    }
}
