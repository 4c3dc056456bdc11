//! OpenTelemetry's profiles, for collectors and servers. Experimental, as the standard is. Stage: output.
//!
//! In: the samples of each CPU. Out: a `ProfilesData` message: a profile for each CPU, with a sample for each stack and
//! task and its count, and at the end the dictionary that all of them refer to. Lost samples are a sample of the
//! function `[lost]`. Concatenated messages are one message, so that only the counts of one CPU are in memory.
//! `events.rs` has the hits of a point.
//!
//! Source of the form: `opentelemetry/proto/profiles/v1development/profiles.proto`. The first entry of each table of
//! the dictionary stands for "none".

pub mod events;

use super::{Input, Reason};
use crate::symbols::users::plain;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Location, Mapping, Profile, ProfilesData, ProfilesDictionary, ResourceProfiles,
    Sample, ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// Writes the message.
///
/// # Errors
/// Errors of the writer.
pub fn write(input: &Input<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut made = Made::new(input);
    for cpu in input.cpus() {
        let rows = made.cpu(cpu);
        made.profiles(&[("samples", "count")], ("time", "nanoseconds", input.period_ns), rows, out)?;
    }
    made.end(out)
}

/// A sample: its stack, its attributes, and a value for each type.
type Row = (i32, Vec<i32>, Vec<i64>);

/// The dictionary that is being made.
struct Made<'a> {
    input: &'a Input<'a>,
    dictionary: ProfilesDictionary,
    texts: HashMap<String, i32>,
    functions: HashMap<(i32, i32), i32>,
    /// Locations by their places, outermost first.
    locations: HashMap<Vec<u32>, i32>,
    stacks: HashMap<u32, i32>,
    tasks: HashMap<u32, i32>,
}

impl<'a> Made<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        let dictionary = ProfilesDictionary {
            mapping_table: vec![Mapping::default()],
            location_table: vec![Location::default()],
            function_table: vec![Function::default()],
            link_table: vec![Default::default()],
            attribute_table: vec![KeyValueAndUnit::default()],
            stack_table: vec![Stack::default()],
            ..ProfilesDictionary::default()
        };
        let (texts, functions, locations) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (stacks, tasks) = (HashMap::new(), HashMap::new());
        let mut made = Self { input, dictionary, texts, functions, locations, stacks, tasks };
        made.text("");
        let kernel = [(input.kernel.clone(), input.build_id.clone())];
        let images = input.places.images.iter().map(|image| (image.name.clone(), image.build_id.clone()));
        for (name, build_id) in kernel.into_iter().chain(images) {
            let filename_strindex = made.text(&name);
            let build_id = build_id.map(|id| made.attribute("process.executable.build_id.gnu", Value::StringValue(id)));
            let attribute_indices = build_id.into_iter().collect();
            made.dictionary.mapping_table.push(Mapping { filename_strindex, attribute_indices, ..Mapping::default() });
        }
        made
    }

    /// The samples of a CPU.
    fn cpu(&mut self, (boot, cpu): (u32, u32)) -> Vec<Row> {
        let mut counts: BTreeMap<(u32, u32), i64> = BTreeMap::new();
        let tracks = self.input.tracks.tracks.iter().filter(|track| (track.boot, track.cpu) == (boot, cpu));
        for sample in tracks.flat_map(|track| track.samples()) {
            *counts.entry((sample.stack, sample.task)).or_default() += 1;
        }
        let number = self.cpu_number(u64::from(cpu));
        let mut rows: Vec<Row> = Vec::with_capacity(counts.len() + 1);
        for ((stack, task), count) in counts {
            rows.push((self.stack(stack), vec![number, self.task(task)], vec![count]));
        }
        let losses = self.input.ticks_of((boot, cpu), Reason::Lost);
        let lost = losses.fold(0u64, |sum, ticks| sum.saturating_add(ticks.count));
        if lost > 0 {
            rows.push((self.named(self.input.lost()), vec![number], vec![signed(lost)]));
        }
        rows
    }

    /// Writes a profile for each type of value, `(name, unit)`. `period` is what is sampled, its unit, and how much of
    /// it lies between two samples.
    fn profiles(
        &mut self,
        types: &[(&str, &str)],
        (kind, unit, period): (&str, &str, u64),
        rows: Vec<Row>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let period_type = (period > 0).then(|| self.value_type(kind, unit));
        let mut profiles = Vec::new();
        for (at, (kind, unit)) in types.iter().enumerate() {
            let sample = |(stack, attributes, values): &Row| Sample {
                stack_index: *stack,
                attribute_indices: attributes.clone(),
                values: vec![values[at]],
                ..Sample::default()
            };
            profiles.push(Profile {
                sample_type: Some(self.value_type(kind, unit)),
                period_type,
                period: signed(period),
                samples: rows.iter().filter(|(.., values)| values[at] > 0).map(sample).collect(),
                ..Profile::default()
            });
        }
        let (name, version) = ("kprof-fold".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        let scope = Some(InstrumentationScope { name, version, ..InstrumentationScope::default() });
        let service = any(Value::StringValue("kernel".to_owned()));
        let attributes = vec![KeyValue { key: "service.name".to_owned(), value: service, ..KeyValue::default() }];
        let resource = Some(Resource { attributes, ..Resource::default() });
        let scope_profiles = vec![ScopeProfiles { scope, profiles, ..ScopeProfiles::default() }];
        let resource_profiles = vec![ResourceProfiles { resource, scope_profiles, ..ResourceProfiles::default() }];
        out.write_all(&ProfilesData { resource_profiles, dictionary: None }.encode_to_vec())
    }

    /// Writes the dictionary.
    fn end(self, out: &mut dyn Write) -> io::Result<()> {
        let dictionary = Some(self.dictionary);
        out.write_all(&ProfilesData { resource_profiles: Vec::new(), dictionary }.encode_to_vec())
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { type_strindex: self.text(kind), unit_strindex: self.text(unit) }
    }

    fn cpu_number(&mut self, cpu: u64) -> i32 {
        self.attribute("cpu.logical_number", Value::IntValue(signed(cpu)))
    }

    fn text(&mut self, text: &str) -> i32 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = push(&mut self.dictionary.string_table, text.to_owned());
        self.texts.insert(text.to_owned(), number);
        number
    }

    fn attribute(&mut self, key: &str, value: Value) -> i32 {
        let key_strindex = self.text(key);
        push(
            &mut self.dictionary.attribute_table,
            KeyValueAndUnit { key_strindex, value: any(value), unit_strindex: 0 },
        )
    }

    fn task(&mut self, task: u32) -> i32 {
        if let Some(number) = self.tasks.get(&task) {
            return *number;
        }
        let name = self.input.tracks.tasks[task as usize].clone();
        let number = self.attribute("thread.name", Value::StringValue(name));
        self.tasks.insert(task, number);
        number
    }

    fn function(&mut self, name: &str, file: &str) -> i32 {
        let (name_strindex, filename_strindex) = (self.text(name), self.text(file));
        let table = &mut self.dictionary.function_table;
        let new = || push(table, Function { name_strindex, filename_strindex, ..Function::default() });
        *self.functions.entry((name_strindex, filename_strindex)).or_insert_with(new)
    }

    /// A stack, innermost location first. A location has the functions that are inlined there, innermost first.
    fn stack(&mut self, stack: u32) -> i32 {
        if let Some(number) = self.stacks.get(&stack) {
            return *number;
        }
        let (input, mut locations) = (self.input, Vec::<Vec<u32>>::new());
        for place in input.places.of(stack) {
            match locations.last_mut() {
                Some(location) if input.places.places[*place as usize].depth > 0 => location.push(*place),
                _ => locations.push(vec![*place]),
            }
        }
        let location_indices = locations.into_iter().rev().map(|places| self.location(places)).collect();
        let number = push(&mut self.dictionary.stack_table, Stack { location_indices });
        self.stacks.insert(stack, number);
        number
    }

    fn location(&mut self, places: Vec<u32>) -> i32 {
        if let Some(number) = self.locations.get(&places) {
            return *number;
        }
        let all = &self.input.places;
        let mut lines = Vec::with_capacity(places.len());
        for place in places.iter().rev().map(|place| &all.places[*place as usize]) {
            let (file, line) = place.line.map_or(("", 0), |(file, line)| (all.names.name(file), i64::from(line)));
            let function_index = self.function(all.names.name(place.function), file);
            lines.push(Line { function_index, line, column: 0 });
        }
        let outer = &all.places[places[0] as usize];
        let mapping_index = outer.symbol.map_or(0, |_| outer.image as i32 + 1);
        let location = Location { mapping_index, address: plain(outer.address), lines, ..Location::default() };
        let number = push(&mut self.dictionary.location_table, location);
        self.locations.insert(places, number);
        number
    }

    /// The stack of a function that stands for something besides.
    fn named(&mut self, name: &str) -> i32 {
        let function_index = self.function(name, "");
        let lines = vec![Line { function_index, line: 0, column: 0 }];
        let location = push(&mut self.dictionary.location_table, Location { lines, ..Location::default() });
        push(&mut self.dictionary.stack_table, Stack { location_indices: vec![location] })
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn any(value: Value) -> Option<AnyValue> {
    Some(AnyValue { value: Some(value) })
}

/// Adds an entry and returns its number.
fn push<T>(table: &mut Vec<T>, entry: T) -> i32 {
    table.push(entry);
    table.len() as i32 - 1
}
