//! Dynamic probes: calls of any function of the running kernel are counted, timed and recorded, without a new build.
//!
//! In: the ctl commands `probe` and `unprobe`; the kernel's breakpoint exceptions. Out: hits of a point for each
//! function, named by its address: one hit for each call, when the call ends, weighted with its time. Runs in: `plant`
//! in ordinary code, under the writer's lock; `hit` in the breakpoint handler, with interrupts off, never in an NMI.
//!
//! ```text
//! plant: int3 in place of `push rbp`, `ret` and tail `jmp` ─► hit: places ─► calls (when it began) ─► point
//!                                                                └► emulates the instruction that int3 replaces
//! ```
//!
//! A CPU may have executed an `int3` that was removed before its handler looks for the place. If it still finds the
//! place, it only emulates the instruction; otherwise it executes the instruction that is there again. Probes and
//! places are used again for other functions once no CPU handles a hit that has begun before the removal.

mod asked;
mod calls;
mod hit;
mod memory;
mod places;
mod plant;
pub(crate) mod probe;
#[cfg(test)]
mod tests;

pub(crate) use hit::on_breakpoint;
pub use memory::ProbeMemory;
pub(crate) use plant::{Planned, register};
