//! The group `emulated`: tests of the host programs, compiled for Linux on aarch64 and riscv64, under QEMU's user
//! emulation.
//!
//! In: the packages `kprof-format`, `kprof-daemon` and `kprof-fold`; on aarch64 the port to Redox too. Out: the counts
//! of their tests. The programs are static: with musl where rustup has that target, else with glibc and Debian's cross
//! compiler. No binfmt is needed: cargo runs the tests by QEMU, and a script takes the place of each program that a
//! test starts.
//!
//! The wire language, and what is compiled for one processor only, run for both processors. The daemon and the host
//! tool have no code for a processor, so among the long groups they run for one of them, which the commit chooses.
//!
//! Not all tests run, because emulated ones take ten times as long. Left out are `kill`, which starts itself again;
//! `copies`, which counts what happens in some tenths of a second; the daemon's tests on a simulated disk, whose length
//! comes from the number of simulated crashes (`crash_points`, `two_crashes`, `events`, `nasty`); and the tests of
//! `kprof-fold` beside `golden`, which are about a host's files, limits and images, or whose code the golden cases run
//! too.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::cargo::count_tests;
use super::outcome::{Context, Outcome};
use crate::run;
use crate::toolchain::{self, Choice, Target, Toolchain};
use crate::tools;

/// A processor.
struct Processor {
    name: &'static str,
    musl: Target,
    glibc: Target,
    /// Debian's compiler, which links with glibc, and the packages that have both.
    compiler: &'static str,
    packages: [&'static str; 2],
    /// What knows the processor: the wire language with the checksums by its instructions, and code for it alone.
    each: &'static [Test],
}

/// A name, and cargo's words.
type Test = (&'static str, &'static [&'static str]);

const STD: &str = "std,panic_unwind,test";
const fn target(triple: &'static str) -> Target {
    Target { triple, build_std: STD }
}

const PROCESSORS: [Processor; 2] = [
    Processor {
        name: "aarch64",
        musl: target("aarch64-unknown-linux-musl"),
        glibc: target("aarch64-unknown-linux-gnu"),
        compiler: "aarch64-linux-gnu-gcc",
        packages: ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
        each: &[FORMAT, ("the port to Redox", &["--package", "redox-check", "--test", "own_timer"])],
    },
    Processor {
        name: "riscv64",
        musl: target("riscv64gc-unknown-linux-musl"),
        glibc: target("riscv64gc-unknown-linux-gnu"),
        compiler: "riscv64-linux-gnu-gcc",
        packages: ["gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross"],
        each: &[FORMAT],
    },
];

const FORMAT: Test =
    ("kprof-format", &["--package", "kprof-format", "--features", "fast", "--lib", "--test", "format"]);
/// What has no code for a processor.
const IN_TURN: [Test; 3] = [
    ("kprof-daemon", &["--package", "kprof-daemon", "--lib", "--bins", "--test", "daemon"]),
    ("kprof-fold", &["--package", "kprof-fold", "--lib", "--bins"]),
    ("golden cases of kprof-fold", &["--package", "kprof-fold", "--test", "all", "golden::"]),
];
/// The tests of the daemon that take long and depend on no processor. Those of signals do not run here either: with
/// QEMU's user emulation for riscv64, a recording that ignores SIGHUP did not go on after one.
const NOT_HERE: [&str; 7] =
    ["copies::", "crash_points::", "events::", "nasty::", "rounds::", "signals::", "two_crashes::"];
/// With glibc: tests of a command that does not exist. QEMU makes vfork a fork, so glibc's posix_spawn does not learn
/// from the child's memory that exec has failed.
const NEEDS_VFORK: &str = "a_command_that_cannot_run";
/// The programs that tests start.
const PROGRAMS: &str = "kprof-fold profiled kprof-record";

/// Runs the group.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let chosen: Vec<&str> = context.in_turn(&PROCESSORS)?.iter().map(|processor| processor.name).collect();
    for processor in PROCESSORS {
        let is_whole = chosen.contains(&processor.name);
        let in_turn: &[Test] = if is_whole { &IN_TURN } else { &[] };
        if let Err(why) = processor.tests(context, in_turn, &mut outcome) {
            outcome.not_passed(&format!("{}: {why:#}", processor.name), &why);
        }
        if !is_whole {
            let now = chosen.join(", ");
            outcome.skipped.push(format!("{}: daemon and host tool: this commit runs them for {now}", processor.name));
        }
    }
    Ok(outcome)
}

impl Processor {
    fn tests(&self, context: &Context, in_turn: &[Test], outcome: &mut Outcome) -> Result<()> {
        let program = format!("qemu-{}-static", self.name);
        let qemu = tools::program(&program, "qemu-user-static", context.install)?;
        let (target, linker, toolchain) = self.way(context)?;
        let folder = toolchain::target_folder(&run::root(), toolchain).join(target.triple).join("debug");
        let runner = folder.join("emulated/run");
        write_runner(&runner, &qemu, &folder)?;
        let variable = |name: &str| {
            let triple = target.triple.to_uppercase().replace('-', "_");
            format!("CARGO_TARGET_{triple}_{name}")
        };
        for (name, words) in self.each.iter().chain(in_turn) {
            let mut command = toolchain::cargo(toolchain, "test", target)?;
            command.args(["--quiet", "--no-fail-fast"]).args(*words);
            command.env(variable("LINKER"), linker).env(variable("RUNNER"), &runner);
            command.env(variable("RUSTFLAGS"), "-C target-feature=+crt-static");
            let not_here: &[&str] = if *name == "kprof-daemon" { &NOT_HERE } else { &[] };
            command.arg("--").args(not_here.iter().flat_map(|module| ["--skip", *module]));
            if target.triple == self.glibc.triple {
                command.args(["--skip", NEEDS_VFORK]);
            }
            count_tests(outcome, &format!("{name} for {}", target.triple), &mut command)?;
        }
        if target.triple == self.glibc.triple {
            let why = "QEMU's user emulation makes vfork a fork, so glibc's posix_spawn cannot tell";
            outcome.skipped.push(format!("{}: {NEEDS_VFORK}: {why}", target.triple));
        }
        Ok(())
    }

    /// The target, the linker, and the way to compile.
    fn way(&self, context: &Context) -> Result<(Target, &'static str, Toolchain)> {
        let by_rustup = |choice| toolchain::find(self.musl, choice, context.install);
        if context.toolchain != Choice::Distro {
            match by_rustup(Choice::Installed).or_else(|_| by_rustup(Choice::Rustup)) {
                Ok(toolchain) => return Ok((self.musl, "rust-lld", toolchain)),
                Err(why) => {
                    let why = format!("{why:#}");
                    eprintln!("no {}, so glibc: {}", self.musl.triple, why.lines().next().unwrap_or_default());
                }
            }
        }
        if tools::find_installed(self.compiler).is_none() {
            tools::install_packages(&self.packages, context.install)?;
        }
        Ok((self.glibc, self.compiler, toolchain::find(self.glibc, context.toolchain, context.install)?))
    }
}

/// Writes the script by which cargo runs a test. It first replaces the programs that cargo has linked, because the host
/// cannot execute them when a test does.
fn write_runner(runner: &Path, qemu: &Path, folder: &Path) -> Result<()> {
    let (qemu, folder) = (qemu.display(), folder.display());
    let text = format!(
        r#"#!/bin/sh
for program in {PROGRAMS}; do
    path='{folder}'/$program
    if [ "$(head -c 4 "$path" 2>/dev/null)" = "$(printf '\177ELF')" ]; then
        rm -f '{folder}/emulated/'$program &&
        mv "$path" '{folder}/emulated/' &&
        printf '#!/bin/sh\nexec %s %s/emulated/%s "$@"\n' '{qemu}' '{folder}' "$program" > "$path" &&
        chmod +x "$path" || exit
    fi
done
exec '{qemu}' "$@"
"#
    );
    std::fs::create_dir_all(runner.parent().context("a folder")?)?;
    std::fs::write(runner, text)?;
    Ok(std::fs::set_permissions(runner, std::fs::Permissions::from_mode(0o755))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn a_test_and_the_programs_that_it_starts_run_under_the_emulator() {
        let folder = run::root().join("target/tmp/emulated");
        // It may be missing.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let emulator = folder.join("emulator");
        fs::write(&emulator, "#!/bin/sh\necho \"emulated $@\"\n").unwrap();
        fs::set_permissions(&emulator, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.join("profiled"), b"\x7fELF of another processor").unwrap();
        let runner = folder.join("emulated/run");
        write_runner(&runner, &emulator, &folder).unwrap();
        assert_eq!(run::output(Command::new(&runner).arg("a-test")).unwrap(), "emulated a-test\n");
        let said = run::output(Command::new(folder.join("profiled")).arg("--help")).unwrap();
        assert_eq!(said, format!("emulated {}/emulated/profiled --help\n", folder.display()));
        // The second test finds the script there.
        assert_eq!(run::output(Command::new(&runner).arg("b")).unwrap(), "emulated b\n");
        assert_eq!(run::output(Command::new(folder.join("profiled")).arg("x")).unwrap().lines().count(), 1);
        // Cargo links what it has compiled anew: the same file under two names.
        fs::remove_file(folder.join("profiled")).unwrap();
        fs::hard_link(folder.join("emulated/profiled"), folder.join("profiled")).unwrap();
        assert_eq!(run::output(Command::new(&runner).arg("c")).unwrap(), "emulated c\n");
        assert_eq!(run::output(Command::new(folder.join("profiled")).arg("--help")).unwrap(), said);
    }
}
