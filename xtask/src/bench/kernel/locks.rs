//! Locks: what the profiler adds to one that nobody waits for. In: the test kernel, under `-icount`. Out: a line per
//! goal.

use anyhow::{Context as _, Result};

use super::{Goals, machine};
use crate::build::Kernel;
use crate::parts::Parts;
use crate::qemu::Accel;

/// The instructions of taking and releasing a lock, beside those of the inner one.
pub fn cost(goals: &mut Goals, parts: &Parts, on: &Kernel) -> Result<()> {
    let log = machine::run(parts, on, "lock-cost", Accel::Icount, 2, "")?.log;
    let states = [
        ("off", "off", 2.0),
        ("record", "recorded if somebody waits", 2.0),
        // Builds of the same code have shown 2 and 3.
        ("try, off", "taken by an attempt", 3.0),
        ("try, record", "taken by an attempt, failed ones recorded", 3.0),
        // It gets a frame of its own. Builds and runs of the same code have shown 4 to 6.
        ("leaf, off", "in a function that calls nothing", 6.0),
    ];
    for (state, shown, limit) in states {
        let line = log.lines().find_map(|line| line.split_once("lock: ")?.1.strip_prefix(state)?.strip_prefix(", "));
        let count = line.and_then(|line| line.strip_suffix(" instructions more")).with_context(|| log.clone())?;
        goals.at_most(&format!("a lock that nobody waits for, {shown}: instructions more"), count.parse()?, limit);
    }
    Ok(())
}
