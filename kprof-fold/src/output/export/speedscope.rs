//! speedscope's file format, sampled, one profile per CPU. Stage: output.
//!
//! In: samples by time. Out: the document, written piece by piece and never all in memory.
//!
//! Source of the form: the schema at <https://www.speedscope.app/file-format-schema.json>.

use super::Input;
use serde_json::json;
use std::io::{self, Write};

/// Writes the document.
///
/// # Errors
/// Errors of the writer.
pub fn write(input: &Input<'_>, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"shared\":{{\"frames\":")?;
    list(out, 0..input.frames.len(), |out, id| {
        serde_json::to_writer(out, &json!({ "name": input.frames.name(id as u32) })).map_err(Into::into)
    })?;
    write!(out, "}},\"profiles\":")?;
    list(out, input.cpus(), |out, cpu| {
        let events = || input.timeline.events.iter().filter(move |event| event.cpu == cpu);
        let count = events().count();
        write!(
            out,
            "{{\"type\":\"sampled\",\"name\":\"CPU {cpu}\",\"unit\":\"none\",\"startValue\":0,\"endValue\":{count},"
        )?;
        write!(out, "\"samples\":")?;
        let mut number = itoa::Buffer::new();
        list(out, events(), |out, event| {
            list(out, &input.stacks[&event.stack], |out, frame| out.write_all(number.format(*frame).as_bytes()))
        })?;
        write!(out, ",\"weights\":")?;
        list(out, 0..count, |out, _| out.write_all(b"1"))?;
        write!(out, "}}")
    })?;
    write!(out, ",\"name\":")?;
    serde_json::to_writer(&mut *out, &input.name)?;
    write!(out, ",\"exporter\":\"kprof-fold {}\"}}", env!("CARGO_PKG_VERSION"))
}

/// Writes `[`, the items separated by commas, and `]`.
fn list<T>(
    out: &mut dyn Write,
    items: impl IntoIterator<Item = T>,
    mut one: impl FnMut(&mut dyn Write, T) -> io::Result<()>,
) -> io::Result<()> {
    out.write_all(b"[")?;
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 {
            out.write_all(b",")?;
        }
        one(out, item)?;
    }
    out.write_all(b"]")
}
