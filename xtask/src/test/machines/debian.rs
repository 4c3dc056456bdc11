//! Both commands of the README in another release of Debian, as a newcomer runs them: in a clean clone, with the newest
//! stable Rust, and either as a user who cannot install packages, or as root with little more than Rust and a linker.
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

/// A newcomer's system.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// The suite of Debian's archive.
    pub suite: &'static str,
    /// Who types the commands there.
    pub user: User,
}

/// Who types the commands.
#[derive(Clone, Copy, Debug)]
pub enum User {
    /// Root, who has what the README asks for. The commands install the rest.
    Root,
    /// A user who cannot install packages. Those that the commands name are there.
    Newcomer,
}

impl User {
    fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Newcomer => "newcomer",
        }
    }

    fn home(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Newcomer => "home/newcomer",
        }
    }

    fn packages(self) -> String {
        match self {
            Self::Root => README_ASKS_FOR.join(","),
            Self::Newcomer => [&README_ASKS_FOR[..], &COMMANDS_ASK_FOR[..]].concat().join(","),
        }
    }
}

/// What the README asks for, and what a clone needs.
const README_ASKS_FOR: [&str; 4] = ["gcc", "libc6-dev", "ca-certificates", "git"];
/// The packages that the commands ask for.
const COMMANDS_ASK_FOR: [&str; 7] =
    ["binutils", "busybox-static", "strace", "qemu-system-x86", "qemu-system-arm", "qemu-system-riscv", "gdb"];
/// What a system needs to reach what this one reaches.
const NETWORK: [&str; 3] = ["etc/resolv.conf", "etc/hosts", "etc/ssl/certs/ca-certificates.crt"];
/// Enters the system $1 as the user $2, whose home is $3, and runs the command $4 in the clone.
const ENTER: &str = r#"mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec chroot --userspec="$2:$2" "$1" \
    env -i HOME="/$3" USER="$2" PATH="/$3/.cargo/bin:/usr/sbin:/usr/bin:/sbin:/bin" TERM=dumb sh -c "cd ~/kprof && $4""#;

/// Makes the system and runs both commands in it. `name` is what the tests call it.
///
/// # Errors
/// If it cannot be made or entered, or a command does not come to its end.
pub fn run(name: &str, system: System, install: Install, outcome: &mut Outcome) -> Result<()> {
    let System { suite, user } = system;
    let archive = Archive::find(install)?;
    if !tools::is_root() {
        return Err(missing("only root can make a system by debootstrap, and enter it"));
    }
    let system = run::root().join("target/machines").join(suite);
    make(&archive, suite, user, &system, install)?;
    let enter = |line: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"]).arg(&system);
        command.args([user.name(), user.home(), line]);
        command
    };
    clone(&system, user)?;
    if let Err(why) = must_succeed(&mut enter("true")) {
        return Err(missing(format!("this machine does not let root enter another system: {why:#}")));
    }
    let profile = must_succeed(&mut enter("cargo xtask profile")).and_then(|text| {
        println!("{text}");
        ensure!(text.contains(": balanced"), "the account is not balanced:\n{text}");
        let page = system.join(user.home()).join("kprof/target/kprof/profile.html");
        ensure!(fs::metadata(&page)?.len() > 0, "there is no page");
        Ok(())
    });
    outcome.check(&format!("{name}: cargo xtask profile"), profile);
    // Root has QEMU only now: the command has installed it.
    let version = must_succeed(&mut enter("rustc --version && qemu-system-x86_64 --version"))?;
    eprintln!("{name}, as {}:\n{version}", user.name());
    add(outcome, name, run::caught(&mut enter("cargo xtask test"), LIMIT)?)
}

/// The system, its user and his Rust.
fn make(archive: &Archive, suite: &str, user: User, system: &Path, install: Install) -> Result<()> {
    tools::program("debootstrap", "debootstrap", install)?;
    let made = system.with_extension("made");
    if !made.is_file() {
        let _ = fs::remove_dir_all(system);
        fs::create_dir_all(system)?;
        let packages = format!("--include={}", user.packages());
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", &packages, suite]).arg(system).arg(&archive.mirror);
        fetch(&mut debootstrap)?;
        if let User::Newcomer = user {
            must_succeed(Command::new("chroot").arg(system).args(["useradd", "--create-home", user.name()]))?;
        }
        fs::write(&made, "")?;
    }
    for file in NETWORK.iter().filter(|file| Path::new("/").join(file).is_file()) {
        fs::copy(Path::new("/").join(file), system.join(file)).with_context(|| (*file).to_owned())?;
    }
    let rustup = system.join(user.home()).join(".rustup");
    let mut newest = Command::new("rustup");
    newest.args(["toolchain", "install", "stable", "--profile", "minimal", "--no-self-update"]);
    newest.env("RUSTUP_HOME", &rustup).env_remove("RUSTUP_TOOLCHAIN");
    tools::install(&mut newest).map_err(|why| missing(format!("{why:#}")))?;
    programs_of_rustup(&system.join(user.home()).join(".cargo/bin"))
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
fn clone(system: &Path, user: User) -> Result<()> {
    let folder = system.join(user.home()).join("kprof");
    let _ = fs::remove_dir_all(&folder);
    must_succeed(Command::new("git").args(["clone", "--quiet"]).arg(run::root()).arg(&folder))?;
    let (owner, home) = (format!("{0}:{0}", user.name()), Path::new("/").join(user.home()));
    must_succeed(Command::new("chroot").arg(system).args(["chown", "-R", &owner]).arg(home))?;
    Ok(())
}
