//! The kernel's heap: what the profiler adds to an allocation and to a free. In: the test kernel, under `-icount`. Out:
//! a line per goal.

use anyhow::{Context as _, Result};

use super::{Goals, machine};
use crate::build::Kernel;
use crate::parts::Parts;
use crate::qemu::Accel;

/// The instructions beside those of the inner allocator.
pub fn cost(goals: &mut Goals, parts: &Parts, on: &Kernel) -> Result<()> {
    let log = machine::run(parts, on, "heap-cost", Accel::Icount, 2, "event-ring-words=1048576")?.log;
    let more = |what: &str| -> Result<[f64; 2]> {
        let line = log.lines().find_map(|line| line.split_once("heap: ")?.1.strip_prefix(what)?.strip_prefix(", "));
        let (allocation, free) = line
            .and_then(|line| line.split_once(" instructions more for an allocation, "))
            .with_context(|| log.clone())?;
        let free = free.strip_suffix(" for a free").with_context(|| log.clone())?;
        Ok([allocation.parse()?, free.parse()?])
    };
    for what in ["counted", "not sampled"] {
        let [allocation, free] = more(what)?;
        goals.at_most(&format!("an allocation, {what}: instructions more"), allocation, 12.0);
        goals.at_most(&format!("a free, {what}: instructions more"), free, 12.0);
    }
    for what in ["off", "recorded"] {
        let [allocation, free] = more(what)?;
        println!("       {what}: {allocation:.1} instructions more for an allocation, {free:.1} for a free");
    }
    Ok(())
}
