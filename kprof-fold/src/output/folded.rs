//! Folded stacks, the input of flame graph tools. Stage: output.
//!
//! In: sorted stacks and the number of lost samples. Out: lines `frame;frame;frame COUNT`, outermost first, and one
//! more line `[lost] N` if samples were lost.

use crate::fold::Folded;
use std::io::{self, Write};

/// The frame that stands for lost samples.
pub const LOST: &str = "[lost]";
/// The frame for lost samples if only some tasks are shown: it is not known to which tasks the lost samples belong.
pub const LOST_ANYWHERE: &str = "[lost, of any task]";
/// The frame that stands for hits of a point that were only counted, because no record was asked then.
pub const NOT_RECORDED: &str = "[not recorded]";
/// The frame that stands for coalesced ticks.
pub const COALESCED: &str = "[coalesced]";
/// The frame for coalesced ticks if only some tasks are shown.
pub const COALESCED_ANYWHERE: &str = "[coalesced, of any task]";
/// The frame for ticks in user code, which the kernel has counted and not recorded.
pub const USER: &str = "[user]";
/// The frame for these ticks if only some tasks are shown.
pub const USER_ANYWHERE: &str = "[user, of any task]";
/// The frame for ticks in the idle task, which the kernel has counted and not recorded.
pub const IDLE: &str = "[idle]";
/// The frame for these ticks if only some tasks are shown.
pub const IDLE_ANYWHERE: &str = "[idle, of any task]";

/// Writes all stacks.
///
/// # Errors
/// Errors of the writer.
pub fn write(folded: &Folded, lost: u64, out: &mut dyn Write) -> io::Result<()> {
    write_with(folded, &[(LOST, lost)], out)
}

/// Writes all stacks, and a line for each entry of `beside` that is not 0.
///
/// # Errors
/// Errors of the writer.
pub fn write_with(folded: &Folded, beside: &[(&str, u64)], out: &mut dyn Write) -> io::Result<()> {
    let mut line = String::new();
    let mut numbers = itoa::Buffer::new();
    let names: Vec<&str> = (0..folded.frames.len()).map(|frame| folded.frames.name(frame as u32)).collect();
    for stack in &folded.stacks {
        line.clear();
        for frame in folded.frames_of(stack) {
            line.push_str(names[*frame as usize]);
            line.push(';');
        }
        line.pop();
        line.push(' ');
        line.push_str(numbers.format(stack.samples));
        line.push('\n');
        out.write_all(line.as_bytes())?;
    }
    for (name, count) in beside.iter().filter(|(_, count)| *count > 0) {
        writeln!(out, "{name} {count}")?;
    }
    out.flush()
}
