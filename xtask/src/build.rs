//! Building what a run needs: kernel, daemon, programs of the test kernel, host tool.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::run;
use crate::toolchain::{self, KERNEL, Target, Toolchain};

/// The time limit of a build whose output is kept for its error.
const BARE_LIMIT: Duration = Duration::from_secs(900);

/// A kernel that was built.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The ELF file.
    pub elf: PathBuf,
    /// What `nm -CS` prints of it.
    pub symbols: String,
}

fn cargo_build(mut command: Command, what: &str) -> Result<()> {
    eprintln!("building {what}");
    // Cargo shows its own progress on a terminal.
    let status = command.status()?;
    if !status.success() {
        bail!("building {what} failed: {command:?}");
    }
    Ok(())
}

/// Builds the test kernel. `features` is what cargo takes after `--features`, `flags` are further flags for rustc.
///
/// # Errors
/// If it does not build.
pub fn kernel(toolchain: Toolchain, features: &str, flags: &[&str]) -> Result<Kernel> {
    kernel_in(&run::root(), toolchain, features, flags)
}

/// Builds the test kernel from another checkout. The same source gives the same file in every folder, because no path
/// of the machine is in it.
///
/// # Errors
/// If it does not build.
pub fn kernel_in(tree: &Path, toolchain: Toolchain, features: &str, flags: &[&str]) -> Result<Kernel> {
    kernel_with(tree, toolchain, features, flags, false)
}

/// Builds the test kernel with these flags for rustc, and none of `.cargo/config.toml`: what that asks for cannot be
/// taken back by a later flag.
///
/// # Errors
/// If it does not build.
pub fn kernel_only_with(toolchain: Toolchain, features: &str, flags: &[&str]) -> Result<Kernel> {
    kernel_with(&run::root(), toolchain, features, flags, true)
}

/// The flags of `.cargo/config.toml`, without frame pointers and with the description that tables are made from.
const WITHOUT_FRAME_POINTERS: [&str; 4] = [
    "-Crelocation-model=static",
    "-Cforce-frame-pointers=no",
    "-Cforce-unwind-tables=yes",
    "-Clink-arg=--build-id=sha1",
];

/// Builds the test kernel without frame pointers, and writes the unwind table by which it samples itself into its file
/// (docs/no-frame-pointers.md). `fold` is the host tool.
///
/// # Errors
/// If it does not build, or no table can be made.
pub fn kernel_with_table(toolchain: Toolchain, fold: &Path) -> Result<Kernel> {
    let Kernel { elf, symbols } = kernel_only_with(toolchain, "tables", &WITHOUT_FRAME_POINTERS)?;
    let (table, filled) = (elf.with_extension("table"), elf.with_extension("filled"));
    run::output(Command::new(fold).arg("tables").arg(&elf).arg("-o").arg(&table))?;
    let section = format!(".kprof.unwind={}", table.display());
    run::output(Command::new("objcopy").args(["--update-section", &section]).arg(&elf).arg(&filled))?;
    Ok(Kernel { elf: filled, symbols })
}

fn kernel_with(
    tree: &Path,
    toolchain: Toolchain,
    features: &str,
    flags: &[&str],
    has_no_others: bool,
) -> Result<Kernel> {
    let mut command = toolchain::cargo(toolchain, "build", toolchain::KERNEL)?;
    command.current_dir(tree).args(["--quiet", "--release", "--package", "test-kernel", "--features", features]);
    // A kernel with other flags gets a target folder of its own. In one folder, each build would make cargo compile the
    // other kernel again.
    let mut folder = toolchain::target_folder(tree, toolchain);
    if !flags.is_empty() {
        folder = tree.join("target").join(flags.join("-").replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
    }
    command.arg("--target-dir").arg(&folder);
    // With this option, arithmetic that can panic in a debug build can panic in this kernel too. So the sweep finds it
    // when it looks for panics that can be reached from the NMI.
    command.args(["--config", "profile.release.package.kprof.overflow-checks=true"]);
    let mut list = toolchain::without_paths(toolchain, tree)?;
    list.extend(flags.iter().map(|flag| (*flag).to_owned()));
    if has_no_others {
        command.env("CARGO_ENCODED_RUSTFLAGS", list.join("\x1f"));
    } else {
        let list: Vec<String> = list.iter().map(|flag| format!("{flag:?}")).collect();
        command.arg("--config").arg(format!("target.{}.rustflags=[{}]", toolchain::KERNEL.triple, list.join(",")));
    }
    // Cargo writes kernels with different features to the same path, so one process at a time builds one and copies it.
    let alone = run::lock(&folder.join("test-kernel.lock"))?;
    cargo_build(
        command,
        &format!("the test kernel (features: {})", if features.is_empty() { "none" } else { features }),
    )?;
    let elf = folder.join(toolchain::KERNEL.triple).join("release/test-kernel");
    let kept = folder.join(if features.is_empty() {
        "test-kernel-plain".to_owned()
    } else {
        format!("test-kernel-{features}")
    });
    // A machine may be booting the old file, so the file is replaced as a whole.
    run::copy_whole(&elf, &kept)?;
    drop(alone);
    let symbols = symbols_of(&kept)?;
    Ok(Kernel { elf: kept, symbols })
}

/// Builds the code that the test kernel loads at run time.
///
/// # Errors
/// If it does not build.
pub fn module(toolchain: Toolchain) -> Result<PathBuf> {
    let mut command = toolchain::cargo(toolchain, "build", toolchain::KERNEL)?;
    command.args(["--quiet", "--release", "--package", "test-module"]);
    cargo_build(command, "the test kernel's module")?;
    let folder = toolchain::target_folder(&run::root(), toolchain);
    Ok(folder.join(toolchain::KERNEL.triple).join("release/test-module"))
}

/// What `nm -CS` prints of an ELF file.
///
/// # Errors
/// If nm cannot read it.
pub fn symbols_of(elf: &Path) -> Result<String> {
    let nm = if run::find_program("nm").is_some() { "nm" } else { "llvm-nm" };
    run::output(Command::new(nm).args(["-C", "-S"]).arg(elf))
}

/// Builds the binaries of `package` as static Linux programs and gives the folder that they are in. They have their
/// symbols but no line tables, because they are in every initrd and the tables are most of a file.
///
/// # Errors
/// If they do not build, for musl or for glibc.
pub fn static_programs(toolchain: Option<Toolchain>, package: &str) -> Result<PathBuf> {
    if let Some(toolchain @ Toolchain::Toolchain) = toolchain {
        let mut command = toolchain::cargo(toolchain, "build", toolchain::MUSL)?;
        command.args(["--quiet", "--release", "--bins", "--package", package]);
        command.env("CARGO_ENCODED_RUSTFLAGS", toolchain::without_paths(toolchain, &run::root())?.join("\x1f"));
        command.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
        cargo_build(command, &format!("{package} (static, musl)"))?;
        return Ok(run::root().join("target").join(toolchain::MUSL.triple).join("release"));
    }
    let target = Target { triple: "x86_64-unknown-linux-gnu", build_std: "" };
    let mut command = toolchain::cargo(Toolchain::Toolchain, "build", target)?;
    command.args(["--quiet", "--release", "--bins", "--package", package]);
    let mut flags = toolchain::without_paths(Toolchain::Toolchain, &run::root())?;
    flags.extend(["-C".to_owned(), "target-feature=+crt-static".to_owned()]);
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    command.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    cargo_build(command, &format!("{package} (static, glibc)"))?;
    Ok(run::root().join("target").join(target.triple).join("release"))
}

/// The packages that are compiled for the host.
#[rustfmt::skip]
pub const HOST: [&str; 11] = [
    "--workspace", "--exclude", "test-kernel", "--exclude", "test-module", "--exclude", "bare",
    "--exclude", "bare-virt", "--exclude", "guests",
];
/// Excludes `kprof` and `kprof-events` too: their tests need other features than what other packages enable.
pub const HOST_TESTS: [&str; 4] = ["--exclude", "kprof", "--exclude", "kprof-events"];
/// These two, with everything that is compiled into a kernel.
pub const IN_KERNEL: [&str; 6] =
    ["--package", "kprof", "--package", "kprof-events", "--features", "profiling,kprof-events/locks"];

/// Builds a program for the host, and gives its file. It is not optimized: for what the tests do with it, that would
/// take longer than it saves. It is the same file that the host tests use, so it is compiled once: cargo compiles a
/// program again if other packages are selected, so this selects the same ones, and one of the program's tests.
///
/// # Errors
/// If it does not build.
pub fn tool(program: &str) -> Result<PathBuf> {
    let test = match program {
        "kprof-fold" => "all",
        "kprof-qemu" => "qemu",
        "profiled" | "kprof-record" => "daemon",
        _ => bail!("no test is known that needs {program}"),
    };
    let words = [&["test", "--no-run", "--quiet"][..], &HOST, &HOST_TESTS, &["--test", test]].concat();
    // A group that runs with another Rust must not replace the programs that the tests of other groups run meanwhile.
    let (folder, kept) = if toolchain::is_another() { ("target/pinned", "bin-pinned") } else { ("target", "bin") };
    built(program, &words, &run::root().join(folder), kept)
}

/// Runs cargo, and gives a copy of the program that no later build takes away.
fn built(program: &str, words: &[&str], folder: &Path, kept: &str) -> Result<PathBuf> {
    let tools = run::root().join("target/tools");
    let kept = tools.join(kept);
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).arg("--target-dir").arg(folder).current_dir(run::root());
    let alone = run::lock(&tools.join("tools.lock"))?;
    cargo_build(command, program)?;
    std::fs::create_dir_all(&kept)?;
    let kept = kept.join(program);
    run::copy_whole(&folder.join("debug").join(program), &kept)?;
    drop(alone);
    Ok(kept)
}

/// Builds a package for the host, optimized and with these cargo features, and gives the folder that its binaries are
/// in.
///
/// # Errors
/// If it does not build.
pub fn host(package: &str, features: &str) -> Result<PathBuf> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet", "--release", "--package", package, "--features", features]);
    command.current_dir(run::root());
    cargo_build(command, package)?;
    Ok(run::root().join("target/release"))
}

/// Builds the bare kernel with a cargo command that only lacks the package, and gives its ELF file.
///
/// # Errors
/// If it does not build.
pub fn bare(mut command: Command, target: PathBuf) -> Result<PathBuf> {
    command.args(["--quiet", "--release", "--package", "bare"]);
    run::must_succeed(&mut command, BARE_LIMIT)?;
    Ok(target.join(KERNEL.triple).join("release/bare"))
}
