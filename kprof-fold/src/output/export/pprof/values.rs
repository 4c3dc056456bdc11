//! Recorded hits as pprof's protocol buffer: several values for each stack. Stage: output.
//!
//! In: the values of each stack, what they are, symbols. Out: a sample for each stack, and one for each function that
//! stands for what is not known by stack.

use super::{About, Made, compressed, proto};
use crate::output::export::values::Values;
use crate::resolve::Resolver;
use crate::select::Select;
use crate::stacks::Stacks;
use crate::symbols::Symbols;
use prost::Message;
use proto::Sample;
use std::io::{self, Write};

/// Writes the profile.
///
/// # Errors
/// Errors of the writer.
pub fn write(
    values: &Values<'_>,
    (stacks, symbols, select): (&Stacks, &Symbols, &Select),
    about: &About<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut made = Made::new(symbols, about, values.types);
    let mut resolver = Resolver::new(symbols);
    let mut words = Vec::new();
    for (stack, value) in &values.rows {
        stacks.words(*stack, &mut words);
        let location_id = made.stack(&mut resolver, &words, select.user);
        made.profile.sample.push(Sample { location_id, value: value.clone(), label: Vec::new() });
    }
    for (name, value) in &values.beside {
        let location_id = vec![made.named(name)];
        made.profile.sample.push(Sample { location_id, value: value.clone(), label: Vec::new() });
    }
    if let Some((kind, unit, period)) = values.period {
        made.profile.period_type = Some(made.value_type(kind, unit));
        made.profile.period = i64::try_from(period).unwrap_or(i64::MAX);
    }
    if let Some((kind, _)) = values.types.get(values.default) {
        made.profile.default_sample_type = made.text(kind);
    }
    let profile = made.finish(about);
    compressed(about.gzip, out, |out| out.write_all(&profile.encode_to_vec()))
}
