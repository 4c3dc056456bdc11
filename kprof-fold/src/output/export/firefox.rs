//! The Firefox Profiler's processed profile: a process for each CPU, in it a thread for each task. Stage: output.
//!
//! In: the samples of each CPU. Out: the document, written piece by piece and never all in memory. Each sample is in
//! one thread, so the threads of a process add up to what its CPU did. Lost samples, and ticks in user code and in the
//! idle task, which the kernel only counts, are threads of their own; marks and settings are markers of the thread
//! `marks`. A sample of a task that is not the idle one is a period of CPU time.
//!
//! Source of the form: `src/types/profile.ts` and `docs-developer/CHANGELOG-formats.md` of the repository
//! github.com/firefox-devtools/profiler; version 61 has all tables that threads can share. Newer readers convert it.

pub mod hits;
mod tables;

use super::places::Kind;
use super::{Input, Reason, Ticks};
use crate::tracks::Moment;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use tables::{OTHER, SETTINGS, Tables};

/// A list is written in pieces of about this size.
const PIECE_BYTES: usize = 16 * 1024;
/// The version of the form.
const VERSION: u32 = 61;

/// Writes the document.
///
/// # Errors
/// Errors of the writer.
pub fn write(input: &Input<'_>, out: &mut dyn Write) -> io::Result<()> {
    let has = |reason: &Reason| input.ticks.iter().any(|ticks| ticks.reason == *reason);
    let reasons: Vec<Reason> = Reason::ALL.into_iter().filter(has).collect();
    let beside = reasons.iter().map(|reason| (reason.name(input.select), tables::category_of(*reason)));
    let tables = Tables::new(input, &beside.collect::<Vec<_>>());
    let mut threads = begin(input, &tables, &Value::Array(Vec::new()), out)?;
    for cpu in input.cpus() {
        threads.tasks(cpu)?;
        reasons.iter().zip(&tables.beside).try_for_each(|(reason, node)| threads.ticks(cpu, *reason, *node))?;
    }
    write!(out, "]}}")
}

/// Writes everything up to the first thread after that of the marks.
fn begin<'a>(
    input: &'a Input<'a>,
    tables: &'a Tables,
    counters: &Value,
    out: &'a mut dyn Write,
) -> io::Result<Threads<'a>> {
    let (meta, libs) = (meta(input), Value::Array(tables.libs(input)));
    write!(out, "{{\"meta\":{meta},\"libs\":{libs},\"pages\":[],\"counters\":{counters},")?;
    write!(out, "\"profilerOverhead\":[],\"shared\":")?;
    tables.write(input, out)?;
    write!(out, ",\"threads\":[")?;
    let mut threads = Threads { input, tables, out, number: 0 };
    threads.marks()?;
    Ok(threads)
}

fn meta(input: &Input<'_>) -> Value {
    json!({
        "categories": tables::categories(),
        "debug": false,
        "extensions": { "length": 0, "baseURL": [], "id": [], "name": [] },
        "interval": input.period_ns as f64 / 1e6,
        "preprocessedProfileVersion": VERSION,
        "version": 24,
        "processType": 0,
        "product": input.name,
        "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" },
        // No profile tells the time of day when it began.
        "startTime": 0,
        "symbolicated": true,
        "pausedRanges": [],
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "extra": [{
            "label": "Time",
            "entries": [{ "label": "Zero", "format": "string", "value": input.clock.words() }],
        }],
        "stackwalk": 1,
        "markerSchema": [{
            "name": "Text",
            "display": ["marker-chart", "marker-table", "timeline-overview"],
            "chartLabel": "{marker.data.name}",
            "tableLabel": "{marker.data.name}",
            "fields": [{ "key": "name", "label": "Name", "format": "string" }],
        }],
    })
}

/// Writes the threads.
struct Threads<'a> {
    input: &'a Input<'a>,
    tables: &'a Tables,
    out: &'a mut dyn Write,
    number: u32,
}

impl Threads<'_> {
    /// Everything of a thread but its samples.
    fn begin(&mut self, process: &str, name: &str, markers: &Value) -> io::Result<()> {
        let thread = json!({
            "name": name,
            "isMainThread": false,
            "processName": process,
            "processType": "default",
            "processStartupTime": 0,
            "processShutdownTime": null,
            "registerTime": 0,
            "unregisterTime": null,
            "pausedRanges": [],
            "pid": process,
            "tid": self.number,
            "showMarkersInTimeline": true,
            "markers": markers,
        });
        let text = thread.to_string();
        let separator = if self.number > 0 { "," } else { "" };
        self.number += 1;
        write!(self.out, "{separator}{},\"samples\":", &text[..text.len() - 1])
    }

    fn marks(&mut self) -> io::Result<()> {
        let marks = &self.input.marks;
        if marks.is_empty() {
            return Ok(());
        }
        let time = |mark: &super::Mark| self.input.clock.nanos(mark.boot, mark.tsc) as f64 / 1e6;
        let category = |mark: &super::Mark| if mark.is_setting { SETTINGS } else { OTHER };
        let kind = |mark: &super::Mark| if mark.is_setting { self.tables.setting } else { self.tables.mark };
        let markers = json!({
            "length": marks.len(),
            "category": marks.iter().map(category).collect::<Vec<_>>(),
            "data": marks.iter().map(|mark| json!({ "type": "Text", "name": mark.name })).collect::<Vec<_>>(),
            "startTime": marks.iter().map(time).collect::<Vec<_>>(),
            "endTime": marks.iter().map(|_| Value::Null).collect::<Vec<_>>(),
            "name": marks.iter().map(kind).collect::<Vec<_>>(),
            "phase": marks.iter().map(|_| 0).collect::<Vec<_>>(),
        });
        self.begin("kernel", "marks", &markers)?;
        write!(
            self.out,
            "{}}}",
            json!({ "length": 0, "weightType": "samples", "stack": [], "timeDeltas": [], "weight": null })
        )
    }

    fn tasks(&mut self, cpu: (u32, u32)) -> io::Result<()> {
        let Some(track) = self.input.tracks.tracks.iter().find(|track| (track.boot, track.cpu) == cpu) else {
            return Ok(());
        };
        let mut tasks: BTreeMap<u32, Vec<(u64, u32)>> = BTreeMap::new();
        for Moment { tsc, stack, task } in track.samples() {
            tasks.entry(task).or_default().push((tsc, stack));
        }
        let process = self.input.cpu_name(cpu);
        for (task, samples) in tasks {
            self.begin(&process, &self.input.tracks.tasks[task as usize], &no_markers())?;
            let Self { out, input, tables, .. } = self;
            write!(out, "{{\"length\":{},\"weightType\":\"samples\",\"weight\":null,\"stack\":", samples.len())?;
            let mut digits = itoa::Buffer::new();
            list(*out, &samples, |out, (_, stack)| {
                out.extend_from_slice(digits.format(tables.node_of_stack[*stack as usize]).as_bytes());
            })?;
            write!(out, ",\"timeDeltas\":")?;
            let mut before = 0;
            list(*out, &samples, |out, (tsc, _)| {
                let now = input.clock.nanos(cpu.0, *tsc);
                millis(out, now.saturating_sub(std::mem::replace(&mut before, now)));
            })?;
            write!(out, ",\"threadCPUDelta\":")?;
            let period = input.period_ns.to_string();
            list(*out, &samples, |out, (_, stack)| {
                let leaf = input.places.of(*stack).last().map(|place| input.places.places[*place as usize].kind);
                out.extend_from_slice(if leaf == Some(Kind::Idle) { b"0" } else { period.as_bytes() });
            })?;
            write!(out, "}}}}")?;
        }
        Ok(())
    }

    /// Ticks without a sample: one entry for each part of the time that has some, with their number as its weight.
    fn ticks(&mut self, cpu: (u32, u32), reason: Reason, node: u32) -> io::Result<()> {
        let all: Vec<&Ticks> = self.input.ticks_of(cpu, reason).collect();
        if all.is_empty() {
            return Ok(());
        }
        self.begin(&self.input.cpu_name(cpu), reason.name(self.input.select), &no_markers())?;
        let weights: Vec<u64> = all.iter().map(|ticks| ticks.count).collect();
        let stacks = vec![node; all.len()];
        write!(self.out, "{{\"length\":{},\"weightType\":\"samples\",\"weight\":{weights:?},", all.len())?;
        write!(self.out, "\"stack\":{stacks:?},\"timeDeltas\":")?;
        let mut before = 0;
        let input = self.input;
        list(self.out, all, |out, ticks| {
            let now = input.clock.nanos(cpu.0, ticks.tsc.0);
            millis(out, now.saturating_sub(std::mem::replace(&mut before, now)));
        })?;
        write!(self.out, "}}}}")
    }
}

fn no_markers() -> Value {
    json!({ "length": 0, "category": [], "data": [], "startTime": [], "endTime": [], "name": [], "phase": [] })
}

/// Milliseconds, exact to the nanosecond.
fn millis(out: &mut Vec<u8>, nanos: u64) {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(digits.format(nanos / 1_000_000).as_bytes());
    let mut rest = *b".000000";
    let text = digits.format(nanos % 1_000_000);
    rest[7 - text.len()..].copy_from_slice(text.as_bytes());
    out.extend_from_slice(&rest);
}

/// Writes `[`, the items separated by commas, and `]`.
fn list<T>(
    out: &mut dyn Write,
    items: impl IntoIterator<Item = T>,
    mut one: impl FnMut(&mut Vec<u8>, T),
) -> io::Result<()> {
    let mut text = Vec::with_capacity(2 * PIECE_BYTES);
    text.push(b'[');
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 {
            text.push(b',');
        }
        one(&mut text, item);
        if text.len() > PIECE_BYTES {
            out.write_all(&text)?;
            text.clear();
        }
    }
    text.push(b']');
    out.write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        for (nanos, text) in
            [(0, "0.000000"), (1, "0.000001"), (1_234_567, "1.234567"), (60_000_000_000, "60000.000000")]
        {
            let mut out = Vec::new();
            millis(&mut out, nanos);
            assert_eq!(String::from_utf8(out).expect("is text"), text);
        }
    }

    #[test]
    fn a_list_may_be_empty() {
        let text = |items: &[u32]| {
            let mut out = Vec::new();
            list(&mut out, items, |out, item| out.extend(item.to_string().bytes())).expect("memory takes everything");
            String::from_utf8(out).expect("is text")
        };
        assert_eq!((text(&[]), text(&[1, 2])), ("[]".to_owned(), "[1,2]".to_owned()));
    }

    #[test]
    fn every_kind_of_code_has_a_category() {
        let categories = tables::categories();
        for (kind, name) in [
            (Kind::Kernel, "Kernel"),
            (Kind::Interrupt, "Interrupt or exception"),
            (Kind::User, "User"),
            (Kind::Idle, "Idle"),
        ] {
            assert_eq!(categories[tables::category(kind)]["name"], name);
        }
        assert_eq!(categories[tables::LOST]["name"], "Lost");
    }
}
