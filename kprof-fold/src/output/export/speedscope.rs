//! speedscope's file format, sampled, one profile per CPU, in microseconds. Stage: output.
//!
//! In: the samples of each CPU. Out: the document, written piece by piece and never all in memory. Every sample has the
//! same weight, the period, so that shares are those of the other outputs. Where nothing was sampled (the CPU was idle,
//! or in user space) an empty stack takes the time up to the next sample. Lost samples are where they were lost.
//!
//! Source of the form: the schema at <https://www.speedscope.app/file-format-schema.json>.

pub mod values;

use super::places::Places;
use super::{Input, Reason};
use crate::tracks::Moment;
use serde_json::json;
use std::collections::HashMap;
use std::io::{self, Write};

/// Writes the document.
///
/// # Errors
/// Errors of the writer.
pub fn write(input: &Input<'_>, out: &mut dyn Write) -> io::Result<()> {
    let (texts, lost) = frames(&input.places, &[input.lost()], out)?;
    for (at, cpu) in input.cpus().into_iter().enumerate() {
        out.write_all(if at > 0 { b"," } else { b"" })?;
        let name = serde_json::to_string(&input.cpu_name(cpu))?;
        let (mut count, mut start, mut end) = (0u64, 0, 0);
        each(input, cpu, |from, to, _| {
            start = if count == 0 { from } else { start };
            (count, end) = (count + 1, to);
            Ok(())
        })?;
        write!(out, "{{\"type\":\"sampled\",\"name\":{name},\"unit\":\"microseconds\",")?;
        write!(out, "\"startValue\":{},\"endValue\":{},\"samples\":[", micros(start), micros(end))?;
        let mut separator: &[u8] = b"";
        each(input, cpu, |_, _, what| {
            out.write_all(std::mem::replace(&mut separator, b","))?;
            match what {
                What::Nothing => out.write_all(b"[]"),
                What::Sample(sample) => out.write_all(texts[sample.stack as usize].as_bytes()),
                What::Lost => write!(out, "[{lost}]"),
            }
        })?;
        write!(out, "],\"weights\":[")?;
        let mut separator: &[u8] = b"";
        let period = micros(input.period_ns);
        each(input, cpu, |from, to, what| {
            out.write_all(std::mem::replace(&mut separator, b","))?;
            match what {
                What::Sample(_) => out.write_all(period.as_bytes()),
                _ => out.write_all(micros(to - from).as_bytes()),
            }
        })?;
        write!(out, "]}}")?;
    }
    out.write_all(b"]")?;
    end(&input.name, out)
}

/// Writes the beginning of the document, with the names of all frames and then of the functions in `beside`, and begins
/// the list of profiles. Returns the text of each stack, made once, and the number of the first frame of `beside`.
fn frames(places: &Places, beside: &[&str], out: &mut dyn Write) -> io::Result<(Vec<Box<str>>, usize)> {
    write!(out, "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"shared\":{{\"frames\":[")?;
    // Only names of functions, not of files, so that each one listed is in a stack.
    let mut listed: HashMap<u32, usize> = HashMap::new();
    let mut separator: &[u8] = b"";
    let mut list = |name: &str| {
        out.write_all(std::mem::replace(&mut separator, b","))?;
        serde_json::to_writer(&mut *out, &json!({ "name": name })).map_err(io::Error::from)
    };
    for place in &places.places {
        let next = listed.len();
        if *listed.entry(place.shown).or_insert(next) == next {
            list(places.names.name(place.shown))?;
        }
    }
    beside.iter().try_for_each(|name| list(name))?;
    write!(out, "]}},\"profiles\":[")?;
    let mut texts: Vec<Box<str>> = Vec::new();
    for stack in places.stacks() {
        texts.resize(stack as usize, Box::default());
        let frames = places.of(stack).iter();
        let frames = frames.map(|place| listed[&places.places[*place as usize].shown].to_string());
        texts.push(format!("[{}]", frames.collect::<Vec<_>>().join(",")).into());
    }
    Ok((texts, listed.len()))
}

/// Writes the last members of the document.
fn end(name: &str, out: &mut dyn Write) -> io::Result<()> {
    write!(out, ",\"name\":")?;
    serde_json::to_writer(&mut *out, name)?;
    write!(out, ",\"exporter\":\"kprof-fold {}\"}}", env!("CARGO_PKG_VERSION"))
}

/// What is shown in a part of the time.
enum What {
    Nothing,
    Sample(Moment),
    Lost,
}

/// Calls `show` for each part of a CPU's time, in their order: from, to, both in nanoseconds, and what is shown there.
fn each(input: &Input<'_>, cpu: (u32, u32), mut show: impl FnMut(u64, u64, What) -> io::Result<()>) -> io::Result<()> {
    let mut losses = input.ticks_of(cpu, Reason::Lost).peekable();
    let track = input.tracks.tracks.iter().find(|track| (track.boot, track.cpu) == cpu);
    let mut at: Option<u64> = None;
    let mut part = |tsc: u64, samples: u64, what: What| {
        let from = input.clock.nanos(cpu.0, tsc);
        let mut now = at.unwrap_or(from);
        // Intervals are random, so a sample may come before the period of the previous sample has ended. Time counts as
        // empty only if more than one period has no sample.
        if from > now.saturating_add(input.period_ns) {
            show(now, from, What::Nothing)?;
            now = from;
        }
        let to = now.saturating_add(samples.saturating_mul(input.period_ns));
        at = Some(to);
        show(now, to, what)
    };
    for sample in track.into_iter().flat_map(|track| track.samples()) {
        while let Some(loss) = losses.next_if(|loss| loss.tsc.0 <= sample.tsc) {
            part(loss.tsc.0, loss.count, What::Lost)?;
        }
        part(sample.tsc, 1, What::Sample(sample))?;
    }
    losses.try_for_each(|loss| part(loss.tsc.0, loss.count, What::Lost))
}

/// Microseconds with three digits after the point, where they are not 0.
fn micros(nanos: u64) -> String {
    match nanos % 1000 {
        0 => (nanos / 1000).to_string(),
        rest => format!("{}.{rest:03}", nanos / 1000),
    }
}
