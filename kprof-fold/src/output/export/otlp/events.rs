//! Recorded hits, and the heap, as OpenTelemetry's profiles. Stage: output.
//!
//! In: hits with the weights and the numbers of hits for which they stand, or the values of the heap by stack. Out: a
//! `ProfilesData` message. For each CPU it has two profiles: one of the weights, with the name and the unit of the
//! point, and one of the hits. What was lost or not recorded on a CPU is a sample of the function `[lost]` or `[not
//! recorded]`; what was lost on an unknown CPU is in profiles without the attribute of a CPU. A heap has the four
//! sample types of Go's heap profiles, not by CPU.

use super::{Made, Row, signed};
use crate::output::export::Input;
use crate::output::export::hits::Hits;
use crate::output::export::values::Values;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the hits of a point. `weights` and `counts` are the same hits, by weight and by number; `unit` is that of the
/// weights.
///
/// # Errors
/// Errors of the writer.
pub fn point(input: &Input<'_>, (weights, counts): (&Hits, &Hits), unit: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut cpus = BTreeMap::<Option<u64>, BTreeMap<Of<'_>, [u64; 2]>>::new();
    for (hits, at) in [(weights, 0), (counts, 1)] {
        let recorded =
            hits.hits.iter().map(|hit| (hit.cpu.map(u64::from), Of::Hit(hit.stack, hit.task), hit.stands_for));
        let beside = hits.beside.iter().map(|(cpu, name, sum)| (*cpu, Of::Beside(name), *sum));
        for (cpu, of, number) in recorded.chain(beside) {
            let sum = &mut cpus.entry(cpu).or_default().entry(of).or_default()[at];
            *sum = sum.saturating_add(number);
        }
    }
    let mut made = Made::new(input);
    for (cpu, sums) in cpus {
        let number: Vec<i32> = cpu.map(|cpu| made.cpu_number(cpu)).into_iter().collect();
        let row = |(of, sums): (Of<'_>, [u64; 2])| -> Row {
            let mut attributes = number.clone();
            let stack = match of {
                Of::Hit(stack, task) => {
                    attributes.push(made.task(task));
                    made.stack(stack)
                }
                Of::Beside(name) => made.named(name),
            };
            (stack, attributes, sums.map(signed).to_vec())
        };
        let rows = sums.into_iter().map(row).collect();
        made.profiles(&[(&weights.name, unit), ("hits", "count")], ("", "", 0), rows, out)?;
    }
    made.end(out)
}

/// What a sum is of: a stack and a task, or the function that stands for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Of<'a> {
    Hit(u32, u32),
    Beside(&'a str),
}

/// Writes the values of the heap. The stacks must be among those of `input`.
///
/// # Errors
/// Errors of the writer.
pub fn heap(input: &Input<'_>, values: &Values<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut made = Made::new(input);
    let rows = values.rows.iter().map(|(stack, values)| (made.stack(*stack), Vec::new(), values.clone())).collect();
    made.profiles(values.types, values.period.unwrap_or(("", "", 0)), rows, out)?;
    made.end(out)
}
