//! The slowdown of the default workload by events. In: the test kernel, under `-icount`. Out: a line per goal.
//!
//! Each run with events has a run without them before and after it. Time is counted instructions, of the one CPU that
//! works and of the sampler, which does nothing meanwhile.

use anyhow::{Context as _, Result, ensure};

use super::{Goals, machine};
use crate::build::Kernel;
use crate::parts::Parts;
use crate::qemu::Accel;

/// Measures and judges the slowdown.
pub fn by_events(goals: &mut Goals, parts: &Parts, on: &Kernel) -> Result<()> {
    let run = machine::run(parts, on, "events-slowdown", Accel::Icount, 2, "event-ring-words=1048576")?;
    let text = std::fs::read_to_string(run.share.join("slowdown.txt"))?;
    let times: Vec<(&str, f64)> = text
        .lines()
        .map(|line| {
            let (state, time) = line.split_once(' ').with_context(|| text.clone())?;
            Ok((state, time.parse()?))
        })
        .collect::<Result<_>>()?;
    let slower = |state: &str| -> Result<f64> {
        let at = times.iter().position(|(name, _)| *name == state).with_context(|| text.clone())?;
        let Some([(before, without), (_, with), (after, later)]) = times.get(at - 1..at + 2) else {
            anyhow::bail!("{state} has no run before and after it:\n{text}");
        };
        ensure!([*before, *after] == ["off"; 2], "{state} has no run without events before and after it:\n{text}");
        Ok(2.0 * with / (without + later) - 1.0)
    };
    goals.at_most("the default workload with one allocation sampled per 64 KiB: slower by", slower("heap")?, 0.02);
    goals.at_most("the default workload with all points counted: slower by", slower("counted")?, 0.03);
    println!("       with all hits recorded: {:.3} slower", slower("recorded")?);
    Ok(())
}
