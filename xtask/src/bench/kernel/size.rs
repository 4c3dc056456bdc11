//! The code that the profiler adds to the bare kernel: by how many bytes its text is larger than that of the same
//! kernel with the feature off. In: nothing. Out: a line per goal. A part of kprof that a kernel does not call is not
//! in its image, so each build below calls more parts than the one before.

use anyhow::Result;

use super::Goals;
use crate::build;
use crate::run;
use crate::test::feature_off::text_bytes;
use crate::toolchain::{self, Choice, KERNEL};
use crate::tools::Install;

/// What a build calls, its cargo features, and the most bytes of text that it may add.
const BUILDS: [(&str, &str, f64); 3] = [
    ("sampling alone", "profiling", 49_000.0),
    ("with the serial export", "export", 72_000.0),
    ("with ctl, heap, probes and lockups", "export,heap,lockup,probes", 205_000.0),
];

/// Builds the bare kernel with each part.
pub fn text(goals: &mut Goals, install: Install) -> Result<()> {
    let toolchain = toolchain::find(KERNEL, Choice::Auto, install)?;
    let target = toolchain::target_folder(&run::root(), toolchain);
    let bytes = |features: &str| {
        let mut command = toolchain::cargo(toolchain, "build", KERNEL)?;
        command.args(["--no-default-features", "--features", features]);
        let elf = build::bare(command, target.clone())?;
        text_bytes(&build::symbols_of(&elf)?, ["text_start", "text_end"])
    };
    let off = bytes("")?;
    for (what, features, most) in BUILDS {
        let more = bytes(features)?.saturating_sub(off);
        goals.at_most(
            &format!("the bare kernel, {what}: bytes of text more than with the feature off"),
            more as f64,
            most,
        );
    }
    Ok(())
}
