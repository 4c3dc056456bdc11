//! Recorded hits in Perfetto's trace: slices or instants with weights, and samples with stacks. Stage: output.
//!
//! In: hits with their times. Out: packets. A hit whose weight is a time is a slice of this length that ends when the
//! hit was recorded (of a blocked task: when it was ready again), because such points are hit when the wait or the
//! request ends: so one sees what ran meanwhile. Every other hit is an instant. Both have the weight, arguments, and
//! what the hit stands for, if that is another number. Slices of a track must not overlap, so a task with several
//! requests at a time has several tracks of the same name.
//!
//! Perfetto's samples have no weight, so its flame graph counts recorded hits; the weights are the arguments `weight`
//! and `stands for`. What is known only as a sum by CPU has no time: it is a slice over the whole trace, with its
//! weight.

use super::proto::{Annotation, ThreadDescriptor, Timebase, TrackDescriptor, TrackEvent};
use super::{BEGIN, END, INSTANT, Trace, number};
use crate::output::export::Input;
use crate::output::export::hits::{Hit, Hits};
use kprof_format::block::Request;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the trace.
///
/// # Errors
/// Errors of the writer.
pub fn write(input: &Input<'_>, hits: &Hits, out: &mut dyn Write) -> io::Result<()> {
    let boots = hits.hits.last().map_or(1, |hit| hit.boot + 1);
    let mut trace = Trace { input, out, bytes: Vec::new(), tracks: 0, boots };
    trace.begin(Timebase { period: 1, name: hits.name.clone(), ..Timebase::default() })?;
    let (mut of_task, mut last) = (BTreeMap::<(u32, u32), Lanes>::new(), 0);
    for hit in &hits.hits {
        let nanos = input.clock.nanos(hit.boot, hit.tsc);
        last = last.max(nanos);
        let time = hits.time_of(hit).map(|times| [times.0, times.1].map(|before| nanos.saturating_sub(before)));
        let [begin, end] = time.unwrap_or([nanos; 2]);
        let known = of_task.remove(&(hit.boot, hit.task));
        let mut lanes = known.map_or_else(|| Lanes::new(&mut trace, hit), Ok)?;
        let track_uuid = lanes.free(&mut trace, hits, (begin, end))?;
        of_task.insert((hit.boot, hit.task), lanes);
        let r#type = if time.is_some() { BEGIN } else { INSTANT };
        let (name, debug_annotations) = (hits.name.clone(), arguments(hits, hit));
        trace.event(begin, TrackEvent { debug_annotations, r#type, track_uuid, name })?;
        if time.is_some() {
            trace.event(end, TrackEvent { r#type: END, track_uuid, ..TrackEvent::default() })?;
        }
        trace.sample(nanos, (hit.boot, hit.cpu), hit.task, hit.stack)?;
    }
    for (cpu, name, weight) in &hits.beside {
        let cpu = cpu.map_or_else(|| "CPU not known".to_owned(), |cpu| format!("CPU {cpu}"));
        let track_uuid = trace.track(format!("{cpu} {name}"))?;
        let (name, debug_annotations) = ((*name).to_owned(), vec![number("weight", *weight)]);
        trace.event(0, TrackEvent { debug_annotations, r#type: BEGIN, track_uuid, name })?;
        trace.event(last.max(1), TrackEvent { r#type: END, track_uuid, ..TrackEvent::default() })?;
    }
    Ok(())
}

/// The tracks of a task.
struct Lanes {
    thread: u64,
    /// Each track, and when its last slice ends.
    tracks: Vec<(u64, u64)>,
}

impl Lanes {
    fn new(trace: &mut Trace<'_>, hit: &Hit) -> io::Result<Self> {
        let thread = ThreadDescriptor { pid: hit.boot as i32 + 1, tid: trace.thread(hit.boot, hit.task) as i32 };
        let thread = trace.describe(TrackDescriptor { thread: Some(thread), ..TrackDescriptor::default() })?;
        Ok(Self { thread, tracks: Vec::new() })
    }

    /// A track on which nothing is at this time.
    fn free(&mut self, trace: &mut Trace<'_>, hits: &Hits, (begin, end): (u64, u64)) -> io::Result<u64> {
        if let Some((uuid, until)) = self.tracks.iter_mut().find(|(_, until)| *until <= begin) {
            *until = end;
            return Ok(*uuid);
        }
        let name = format!("{} ({})", hits.name, hits.unit);
        let uuid = trace.describe(TrackDescriptor { name, parent_uuid: self.thread, ..TrackDescriptor::default() })?;
        self.tracks.push((uuid, end));
        Ok(uuid)
    }
}

fn arguments(hits: &Hits, hit: &Hit) -> Vec<Annotation> {
    let mut all = vec![number("weight", hit.weight)];
    all.extend((hit.stands_for != hit.weight).then(|| number("stands for", hit.stands_for)));
    all.extend(hit.cpu.map(|cpu| number("CPU", cpu.into())));
    let given = hit.arguments.as_slice();
    if let Some(Request { device, sector, bytes }) = Request::of(&hits.name, given) {
        return [all, vec![number("device", device.into()), number("sector", sector), number("bytes", bytes)]].concat();
    }
    let word = given.first().and_then(|value| hits.values.get(usize::try_from(*value).ok()?));
    all.extend(word.map(|word| {
        let (string_value, name) = (Some(word.clone()), "reason".to_owned());
        Annotation { string_value, name, ..Annotation::default() }
    }));
    let named = ["argument 1", "argument 2"].into_iter().zip(given).skip(usize::from(word.is_some()));
    all.extend(named.map(|(name, value)| number(name, *value)));
    all
}
