//! Recorded hits in the Firefox Profiler's form: samples with weights, and a counter for each CPU. Stage: output.
//!
//! In: hits with their times. Out: the document. Each hit is a sample of its task's thread, at its time; its weight is
//! in bytes, in milliseconds (with all digits of the nanoseconds), or a number, as the reader's `weightType` says. What
//! is known only as a sum by CPU is one sample of a thread of its own, at the beginning: it has no time. The counter of
//! a CPU has the weights of all its hits in the order of their times: the reader draws bytes of a heap as their sum so
//! far, other bytes as a rate in bytes a second, and all else as a line without a unit.

use super::{Threads, begin, list, millis, no_markers};
use crate::output::export::Input;
use crate::output::export::firefox::tables::{LOST, OTHER, Tables};
use crate::output::export::hits::{Hit, Hits};
use crate::output::folded::NOT_RECORDED;
use kprof_format::memory::LIVE;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the document.
///
/// # Errors
/// Errors of the writer.
pub fn write(input: &Input<'_>, hits: &Hits, out: &mut dyn Write) -> io::Result<()> {
    let beside = [(input.lost(), LOST), (NOT_RECORDED, OTHER)];
    let tables = Tables::new(input, &beside);
    let mut by_task = BTreeMap::<(Option<u32>, u32), Vec<&Hit>>::new();
    for hit in &hits.hits {
        by_task.entry((hit.cpu, hit.task)).or_default().push(hit);
    }
    // The thread of the marks, if there are any, is the first one.
    let first_thread = usize::from(!input.marks.is_empty());
    let thread_of = |cpu| first_thread + by_task.keys().take_while(|(of, _)| *of != cpu).count();
    let counters = counters(input, hits, thread_of);
    let mut threads = begin(input, &tables, &counters, out)?;
    for ((cpu, task), hits_of_task) in by_task {
        let nanos = |hit: &&Hit| input.clock.nanos(hit.boot, hit.tsc);
        let samples = hits_of_task.iter().map(|hit| One {
            nanos: nanos(hit),
            node: tables.node_of_stack[hit.stack as usize],
            weight: hit.stands_for,
        });
        threads.samples((cpu.map(u64::from), &hits.tasks[task as usize]), &hits.unit, &samples.collect::<Vec<_>>())?;
    }
    for (cpu, name, weight) in &hits.beside {
        let node = tables.beside[beside.iter().position(|(known, _)| known == name).unwrap_or(0)];
        threads.samples((*cpu, name), &hits.unit, &[One { nanos: 0, node, weight: *weight }])?;
    }
    write!(out, "]}}")
}

/// The process of a CPU.
fn process(cpu: Option<u64>) -> String {
    cpu.map_or_else(|| "kernel".to_owned(), |cpu| format!("CPU {cpu}"))
}

/// The counters. `thread_of` says which thread is the first one of a CPU.
fn counters(input: &Input<'_>, hits: &Hits, thread_of: impl Fn(Option<u32>) -> usize) -> Value {
    let mut by_cpu = BTreeMap::<Option<u32>, Vec<(u64, u64)>>::new();
    for hit in &hits.hits {
        by_cpu.entry(hit.cpu).or_default().push((input.clock.nanos(hit.boot, hit.tsc), hit.stands_for));
    }
    // How it is drawn follows from the category.
    let category = match (hits.name.as_str(), hits.unit.as_str()) {
        (LIVE, _) => "Memory",
        (_, "bytes") => "Bandwidth",
        _ => "kprof",
    };
    let counter = |(cpu, mut of): (Option<u32>, Vec<(u64, u64)>)| {
        of.sort_unstable();
        json!({
            "name": hits.name,
            "category": category,
            "description": format!("weights of recorded hits, {}", hits.unit),
            "pid": process(cpu.map(u64::from)),
            "mainThreadIndex": thread_of(cpu),
            "samples": {
                "length": of.len(),
                "time": of.iter().map(|(nanos, _)| *nanos as f64 / 1e6).collect::<Vec<_>>(),
                "count": of.iter().map(|(_, weight)| *weight).collect::<Vec<_>>(),
                "number": of.iter().map(|_| 1).collect::<Vec<_>>(),
            },
        })
    };
    by_cpu.into_iter().map(counter).collect()
}

/// A sample.
struct One {
    nanos: u64,
    node: u32,
    weight: u64,
}

impl Threads<'_> {
    fn samples(&mut self, (cpu, name): (Option<u64>, &str), unit: &str, samples: &[One]) -> io::Result<()> {
        self.begin(&process(cpu), name, &no_markers())?;
        let out = &mut *self.out;
        let kind = match unit {
            "ns" => "tracing-ms",
            "bytes" => "bytes",
            _ => "samples",
        };
        write!(out, "{{\"length\":{},\"weightType\":\"{kind}\",\"weight\":", samples.len())?;
        list(out, samples, |out, sample| match unit {
            "ns" => millis(out, sample.weight),
            _ => out.extend(sample.weight.to_string().bytes()),
        })?;
        write!(out, ",\"stack\":")?;
        list(out, samples, |out, sample| out.extend(sample.node.to_string().bytes()))?;
        write!(out, ",\"timeDeltas\":")?;
        let mut before = 0;
        list(out, samples, |out, sample| {
            millis(out, sample.nanos.saturating_sub(std::mem::replace(&mut before, sample.nanos)));
        })?;
        write!(out, "}}}}")
    }
}
