//! `cargo xtask outside`: samples any kernel in QEMU, without installing anything.
//!
//! In: a QEMU command line. Out: what `kprof-qemu record` writes: the profile, its report, and a page. The kernel's
//! file is the one that the command line boots. The exit code is that of `kprof-qemu record`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::tools::Install;
use crate::{build, qemu, run};

/// An ELF file begins with these bytes.
const ELF: &[u8] = b"\x7fELF";

/// Samples any kernel in QEMU from outside, and draws a page: from this clone, without an installation.
#[derive(Args)]
#[command(after_help = "Example:
  cargo xtask outside -- qemu-system-x86_64 -kernel kernel.elf -smp 4 -nographic

The exit code is that of kprof-qemu record: QEMU's, or 2.")]
pub struct Arguments {
    /// The kernel's ELF file [default: the file after -kernel, if it is one]
    #[arg(long, value_name = "ELF")]
    kernel: Option<PathBuf>,
    /// The profile; the page is FILE.html
    #[arg(short, long, value_name = "FILE", default_value = "profiling.txt")]
    output: PathBuf,
    /// Installs nothing: says what is missing instead
    #[arg(long)]
    no_install: bool,
    /// The QEMU command line
    #[arg(last = true, required = true, value_name = "QEMU")]
    line: Vec<String>,
}

/// Runs the verb.
///
/// # Errors
/// If the tool does not build or cannot be run, or QEMU is missing.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (program, words) = arguments.line.split_first().context("the QEMU command line is missing")?;
    let program = match program.strip_prefix("qemu-system-") {
        Some(processor) => qemu::program(processor, Install(!arguments.no_install))?,
        None => PathBuf::from(program),
    };
    let tool = build::host("kprof-qemu", "")?.join("kprof-qemu");
    let mut record = run::bound(&tool);
    record.args(["record", "-o"]).arg(&arguments.output);
    if let Some(kernel) = arguments.kernel.clone().or_else(|| booted(words)) {
        record.arg("--kernel").arg(kernel);
    }
    let status = status(record.arg("--").arg(program).args(words))?;
    Ok(ExitCode::from(status))
}

/// Runs the command to its end: its exit code.
fn status(command: &mut Command) -> Result<u8> {
    let status = command.status().with_context(|| format!("{:?} cannot be run", command.get_program()))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// The kernel's file on the command line, if it is an ELF file.
fn booted(words: &[String]) -> Option<PathBuf> {
    let at = words.iter().position(|word| word == "-kernel")?;
    words.get(at + 1).map(PathBuf::from).filter(|file| is_elf(file))
}

fn is_elf(file: &Path) -> bool {
    std::fs::read(file).is_ok_and(|bytes| bytes.starts_with(ELF))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_the_elf_file_that_the_command_line_boots() {
        let folder = std::env::temp_dir().join(format!("kprof-outside-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let file = folder.join(name);
            std::fs::write(&file, bytes).unwrap();
            file.display().to_string()
        };
        let (elf, image) = (file("kernel.elf", b"\x7fELF\x02"), file("bzImage", b"MZ"));
        let booted = |words: &[&str]| booted(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(booted(&["-smp", "2", "-kernel", &elf, "-nographic"]), Some(PathBuf::from(&elf)));
        assert_eq!(booted(&["-kernel", &image]), None);
        assert_eq!(booted(&["-kernel"]), None);
        assert_eq!(booted(&["-cdrom", &elf]), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
