//! `kprof-qemu record` with user code: of one and the same run, the kernel's samples alone, those of user code alone,
//! and both. The first two together are the third, sample by sample, and the account of each one counts what it leaves
//! out.
//!
//! In: a test kernel that runs one program. Out: an error if a sample is missing, is in both, or is not counted.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::Outside;
use crate::parts::Parts;
use crate::qemu::Accel;
use crate::{build, run, yardstick};

/// Init of a test kernel: user code that asks the kernel for a file's bytes.
const SCRIPT: &str = "#!/bin/busybox sh\n/bin/busybox sha256sum /bin/busybox\necho success > /kernel/exit\n";
/// The kernel's command line: nothing that the host decides, so that each run is the same (docs/repeatable.md).
const ALONE: &str = "accel=icount share=late random-seed=1 boot-id=1";
/// Executed instructions between two samples.
const EVERY: &str = "50000";

/// What a profile has.
#[derive(Debug)]
struct Recorded {
    /// Its lines of samples.
    samples: Vec<String>,
    /// Ticks in user code and in the kernel that are only counted.
    filtered: [u64; 2],
}

/// Runs the check.
pub fn check(outside: &Outside, parts: &Parts) -> Result<()> {
    let kernel = build::kernel(parts.toolchain, "profiling", &[])?;
    let record = |name: &str, option: &[&str]| -> Result<Recorded> {
        let (tool, profile) = (outside.tool.display().to_string(), outside.file(&format!("{name}.txt")));
        let to = profile.display().to_string();
        let words = [&[&tool[..], "record", "--every", EVERY, "-o", &to], option, &["--"]].concat();
        let runner = words.into_iter().map(str::to_owned).collect();
        yardstick::boot(parts, &kernel.elf, &outside.file(name), (SCRIPT, Accel::Icount), ALONE, runner)?;
        let mut report = run::bound(&outside.fold);
        let said = run::output(report.args(["report", "--user", "--strict"]).arg(&profile).arg(&kernel.elf))?;
        ensure!(said.trim_end().ends_with(": balanced"), "{name}: {said}");
        recorded(&fs::read_to_string(&profile)?).with_context(|| name.to_owned())
    };
    let [kernel, user, both] = [("code-kernel", &[][..]), ("code-user", &["--user-only"]), ("code-both", &["--user"])]
        .map(|(name, option)| record(name, option));
    let (kernel, user, both) = (kernel?, user?, both?);
    let [in_kernel, in_user] = [&kernel, &user].map(|recorded| recorded.samples.len() as u64);
    eprintln!("{in_kernel} samples of the kernel, {in_user} of user code, {} of both", both.samples.len());
    ensure!(in_kernel > 100 && in_user > 100, "too few samples: {in_kernel} and {in_user}");
    ensure!(kernel.filtered == [in_user, 0], "the kernel's profile leaves out {:?}", kernel.filtered);
    ensure!(user.filtered == [0, in_kernel], "the profile of user code leaves out {:?}", user.filtered);
    ensure!(both.filtered == [0, 0], "the profile of both leaves out {:?}", both.filtered);
    let mut all = [kernel.samples, user.samples].concat();
    let mut both = both.samples;
    all.sort_unstable();
    both.sort_unstable();
    ensure!(all == both, "the samples of the two profiles are not those of both");
    Ok(())
}

fn recorded(text: &str) -> Result<Recorded> {
    let account = text.lines().find(|line| line.starts_with("# account cpu=0 ")).context("no account")?;
    let counter = |name: &str| {
        let value = account.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.with_context(|| format!("{name} is not in {account}"))?.parse::<u64>().map_err(anyhow::Error::from)
    };
    let samples = text.lines().filter(|line| line.starts_with("guest ")).map(str::to_owned).collect();
    Ok(Recorded { samples, filtered: [counter("user")?, counter("kernel")?] })
}
