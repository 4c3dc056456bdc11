//! Chrome's JSON trace, which the Perfetto viewer opens: a process per boot, a track per CPU. Stage: output.
//!
//! In: samples by time. Out: begin and end events (`B`, `E`), nested like the stack. They are written one by one and
//! are never all in memory. A sample is shown for one period from its time on, or until the next sample of its CPU if
//! that is sooner. So nothing is shown for the time between samples that are further apart.
//!
//! Sources of the form: <https://perfetto.dev/docs/getting-started/other-formats>, section on Chrome JSON, and the
//! Trace Event Format that it names.

use super::Input;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

const MICROS: f64 = 1e6;
/// The distance between an end and the next begin, for readers that sort by time: a tenth of a nanosecond, in
/// microseconds.
const GAP: f64 = 0.0001;

/// Writes the document.
///
/// # Errors
/// Errors of the writer.
pub fn write(input: &Input<'_>, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut first = true;
    let mut event = |event: Value| -> io::Result<()> {
        out.write_all(if std::mem::take(&mut first) { b"\n" } else { b",\n" })?;
        Ok(serde_json::to_writer(&mut *out, &event)?)
    };
    let period = MICROS / input.rate_hz.unwrap_or(1000).max(1) as f64;
    let mut tracks: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
    let mut starts: BTreeMap<u32, u64> = BTreeMap::new();
    let events = &input.timeline.events;
    for (number, one) in events.iter().enumerate() {
        tracks.entry((one.boot, one.cpu)).or_default().push(number);
        let start = starts.entry(one.boot).or_insert(one.tsc);
        *start = one.tsc.min(*start);
    }
    for ((boot, cpu), samples) in &tracks {
        let (pid, tid) = (boot + 1, cpu + 1);
        event(json!({ "ph": "M", "pid": pid, "tid": tid, "name": "process_name",
            "args": { "name": format!("boot {pid} of {}", input.name) } }))?;
        event(json!({ "ph": "M", "pid": pid, "tid": tid, "name": "thread_name",
            "args": { "name": format!("CPU {cpu}") } }))?;
        let at = |number: &usize| (events[*number].tsc - starts[boot]) as f64 / input.tsc_hz * MICROS;
        // Every sample gets a length greater than 0.
        let mut times: Vec<f64> = samples.iter().map(at).collect();
        (1..times.len()).for_each(|place| times[place] = times[place].max(times[place - 1] + 2.0 * GAP));
        for (place, number) in samples.iter().enumerate() {
            let (sample, from) = (events[*number], times[place]);
            let to = times.get(place + 1).map_or(f64::INFINITY, |next| next - GAP).min(from + period);
            let frames = &input.stacks[&sample.stack];
            let task = &input.timeline.tasks[sample.task as usize];
            // Some readers match an end to its begin by name. The task is written as the category: as an argument it
            // would make the same function a different one for each task in those readers.
            let edges =
                frames.iter().map(|frame| ("B", from, frame)).chain(frames.iter().rev().map(|frame| ("E", to, frame)));
            for (phase, ts, frame) in edges {
                let name = input.frames.name(*frame);
                event(json!({ "ph": phase, "pid": pid, "tid": tid, "ts": ts, "name": name, "cat": task }))?;
            }
        }
    }
    out.write_all(b"\n]}\n")
}
