//! Recorded hits in speedscope's file format: one profile for each value. Stage: output.
//!
//! In: the values of each stack, what they are, symbols. Out: the document. What is not known by stack has functions of
//! its own, so that the weights of a point add up to its total. Those of a heap are estimates.

use super::{end, frames};
use crate::output::export::places::Places;
use crate::output::export::values::Values;
use crate::select::Select;
use crate::stacks::Stacks;
use crate::symbols::Symbols;
use std::io::{self, Write};

/// Writes the document.
///
/// # Errors
/// Errors of the writer.
pub fn write(
    values: &Values<'_>,
    (stacks, symbols, select): (&Stacks, &Symbols, &Select),
    name: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let places = Places::new(values.rows.iter().map(|(stack, _)| *stack), stacks, symbols, select.user);
    let beside: Vec<&str> = values.beside.iter().map(|(name, _)| *name).collect();
    let (texts, first) = frames(&places, &beside, out)?;
    for (at, (kind, unit)) in values.types.iter().enumerate() {
        let of_stacks = values.rows.iter().map(|(stack, value)| (texts[*stack as usize].to_string(), value[at]));
        let of_others = values.beside.iter().zip(first..).map(|((_, value), frame)| (format!("[{frame}]"), value[at]));
        let (samples, weights): (Vec<String>, Vec<i64>) = of_stacks.chain(of_others).filter(|one| one.1 > 0).unzip();
        let sum = weights.iter().fold(0_i64, |sum, weight| sum.saturating_add(*weight));
        let kind = serde_json::to_string(kind)?;
        out.write_all(if at > 0 { b"," } else { b"" })?;
        write!(out, "{{\"type\":\"sampled\",\"name\":{kind},\"unit\":\"{}\",", unit_name(unit))?;
        write!(out, "\"startValue\":0,\"endValue\":{sum},\"samples\":[{}],", samples.join(","))?;
        write!(out, "\"weights\":{}}}", serde_json::to_string(&weights)?)?;
    }
    write!(out, "],\"activeProfileIndex\":{}", values.default)?;
    end(name, out)
}

/// The name of a unit in speedscope.
fn unit_name(unit: &str) -> &str {
    if unit == "count" { "none" } else { unit }
}
