//! What each vCPU has executed between two functions, and what a handler has interrupted. Stage: fold.
//!
//! In: parts of the contexts' counts, visits, stops; the stack of each context as text. Out: folded stacks with the
//! vCPU as the first frame, a line for each visit and for each vCPU after a stop. Nothing of this is in the table,
//! because the table has all instructions. Imports no other stage.

use std::collections::BTreeMap;
use std::io::Write;

/// Instructions of a vCPU in a context, between two functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The vCPU.
    pub cpu: u32,
    /// The context's number.
    pub context: u64,
    /// How many.
    pub instructions: u64,
    /// The task's number; 0 if it is not known.
    pub task: u64,
}

/// What a handler has interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The vCPU.
    pub cpu: u32,
    /// The interrupted address, whose instruction was not executed yet.
    pub rip: u64,
    /// Its code segment.
    pub cs: u64,
    /// The number of its context.
    pub context: u64,
    /// Whether it is between the two functions.
    pub is_inside: bool,
}

/// How long a vCPU was halted between the two functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halted {
    /// The vCPU.
    pub cpu: u32,
    /// Nanoseconds of the guest's clock.
    pub ns: u64,
    /// Instructions that the other vCPUs executed meanwhile.
    pub others: u64,
    /// The time between the two functions.
    pub of_ns: u64,
}

/// What the plugin has sent.
#[derive(Debug, Default)]
pub struct Window {
    /// Parts of the contexts' counts.
    pub parts: Vec<Part>,
    /// Visits of the handler, in the order in which they happened.
    pub visits: Vec<Visit>,
    /// For each vCPU that was halted, if the guest's clock counts instructions.
    pub halts: Vec<Halted>,
    /// Where vCPUs went on after the machine was stopped, with the number of the stop.
    pub stops: Vec<(u64, Visit)>,
}

impl Window {
    /// Folded stacks, sorted, with the vCPU as the first frame, and the task as the second one if that is wanted.
    pub fn folded(&self, names: &[String], by_task: bool) -> BTreeMap<String, u64> {
        let mut folded = BTreeMap::new();
        for part in &self.parts {
            let stack = names.get(part.context as usize).map_or("[?]", |name| name);
            let task = if by_task { format!("[task {}];", part.task) } else { String::new() };
            *folded.entry(format!("[cpu {}];{task}{stack}", part.cpu)).or_insert(0) += part.instructions;
        }
        folded
    }

    /// A line for each visit: the vCPU, `inside` if it is between the two functions, otherwise `outside`, the
    /// interrupted address, the code segment, the stack.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_visits(&self, names: &[String], out: &mut impl Write) -> std::io::Result<()> {
        for Visit { cpu, rip, cs, context, is_inside } in &self.visits {
            let stack = names.get(*context as usize).map_or("[?]", |name| name);
            let place = if *is_inside { "inside" } else { "outside" };
            writeln!(out, "{cpu} {place} {rip:x} {cs:x} {stack}")?;
        }
        Ok(())
    }

    /// A line for each vCPU that went on after a stop: the number of the stop, vCPU, address, code segment, stack.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_stops(&self, names: &[String], out: &mut impl Write) -> std::io::Result<()> {
        for (number, Visit { cpu, rip, cs, context, .. }) in &self.stops {
            let stack = names.get(*context as usize).map_or("[?]", |name| name);
            writeln!(out, "{number} {cpu} {rip:x} {cs:x} {stack}")?;
        }
        Ok(())
    }
}
