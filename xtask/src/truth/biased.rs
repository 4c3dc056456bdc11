//! A sampler that goes in step with the work must be noticed by `kprof-fold info`, an honest one must not.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use clap::Parser;

use super::HZ;
use crate::build::Kernel;
use crate::parts::Parts;
use crate::profile;

/// What the check says of a profile, and whether that is no alarm.
pub fn aliasing(parts: &Parts, folder: &Path) -> Result<(bool, String)> {
    let output = Command::new(&parts.fold).args(["info", "--strict"]).arg(folder.join("profiling.txt")).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = said.lines().filter_map(|line| line.strip_prefix("aliasing: ")).collect::<Vec<_>>().join("; ");
    Ok((output.status.success(), said))
}

/// Fixed gaps (of a CPU's own timer: the turns that CPUs take make all others vary a little), and the same with random
/// ones.
pub fn run(parts: &Parts, kernel: &Kernel, output: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (gaps, begins) in [("random", "none found"), ("fixed", "FOUND")] {
        let folder = output.join(format!("gaps-{gaps}"));
        let (hz, to) = (HZ.to_string(), folder.display().to_string());
        let line =
            ["truth", "--repeatable", "--hz", &hz, "--way", "self", "--gaps", gaps, "--workload", "truth", "-o", &to];
        let line = [&line[..], &["--ring-words", "4194304", "--drain-after"]].concat();
        profile::of_kernel(&profile::Line::try_parse_from(line)?.profile, parts, kernel)?;
        let (passed, said) = aliasing(parts, &folder)?;
        println!("\n{gaps} gaps: {said}");
        if passed != (gaps == "random") || !said.starts_with(begins) {
            wrong.push(format!("{gaps} gaps: kprof-fold info --strict said: {said}"));
        }
    }
    Ok(wrong)
}
