//! Packages of other suites of Debian, unpacked beside this system's own.
//!
//! In: a suite. Out: apt's programs for it, or a folder with QEMU's programs. The package lists, the packages and the
//! files are in folders of their own, so this system's packages stay as they are, and root is not needed. The programs
//! need newer libraries than this system's, so each is started by a script through its suite's own dynamic loader.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::qemu::PROGRAMS;
use crate::run;
use crate::tools::{self, Install, missing};

/// Debian's keys, with which the package lists of all its suites are signed.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Where a suite's libraries and data are.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// The time limit of fetching something.
const LIMIT: Duration = Duration::from_secs(900);

/// A mirror of Debian's archive.
pub struct Archive {
    /// Its address.
    pub mirror: String,
}

impl Archive {
    /// The mirror that this system uses.
    ///
    /// # Errors
    /// If this is not Debian, or nothing may be fetched.
    pub fn find(install: Install) -> Result<Self> {
        if !install.0 {
            return Err(missing("--no-install forbids fetching packages of other suites of Debian"));
        }
        if run::find_program("apt-get").is_none() || !Path::new(KEYS).is_file() {
            return Err(missing("packages of other suites of Debian can be fetched on Debian only"));
        }
        // On a fresh machine there are no lists, so no target of one either.
        tools::update_lists();
        let mut targets = Command::new("apt-get");
        targets.args(["indextargets", "--format", "$(LABEL) $(CODENAME) $(REPO_URI)", "Identifier: Packages"]);
        let targets = run::output(&mut targets)?;
        let uris = targets.lines().filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            ["Debian", codename, uri] if !codename.contains('-') => Some(uri),
            _ => None,
        });
        let mirror = uris.map(str::to_owned).next();
        Ok(Self { mirror: mirror.ok_or_else(|| missing("this system's package lists name no mirror of Debian"))? })
    }

    /// A folder with the QEMU of this suite, for all processors.
    ///
    /// # Errors
    /// If it cannot be fetched or unpacked.
    pub fn qemu(&self, suite: &str) -> Result<PathBuf> {
        let folder = run::root().join("target/kprof-tools").join(format!("qemu-of-{suite}"));
        let _alone = run::lock(&folder.with_extension("lock"))?;
        let programs = folder.join("programs");
        if programs.is_dir() {
            return Ok(programs);
        }
        eprintln!("fetching the QEMU of Debian {suite}");
        // What is left of an attempt that did not come to its end.
        let _ = fs::remove_dir_all(&folder);
        let system = folder.join("system");
        self.unpack(suite, &PROGRAMS.map(|program| program.package), &folder, &system)?;
        let unfinished = folder.join("programs.new");
        fs::create_dir_all(&unfinished)?;
        for program in PROGRAMS {
            let script = unfinished.join(program.name);
            fs::write(&script, starts(&system, program.name))?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        }
        fs::rename(&unfinished, &programs)?;
        Ok(programs)
    }

    /// apt's programs for a suite, which keep their files in `folder`. Of this system's packages none is there for
    /// them.
    ///
    /// # Errors
    /// If the suite's package lists cannot be fetched.
    pub fn apt(&self, suite: &str, folder: &Path) -> Result<Apt> {
        let path = |name: &str| folder.join(name);
        for name in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(path(name))?;
        }
        fs::write(path("sources.list"), format!("deb [signed-by={KEYS}] {} {suite} main\n", self.mirror))?;
        fs::write(path("status"), "")?;
        let options = [
            ("Dir::Etc::sourcelist", path("sources.list")),
            ("Dir::Etc::sourceparts", PathBuf::from("/dev/null")),
            ("Dir::State::Lists", path("lists")),
            ("Dir::State::status", path("status")),
            ("Dir::Cache", path("cache")),
            ("Debug::NoLocking", PathBuf::from("1")),
            ("APT::Sandbox::User", PathBuf::new()),
        ];
        let apt = Apt(options.iter().map(|(option, value)| format!("{option}={}", value.display())).collect());
        fetch(apt.command("apt-get").arg("update"))?;
        Ok(apt)
    }

    /// Unpacks packages of a suite, with everything that they depend on, into `system`.
    fn unpack(&self, suite: &str, packages: &[&str], folder: &Path, system: &Path) -> Result<()> {
        fs::create_dir_all(system)?;
        let apt = self.apt(suite, folder)?;
        let install = ["install", "--download-only", "--yes", "--no-install-recommends"];
        fetch(apt.command("apt-get").args([&install, packages].concat()))?;
        let path = |name: &str| folder.join(name);
        for entry in fs::read_dir(path("cache/archives"))? {
            let package = entry?.path();
            if package.extension().is_some_and(|extension| extension == "deb") {
                run::must_succeed(Command::new("dpkg-deb").arg("-x").arg(&package).arg(system), LIMIT)?;
            }
        }
        for name in ["cache", "lists"] {
            fs::remove_dir_all(path(name)).with_context(|| path(name).display().to_string())?;
        }
        Ok(())
    }
}

/// apt's programs for a suite; by default for that of this system.
#[derive(Default)]
pub struct Apt(Vec<String>);

impl Apt {
    /// A program of apt, which may be used without root.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(self.0.iter().flat_map(|option| ["-o", option])).env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

/// Runs a command that fetches something: what this machine cannot have is missing, and no fault.
pub fn fetch(command: &mut Command) -> Result<String> {
    run::must_succeed(command, LIMIT).map_err(|why| missing(format!("{why:#}")))
}

/// A script that starts a program of the unpacked system.
fn starts(system: &Path, program: &str) -> String {
    let libraries = system.join(LIBRARIES);
    let (system, libraries) = (system.display(), libraries.display());
    format!(
        "#!/bin/sh\nexport QEMU_MODULE_DIR={libraries}/qemu\n\
         exec {libraries}/ld-linux-x86-64.so.2 --library-path {libraries} {system}/usr/bin/{program} \
         -L {system}/usr/share/qemu -L {system}/usr/share/seabios \"$@\"\n"
    )
}
