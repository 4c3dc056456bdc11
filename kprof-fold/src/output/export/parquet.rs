//! Tables in Parquet, for engines that read thousands of profiles at once. Stage: output.
//!
//! In: the samples of each CPU. Out: `boots` (a row for each boot), `samples` (a row for each sample, and one for each
//! part of a CPU's time in which samples were lost), `unsampled` (a row for each part of a CPU's time with ticks that
//! were only counted, and for what they have hit), `stacks` (a row for each frame of each distinct stack) and `frames`
//! (a row for each function). What is the same for all samples of a boot is in `boots` only, because each
//! column of `samples` costs time. Of a point, `hits` (`hits.rs`) is in the place of `samples`.
//!
//! Rows are written in groups, so memory does not grow with the profile. The ids of stacks and frames are hashes of
//! names: they are the same in every profile, so the tables of many profiles can be read as one. docs/fleet.md has the
//! columns and queries.

pub mod hits;
mod table;

use super::places::Place;
use super::{Input, Reason};
use crate::profile::{Boot, Profile};
use crate::stacks::hash;
use crate::state::State;
use crate::symbols::name::visible;
use kprof_format::fact::Fact;
use parquet::data_type::ByteArray;
use std::collections::BTreeMap;
use std::io::{self, Write};
use table::Table;

/// The tables, in the order in which they are written.
pub const TABLES: [&str; 5] = ["boots", "samples", "unsampled", "stacks", "frames"];
/// The tables of the hits of a point.
pub const TABLES_OF_HITS: [&str; 4] = ["boots", "hits", "stacks", "frames"];

/// What is written besides the input.
#[derive(Clone, Debug, Default)]
pub struct About<'a> {
    /// The machine.
    pub machine: &'a str,
    /// The build of the kernel, instead of its build id.
    pub build: Option<&'a str>,
    /// The point whose hits are written instead of samples.
    pub event: Option<hits::OfPoint<'a>>,
}

impl About<'_> {
    /// The functions that stand for what is not known by stack.
    fn beside<'a>(&'a self, input: &'a Input<'_>) -> Vec<&'a str> {
        match &self.event {
            Some(event) => event.weights.beside.iter().map(|(_, name, _)| *name).collect(),
            None if input.ticks.iter().all(|ticks| ticks.reason != Reason::Lost) => Vec::new(),
            None => vec![input.lost()],
        }
    }
}

/// Writes a table.
///
/// # Errors
/// Errors of the writer.
pub fn write(
    table: &str,
    (input, profile, about): (&Input<'_>, &Profile, &About<'_>),
    out: &mut dyn Write,
) -> io::Result<()> {
    match table {
        "boots" => boots(input, profile, about, out),
        "samples" => samples(input, profile, out),
        "unsampled" => unsampled(input, profile, out),
        "hits" => about.event.iter().try_for_each(|event| hits::write(input, profile, event, out)),
        "stacks" => stacks(input, &about.beside(input), out),
        _ => frames(input, &about.beside(input), out),
    }
}

const BOOTS: &str = "message boots {
    required binary boot (STRING);
    required binary machine (STRING);
    required binary build (STRING);
    required binary trigger (STRING);
    required binary clock (STRING);
    required int64 period_ns;
    required int64 zero_tsc;
}";

fn boots(input: &Input<'_>, profile: &Profile, about: &About<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(BOOTS, out)?;
    // Without samples the time that one stands for can only be what the file says.
    let says_rate = profile.boots.iter().any(|boot| boot.number(Fact::Hz).is_some_and(|hz| hz > 0));
    let period_ns = if about.event.is_none() || says_rate { input.period_ns } else { 0 };
    for (boot, number) in profile.boots.iter().zip(0..) {
        let build = about.build.or(input.build_id.as_deref()).unwrap_or_default();
        let trigger = boot.trigger().unwrap_or_default();
        let texts = [boot.id(), about.machine, build, trigger, boot.fact(Fact::Clock).unwrap_or_default()];
        table.row(texts.map(|name| text(&visible(name))), [period_ns as i64, input.clock.zero(number) as i64])?;
    }
    table.finish()
}

const SAMPLES: &str = "message samples {
    required binary boot (STRING);
    required int32 cpu;
    required binary task (STRING);
    required int64 time_ns;
    required int64 weight;
    required binary state (STRING);
    required int64 stack;
}";

fn samples(input: &Input<'_>, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(SAMPLES, out)?;
    let (places, ids) = (&input.places, stack_ids(input));
    let lost = stack_beside(input.lost());
    let tasks: Vec<ByteArray> = input.tracks.tasks.iter().map(|task| text(task)).collect();
    let states = State::NAMES.map(text);
    let (no_task, lost_state) = (text(""), text("lost"));
    for (boot, cpu) in input.cpus() {
        let id = text(&visible(profile.boots.get(boot as usize).map_or("", Boot::id)));
        let mut row = |task: &ByteArray, tsc, weight, state: &ByteArray, stack| {
            let time = input.clock.nanos(boot, tsc) as i64;
            table.row([&id, task, state].map(ByteArray::clone), [i64::from(cpu), time, weight, stack])
        };
        for sample in
            input.tracks.tracks.iter().filter(|one| (one.boot, one.cpu) == (boot, cpu)).flat_map(|one| one.samples())
        {
            let state = &states[places.state(sample.stack) as usize];
            row(&tasks[sample.task as usize], sample.tsc, 1, state, ids[sample.stack as usize])?;
        }
        for loss in input.ticks_of((boot, cpu), Reason::Lost) {
            row(&no_task, loss.tsc.0, signed(loss.count), &lost_state, lost)?;
        }
    }
    table.finish()
}

const UNSAMPLED: &str = "message unsampled {
    required binary boot (STRING);
    required int32 cpu;
    required int64 time_ns;
    required int64 weight;
    required binary state (STRING);
}";

fn unsampled(input: &Input<'_>, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(UNSAMPLED, out)?;
    for ticks in &input.ticks {
        let state = match ticks.reason {
            // These are samples that there should be.
            Reason::Lost => continue,
            Reason::User => "user",
            Reason::Idle => "idle",
            Reason::Filtered => "kernel",
            Reason::Coalesced => "coalesced",
        };
        let id = visible(profile.boots.get(ticks.boot as usize).map_or("", Boot::id));
        let time = input.clock.nanos(ticks.boot, ticks.tsc.0) as i64;
        table.row([&id, state].map(text), [i64::from(ticks.cpu), time, signed(ticks.count)])?;
    }
    table.finish()
}

const STACKS: &str = "message stacks {
    required int64 stack;
    required int32 depth;
    required boolean is_self;
    required int64 frame;
}";

fn stacks(input: &Input<'_>, beside: &[&str], out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(STACKS, out)?;
    let ids = frame_ids(input);
    let mut rows: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for stack in input.places.stacks() {
        rows.insert(stack_id(input, &ids, stack), frames_of(input, &ids, stack).collect());
    }
    rows.extend(beside.iter().map(|name| (stack_beside(name), vec![frame_id(name, false)])));
    for (stack, frames) in rows {
        for (frame, depth) in frames.iter().zip(0..) {
            table.row([], [stack, depth, i64::from(depth as usize + 1 == frames.len()), *frame])?;
        }
    }
    table.finish()
}

const FRAMES: &str = "message frames {
    required int64 frame;
    required binary function (STRING);
    required boolean is_inlined;
    required binary image (STRING);
    required binary file (STRING);
}";

fn frames(input: &Input<'_>, beside: &[&str], out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(FRAMES, out)?;
    let names = &input.places.names;
    let mut rows: BTreeMap<i64, [&str; 3]> = BTreeMap::new();
    let mut inlined = BTreeMap::new();
    for (place, id) in input.places.places.iter().zip(frame_ids(input)) {
        let image = place.image.checked_sub(1).map_or("kernel", |at| &input.places.images[at as usize].name);
        let file = place.line.map_or("", |(file, _)| names.name(file));
        rows.entry(id).or_insert([names.name(place.function), image, file]);
        inlined.insert(id, place.depth > 0);
    }
    rows.extend(beside.iter().map(|name| (frame_id(name, false), [*name, "", ""])));
    for (id, texts) in rows {
        table.row(texts.map(text), [id, i64::from(inlined.get(&id).is_some_and(|inlined| *inlined))])?;
    }
    table.finish()
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text.as_bytes().to_vec())
}

fn frame_id(function: &str, is_inlined: bool) -> i64 {
    hash(format!("{function}\0{}", u8::from(is_inlined)).as_bytes()) as i64
}

/// The ids of all places.
fn frame_ids(input: &Input<'_>) -> Vec<i64> {
    let id = |place: &Place| frame_id(input.places.names.name(place.function), place.depth > 0);
    input.places.places.iter().map(id).collect()
}

fn frames_of(input: &Input<'_>, ids: &[i64], stack: u32) -> impl Iterator<Item = i64> {
    input.places.of(stack).iter().map(|place| ids[*place as usize])
}

fn stack_id(input: &Input<'_>, ids: &[i64], stack: u32) -> i64 {
    stack_of(&frames_of(input, ids, stack).collect::<Vec<_>>())
}

/// The ids of all stacks, by their numbers.
fn stack_ids(input: &Input<'_>) -> Vec<i64> {
    let (frames, mut ids) = (frame_ids(input), Vec::new());
    for stack in input.places.stacks() {
        ids.resize(stack as usize, 0);
        ids.push(stack_id(input, &frames, stack));
    }
    ids
}

/// The stack of a function that stands for something besides.
fn stack_beside(name: &str) -> i64 {
    stack_of(&[frame_id(name, false)])
}

fn stack_of(frames: &[i64]) -> i64 {
    hash(&frames.iter().flat_map(|frame| frame.to_le_bytes()).collect::<Vec<_>>()) as i64
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
