//! The group `toolchains`: the test kernel in every way that this machine can build it, and the bare kernel by a
//! nightly toolchain, each booted.
//!
//! In: the toolchains that can be had. Out: a check for each.

use anyhow::Result;
use clap::ValueEnum as _;

use super::outcome::{Context, Outcome};
use super::{integration, scenario};
use crate::toolchain::{self, Choice};
use crate::{build, run};

/// Builds the kernel in every way that this machine can, and boots each; the bare kernel by a nightly toolchain too.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let install = context.install;
    let parts = context.parts()?;
    for choice in [Choice::Installed, Choice::Rustup, Choice::Distro] {
        let name = choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let trigger = match toolchain::find(toolchain::KERNEL, choice, install) {
            Ok(trigger) => trigger,
            Err(error) => {
                outcome.skipped.push(format!("{name}: {error:#}"));
                continue;
            }
        };
        let folder = run::root().join("target/scenarios").join(format!("toolchain-{name}"));
        let result = build::kernel(trigger, "profiling", &[])
            .and_then(|kernel| scenario::one("boot", parts, &kernel, &folder, ""))
            .map(drop);
        outcome.check(&name, result);
    }
    integration::by_nightly(context, &mut outcome)?;
    Ok(outcome)
}
