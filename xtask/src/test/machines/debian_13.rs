//! Both commands of the README in Debian 13, as a newcomer runs them: in a clean clone, with the newest stable Rust,
//! and as a user who cannot install packages.
//!
//! In: this checkout's last commit; root, which makes the system by debootstrap and enters it. Out: the counts of
//! `cargo xtask test`, and a check that `cargo xtask profile` makes its picture. What is mounted there is gone when the
//! command has ended, because each has a mount namespace of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{LIMIT, Outcome, add, must_succeed};
use crate::archive::{Archive, fetch};
use crate::run;
use crate::tools::{self, Install, missing};

/// What the README asks for, and the packages that the commands ask for.
const PACKAGES: [&str; 11] = [
    "gcc",
    "libc6-dev",
    "ca-certificates",
    "git",
    "binutils",
    "busybox-static",
    "strace",
    "qemu-system-x86",
    "qemu-system-arm",
    "qemu-system-riscv",
    "gdb",
];
/// The user, and the folder of the clone.
const USER: &str = "newcomer";
const HOME: &str = "home/newcomer";
/// What a system needs to reach what this one reaches.
const NETWORK: [&str; 3] = ["etc/resolv.conf", "etc/hosts", "etc/ssl/certs/ca-certificates.crt"];
/// Enters the system $1 as the user $2, and runs the command $3 in the clone.
const ENTER: &str = r#"mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec chroot --userspec="$2:$2" "$1" \
    env -i HOME="/home/$2" USER="$2" PATH="/home/$2/.cargo/bin:/usr/bin:/bin" TERM=dumb sh -c "cd ~/kprof && $3""#;

/// Makes the system and runs both commands in it.
///
/// # Errors
/// If it cannot be made or entered, or a command does not come to its end.
pub fn run(install: Install, outcome: &mut Outcome) -> Result<()> {
    let archive = Archive::find(install)?;
    if !tools::is_root() {
        return Err(missing("only root can make a system by debootstrap, and enter it"));
    }
    let system = run::root().join("target/machines/debian-13");
    make(&archive, &system, install)?;
    let enter = |line: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"]).arg(&system).args([USER, line]);
        command
    };
    clone(&system)?;
    if let Err(why) = must_succeed(&mut enter("true")) {
        return Err(missing(format!("this machine does not let root enter another system: {why:#}")));
    }
    let version = must_succeed(&mut enter("rustc --version && qemu-system-x86_64 --version"))?;
    eprintln!("in Debian 13:\n{version}");
    let profile = must_succeed(&mut enter("cargo xtask profile")).and_then(|text| {
        println!("{text}");
        ensure!(text.contains(": balanced"), "the account is not balanced:\n{text}");
        let page = system.join(HOME).join("kprof/target/kprof/profile.html");
        ensure!(fs::metadata(&page)?.len() > 0, "there is no page");
        Ok(())
    });
    outcome.check("debian 13: cargo xtask profile", profile);
    add(outcome, "debian 13", run::caught(&mut enter("cargo xtask test"), LIMIT)?)
}

/// The system, its user and his Rust.
fn make(archive: &Archive, system: &Path, install: Install) -> Result<()> {
    tools::program("debootstrap", "debootstrap", install)?;
    let made = system.with_extension("made");
    if !made.is_file() {
        let _ = fs::remove_dir_all(system);
        fs::create_dir_all(system)?;
        let packages = format!("--include={}", PACKAGES.join(","));
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", &packages, "trixie"]).arg(system).arg(&archive.mirror);
        fetch(&mut debootstrap)?;
        must_succeed(Command::new("chroot").arg(system).args(["useradd", "--create-home", USER]))?;
        fs::write(&made, "")?;
    }
    for file in NETWORK.iter().filter(|file| Path::new("/").join(file).is_file()) {
        fs::copy(Path::new("/").join(file), system.join(file)).with_context(|| (*file).to_owned())?;
    }
    let rustup = system.join(HOME).join(".rustup");
    let mut newest = Command::new("rustup");
    newest.args(["toolchain", "install", "stable", "--profile", "minimal", "--no-self-update"]);
    newest.env("RUSTUP_HOME", &rustup).env_remove("RUSTUP_TOOLCHAIN");
    tools::install(&mut newest).map_err(|why| missing(format!("{why:#}")))?;
    programs_of_rustup(&system.join(HOME).join(".cargo/bin"))
}

/// rustup, and the names by which it is called.
fn programs_of_rustup(folder: &Path) -> Result<()> {
    let rustup = run::find_program("rustup").map(fs::canonicalize).context("no rustup on PATH")??;
    fs::create_dir_all(folder)?;
    run::copy_whole(&rustup, &folder.join("rustup"))?;
    for name in ["cargo", "rustc", "rustdoc", "cargo-clippy", "clippy-driver", "cargo-fmt", "rustfmt"] {
        let link: PathBuf = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink("rustup", &link)?;
        }
    }
    Ok(())
}

/// A clean clone of the last commit, which belongs to the user as everything in his home does.
fn clone(system: &Path) -> Result<()> {
    let folder = system.join(HOME).join("kprof");
    let _ = fs::remove_dir_all(&folder);
    must_succeed(Command::new("git").args(["clone", "--quiet"]).arg(run::root()).arg(&folder))?;
    let owner = format!("{USER}:{USER}");
    must_succeed(Command::new("chroot").arg(system).args(["chown", "-R", &owner]).arg(Path::new("/").join(HOME)))?;
    Ok(())
}
