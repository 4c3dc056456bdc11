//! The slowdown of the default workload by events. In: the test kernel, under `-icount`. Out: a line per goal.
//!
//! Each run with events has a run without them before and after it. Time is counted instructions, of the one CPU that
//! works and of the sampler, which does nothing meanwhile.

use anyhow::{Context as _, Result, bail, ensure};

use super::{Goals, machine};
use crate::build::Kernel;
use crate::parts::Parts;
use crate::qemu::Accel;

/// Enough for every record of the default workload with all points, in words: 512 MiB.
pub const RING_WORDS: u32 = 1 << 26;

/// Measures and judges the slowdown.
pub fn by_events(goals: &mut Goals, parts: &Parts, on: &Kernel) -> Result<()> {
    let append = format!("event-ring-words={RING_WORDS}");
    let run = machine::run(parts, on, "events-slowdown", Accel::Icount, 2, &append)?;
    let text = std::fs::read_to_string(run.share.join("slowdown.txt"))?;
    let times = times(&text)?;
    let slower = |state: &str| slower(&times, state);
    goals.at_most("the default workload with one allocation sampled per 64 KiB: slower by", slower("heap")?, 0.02);
    goals.at_most("the default workload with all points counted: slower by", slower("counted")?, 0.03);
    println!("       with all hits recorded: {:.3} slower", slower("recorded")?);
    Ok(())
}

/// The runs, in order: lines of the scenario with a state and the time with it.
///
/// # Errors
/// If the text has other lines.
pub fn times(text: &str) -> Result<Vec<(&str, f64)>> {
    let line = |line| -> Result<_> {
        let (state, time) = str::split_once(line, ' ').with_context(|| text.to_owned())?;
        Ok((state, time.parse()?))
    };
    text.lines().map(line).collect()
}

/// By what part of the time the run in `state` is slower than those before and after it.
///
/// # Errors
/// If there is no such run, or the runs beside it are not without events.
pub fn slower(times: &[(&str, f64)], state: &str) -> Result<f64> {
    let at = times.iter().position(|(name, _)| *name == state).with_context(|| format!("{times:?}"))?;
    let Some([(before, without), (_, with), (after, later)]) = times.get(at.wrapping_sub(1)..at + 2) else {
        bail!("{state} has no run before and after it: {times:?}");
    };
    ensure!([*before, *after] == ["off"; 2], "{state} has no run without events before and after it: {times:?}");
    Ok(2.0 * with / (without + later) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_compared_with_the_mean_of_those_beside_it() {
        let runs = times("off 90\ncounted 105\noff 110\nrecorded 130\n").unwrap();
        assert!((slower(&runs, "counted").unwrap() - 0.05).abs() < 1e-9);
        assert!(slower(&runs, "recorded").is_err());
        assert!(slower(&runs, "heap").is_err());
    }
}
