//! The cost of a dynamic probe. In: the test kernel, under `-icount`. Out: a line per goal.
//!
//! A call of a function with a probe has two breakpoint exceptions, one when it begins and one when it ends. The kernel
//! prints the instructions of a call more than without a probe, in each state.

use anyhow::{Result, ensure};

use super::{Goals, machine, overhead};
use crate::build::Kernel;
use crate::parts::Parts;
use crate::qemu::Accel;

/// The instructions of the exception itself: the `int3`, 31 of the entry stub up to the call of the Rust function, two
/// after it, and 18 on the way back (`breakpoint_entry` and `trap_return` in `test-kernel/src/cpu/entry.rs`).
const EXCEPTION: f64 = 52.0;
/// The most instructions of a counted hit besides.
const COUNTED: f64 = 150.0;
/// A recorded call has one record, with a stack of sixteen frames.
const RECORDED: f64 = 400.0;

/// Measures and judges.
///
/// # Errors
/// If the machine does not end well, or a record has another stack.
pub fn cost(goals: &mut Goals, parts: &Parts, on: &Kernel) -> Result<()> {
    let ran = machine::run(parts, on, "probe-cost", Accel::Icount, 2, "event-ring-words=262144")?;
    ran.passed()?;
    let log = ran.log;
    ensure!(!log.contains("the last record has"), "a record does not have sixteen frames:\n{log}");
    let call = |state: &str| overhead::cost(&log, "probe", state);
    let (off, counted, recorded) = (call("off")?, call("count")?, call("record")?);
    println!("       a call of a function with a probe, off: {off:.0} instructions, counted {counted:.0}");
    goals.at_most("a call of a function whose probe was removed: instructions", call("not planted")?, 0.0);
    goals.at_most("a counted hit of a probe, beside the exception: instructions", counted / 2.0 - EXCEPTION, COUNTED);
    goals.at_most("a recorded call beside a counted one: instructions", recorded - counted, RECORDED);
    Ok(())
}
