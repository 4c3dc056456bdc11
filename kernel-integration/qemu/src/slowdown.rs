//! What counting costs: QEMU's time with the plugin beside its time without. Stage: measure.
//!
//! In: the same QEMU command line. Out: the processor time and the wall time of both runs, and their ratios. The
//! processor time is the one to trust on a host that does other work too.

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time that a run took.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    wall: Duration,
    processor: Duration,
}

/// Runs `run`, in which a process is started and waited for.
///
/// # Errors
/// Those of `run`.
pub fn measure<T>(run: impl FnOnce() -> Result<T>) -> Result<(T, Cost)> {
    let (start, before) = (Instant::now(), of_children()?);
    let done = run()?;
    Ok((done, Cost { wall: start.elapsed(), processor: of_children()?.saturating_sub(before) }))
}

/// The processor time of all processes that were waited for.
fn of_children() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

/// Runs QEMU without the plugin.
///
/// # Errors
/// If it cannot be run.
pub fn alone(line: &[String]) -> Result<Cost> {
    let (program, words) = line.split_first().context("the QEMU command line is missing")?;
    let run = || Command::new(program).args(words).status().with_context(|| format!("{program}: cannot run"));
    measure(run).map(|(_, cost)| cost)
}

/// Both costs, as a line.
pub fn shown(alone: &Cost, counted: &Cost) -> String {
    let of = |part: fn(&Cost) -> Duration| (part(counted).as_secs_f64(), part(alone).as_secs_f64());
    let ((processor, processor_alone), (wall, wall_alone)) = (of(|cost| cost.processor), of(|cost| cost.wall));
    format!(
        "{:.2} times the processor time of QEMU without the plugin ({processor:.2} s, {processor_alone:.2} s), {:.2} \
         times the wall time ({wall:.2} s, {wall_alone:.2} s)",
        processor / processor_alone,
        wall / wall_alone
    )
}
