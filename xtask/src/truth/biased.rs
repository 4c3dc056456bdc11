//! `kprof-fold info` must detect a sampler that is in step with the work, and must not report one that is not.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use clap::Parser;

use super::basis::HZ;
use crate::build::Kernel;
use crate::parts::Parts;
use crate::profile;

/// The result of the aliasing check of a profile: whether it passed, and its message.
pub fn aliasing(parts: &Parts, folder: &Path) -> Result<(bool, String)> {
    let output = Command::new(&parts.fold).args(["info", "--strict"]).arg(folder.join("profiling.txt")).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = said.lines().filter_map(|line| line.strip_prefix("aliasing: ")).collect::<Vec<_>>().join("; ");
    Ok((output.status.success(), said))
}

/// Profiles with fixed and with random intervals. Both use a CPU's own timer, because under `-icount` the intervals of
/// the other triggers vary a little with the turns of the CPUs.
pub fn run(parts: &Parts, kernel: &Kernel, output: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (interval, begins) in [("random", "none found"), ("fixed", "FOUND")] {
        let folder = output.join(format!("interval-{interval}"));
        let (hz, to) = (HZ.to_string(), folder.display().to_string());
        let line = [
            "truth",
            "--repeatable",
            "--hz",
            &hz,
            "--trigger",
            "timer",
            "--interval",
            interval,
            "--workload",
            "truth",
            "-o",
            &to,
        ];
        let line = [&line[..], &["--ring-words", "4194304", "--drain-after"]].concat();
        profile::of_kernel(&profile::Line::try_parse_from(line)?.profile, parts, kernel)?;
        let (passed, said) = aliasing(parts, &folder)?;
        println!("\n{interval} intervals: {said}");
        if passed != (interval == "random") || !said.starts_with(begins) {
            wrong.push(format!("{interval} intervals: kprof-fold info --strict said: {said}"));
        }
    }
    Ok(wrong)
}
